// Presets of normalizer and pre-tokenizer for model families: GGUF ("tokenizer.ggml.pre") and
// tiktoken files name their rules instead of containing them. THE list is in split_rules.cc.
#pragma once
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>

#include "base/result.h"
#include "text/steps/normalizer.h"
#include "text/steps/pre_tokenizer.h"

namespace penstock {

struct Preset {
  PreTokenizer pre_tokenizer;
  Normalizer normalizer;
  bool ignore_merges = false;
  // default of "add BOS" where the file does not set it
  bool add_bos = false;
  // a file may omit the merges: token ids are the ranks
  bool ranks = false;
  bool characters = false;  // the vocabulary joins characters, not bytes
};

// Errors: kUnsupported for a name that is not in the list.
Result<Preset> preset_of(std::string_view name);

// preset_json() returns a preset in the form of tokenizer.json: {"pre_tokenizer": ...,
// "normalizer": ..., "ignore_merges": ...}; preset_of_json() returns the name of the first preset
// that splits as this tokenizer.json does. Errors: kUnsupported, also for vocabularies of
// characters.
Result<nlohmann::json> preset_json(std::string_view name);
Result<std::string> preset_of_json(const nlohmann::json& tokenizer);

}  // namespace penstock
