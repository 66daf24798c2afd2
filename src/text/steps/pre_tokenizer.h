// Splits a normalized text into the words that a vocabulary's merge rules never cross.
#pragma once
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "base/function_ref.h"
#include "base/result.h"
#include "text/unicode/regex.h"

namespace penstock {

// Receives the words of a text one by one. The views are valid only during the call of the sink.
using WordSink = FunctionRef<void(std::string_view)>;

// A sequence of pre-tokenization steps. Immutable once built.
class PreTokenizer {
 public:
  enum class Behavior : uint8_t {
    kRemoved,
    kIsolated,
    kMergedWithPrevious,
    kMergedWithNext,
    kContiguous
  };
  enum class Prepend : uint8_t { kNever, kFirst, kAlways };

  // tokenizer.json's "pre_tokenizer"; null gives the identity. Errors: kCorruptFile, kUnsupported.
  static Result<PreTokenizer> from_json(const nlohmann::json& json);

  // The add_...() functions append a step, for vocabularies without a tokenizer.json.
  void add_split(Regex pattern, Behavior behavior);
  void add_bert();
  void add_byte_level(bool add_prefix_space, bool use_regex);

  // is_byte_level(): the last step is ByteLevel, whose mapping to the byte alphabet is left to the
  // vocabulary, so that words stay plain bytes. is_mapped(): an earlier step is ByteLevel, so that
  // words are in the byte alphabet.
  bool is_byte_level() const { return byte_level_; }
  bool is_mapped() const { return mapped_; }
  // Maps the words to the byte alphabet, for a vocabulary that is not keyed by bytes.
  void map_bytes();

  // Calls `words` for each word of text. at_start: text is the beginning of the whole input.
  // REQUIRES: text is well-formed UTF-8, or is_byte_level() without is_mapped(); then ill-formed
  // runs are words of their own.
  void split(std::string_view text, bool at_start, WordSink words) const;

 private:
  enum class Kind : uint8_t {
    kSplit,
    kDigits,
    kPunctuation,
    kWhitespace,
    kWhitespaceSplit,
    kBert,
    kByteLevel,
    kMetaspace,
    kDelimiter
  };
  struct Step {
    Kind kind;
    Regex pattern;                            // Split
    Behavior behavior = Behavior::kIsolated;  // Split, Punctuation
    bool invert = false;                      // Split
    bool individual = false;                  // Digits
    bool prefix_space = false, map = false;   // ByteLevel
    std::string replacement;                  // Metaspace, CharDelimiterSplit
    Prepend prepend = Prepend::kAlways;       // Metaspace
    bool split = true;                        // Metaspace; ByteLevel: by GPT-2's pattern
  };
  static Status add_json(const nlohmann::json& json, int depth, std::vector<Step>& steps);
  static Result<Step> leaf(const nlohmann::json& json, const std::string& type);
  void finish();
  void split_valid(std::string_view text, bool at_start, size_t first_step, WordSink words) const;
  static void run(const Step& step, std::string_view piece, bool at_start, WordSink words);
  static void run_byte_level(const Step& step, std::string_view piece, WordSink words);
  static void run_metaspace(const Step& step, std::string_view piece, bool at_start,
                            WordSink words);

  std::vector<Step> steps_;
  bool byte_level_ = false;
  bool mapped_ = false;
};

}  // namespace penstock
