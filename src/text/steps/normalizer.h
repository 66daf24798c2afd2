// Normalization of a text before it is split into words.
#pragma once
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "text/unicode/regex.h"
#include "text/unicode/unicode.h"
#include "text/vocab/charsmap.h"
#include "text/vocab/trie.h"

namespace penstock {

// SentencePiece's own normalizer, as tokenizer.model and GGUF describe it.
struct SentencePieceRules {
  Charsmap charsmap;
  bool add_dummy_prefix = true;
  bool remove_extra_whitespaces = false;
  bool escape_whitespaces = true;
  bool whitespace_as_suffix = false;
  // user-defined pieces, which are not normalized
  Trie user_defined;
};

// A sequence of normalization steps. Immutable.
class Normalizer {
 public:
  // tokenizer.json's "normalizer"; null gives the identity. Errors: kCorruptFile, kUnsupported.
  static Result<Normalizer> from_json(const nlohmann::json& json);
  static Normalizer form(unicode::Form form);
  static Normalizer bert(bool clean_text, bool chinese, bool strip_accents, bool lowercase);
  static Normalizer sentence_piece(SentencePieceRules rules);

  bool is_identity() const { return steps_.empty(); }
  // Whether invalid UTF-8 passes unchanged through every step.
  bool keeps_invalid_utf8() const;
  std::string apply(std::string_view text) const;

 private:
  enum class Kind : uint8_t {
    kForm,
    kLowercase,
    kStripAccents,
    kReplace,
    kPrepend,
    kStrip,
    kBert,
    kPrecompiled,
    kNmt,
    kSentencePiece,
    kByteLevel
  };
  struct Step {
    Kind kind;
    unicode::Form form = unicode::Form::kNfc;
    // Replace: the new text; Prepend: the text to prepend
    std::string text;
    Regex pattern;                                                                       // Replace
    bool left = false, right = false;                                                    // Strip
    bool clean_text = false, chinese = false, strip_accents = false, lowercase = false;  // Bert
    std::shared_ptr<const SentencePieceRules> rules;  // Precompiled, SentencePiece
  };
  static Status add_json(const nlohmann::json& json, int depth, std::vector<Step>& steps);
  static Result<Step> leaf(const nlohmann::json& json, const std::string& type);
  static std::string run(const Step& step, std::string_view text);

  std::vector<Step> steps_;
};

}  // namespace penstock
