// Decodes the spelling of a token to the bytes that it adds to a text.
#pragma once
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "text/unicode/regex.h"

namespace penstock {

// A list of steps, each a function of one token and of whether it is the first of its text.
// Immutable.
class Decoder {
 public:
  // tokenizer.json's "decoder"; null joins the pieces with spaces, as Hugging Face does. Errors:
  // kCorruptFile, kUnsupported.
  static Result<Decoder> from_json(const nlohmann::json& json);
  static Decoder byte_level();
  static Decoder word_piece(std::string prefix, bool cleanup);
  // SentencePiece: "▁" becomes a space, byte tokens become bytes; strip_first: one leading space of
  // the text is dropped.
  static Decoder sentence_piece(bool strip_first);

  std::string apply(std::string_view piece, bool first) const;

 private:
  enum class Kind : uint8_t {
    kByteLevel,
    kByteFallback,
    kReplace,
    kStrip,
    kMetaspace,
    kWordPiece,
    kSuffix,
    kJoin
  };
  struct Step {
    Kind kind;
    Regex pattern;  // Replace
    // Replace: the new text; Strip: the character; WordPiece: prefix; BPEDecoder: suffix; Metaspace
    std::string text;
    // Strip: maximum number of characters removed at the start
    int start = 0;
    // Strip: maximum number of characters removed at the end
    int stop = 0;
    // Strip: applies to the text instead of each token
    bool whole = false;
    // WordPiece: clean up; Metaspace: drop ▁ of the first token
    bool flag = false;
  };
  static Status add_json(const nlohmann::json& json, int depth, bool& fused,
                         std::vector<Step>& steps);
  static Result<Step> leaf(const nlohmann::json& json, const std::string& type, bool fused);
  static std::string run(const Step& step, std::string piece, bool first);

  std::vector<Step> steps_;
};

}  // namespace penstock
