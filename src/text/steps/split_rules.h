// The rules by which model families split text into words, as in their tokenizer.json.
#pragma once
#include <span>
#include <string_view>

namespace penstock {

// One step of a "pre_tokenizer", in the terms of tokenizer.json.
struct SplitStep {
  enum class Kind : uint8_t {
    kPattern,          // Split, isolated
    kEachDigit,        // Digits, one by one
    kDigitRuns,        // Digits together
    kPunctuation,      // Punctuation, isolated
    kPunctuationRuns,  // Punctuation, contiguous
    kGpt2,             // ByteLevel with GPT-2's pattern
    kBytes,            // ByteLevel without a pattern
  };
  Kind kind;
  std::string_view pattern = {};  // kPattern
};

// The rules of a family's tokenizer.json that its GGUF files do not contain.
struct SplitFamily {
  // Values of "tokenizer.ggml.pre", separated by spaces; files are written with the first one.
  std::string_view names;
  std::span<const SplitStep> steps;
  bool nfc = false;  // the normalizer is NFC
  // a word that is a token is not split, whatever the merges
  bool ignore_merges = false;
  // default of "add BOS" where the file does not set it
  bool add_bos = false;
  // converted from a file of ranks: the GGUF may omit the merges
  bool ranks = false;
  // Merges join characters, with "▁" for spaces and bytes as fallback; false: merges join bytes.
  bool characters = false;
};

// THE list.
std::span<const SplitFamily> split_families();
// Returns the row that has this name, or nullptr.
const SplitFamily* find_split_family(std::string_view name);

}  // namespace penstock
