// How the vocabularies of known model families split text: for GGUF ("tokenizer.ggml.pre") and tiktoken files, which
// name their rules instead of carrying them. THE list is in split_rules.cc.
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
  bool add_bos = false;     // unless the file says otherwise
  bool ranks = false;       // a file may leave the merges out: ids are ranks
  bool characters = false;  // the vocabulary joins characters, not bytes
};

// Errors: kUnsupported for a name that is not in the list.
Result<Preset> preset_of(std::string_view name);

// The same as tokenizer.json has it: {"pre_tokenizer": ..., "normalizer": ..., "ignore_merges": ...}, and
// back: the first preset that splits as this tokenizer.json does. Errors: kUnsupported, also for vocabularies of
// characters.
Result<nlohmann::json> preset_json(std::string_view name);
Result<std::string> preset_of_json(const nlohmann::json& tokenizer);

}  // namespace penstock
