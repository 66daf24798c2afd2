// How the byte-level vocabularies of known model families split text: for GGUF ("tokenizer.ggml.pre") and
// tiktoken files, which name their rules instead of carrying them. THE list is in presets.cc.
#pragma once
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>

#include "base/result.h"
#include "text/normalizer.h"
#include "text/pre_tokenizer.h"

namespace penstock {

struct BytePreset {
  PreTokenizer pre_tokenizer;
  Normalizer normalizer;
  bool ignore_merges = false;
  bool add_bos = false;  // unless the file says otherwise
};

// Errors: kUnsupported for a name that is not in the list.
Result<BytePreset> byte_preset(std::string_view name);

// The same as tokenizer.json has it: {"pre_tokenizer": ..., "normalizer": ..., "ignore_merges": ...}, and
// back: the first preset that splits as this tokenizer.json does. Errors: kUnsupported.
Result<nlohmann::json> byte_preset_json(std::string_view name);
Result<std::string> byte_preset_of_json(const nlohmann::json& tokenizer);

}  // namespace penstock
