// How the vocabularies of model families split text into words, each as its own tokenizer.json does it.
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
    kGpt2,             // ByteLevel with its own pattern
    kBytes,            // ByteLevel without
  };
  Kind kind;
  std::string_view pattern = {};  // kPattern
};

// What else a family's tokenizer.json has that its GGUF does not carry.
struct SplitFamily {
  std::string_view names;  // of "tokenizer.ggml.pre", separated by spaces; the first one is written
  std::span<const SplitStep> steps;
  bool nfc = false;            // a normalizer of that form
  bool ignore_merges = false;  // a word that is a token is that token
  bool add_bos = false;        // unless the file says otherwise
  bool ranks = false;          // made from a file of ranks: its GGUF may leave the merges out
  bool characters =
      false;  // merges join characters, with "▁" for spaces and bytes as a last resort; else bytes
};

// THE list.
std::span<const SplitFamily> split_families();
// nullptr when it is in no row.
const SplitFamily* find_split_family(std::string_view name);

}  // namespace penstock
