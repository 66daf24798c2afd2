// Converts tokenizers between the checkpoint formats GGUF and Hugging Face.
#pragma once
#include <map>
#include <nlohmann/json_fwd.hpp>
#include <string>

#include "base/result.h"
#include "formats/weight_source.h"

namespace penstock {

// Metadata keys of a GGUF file ("tokenizer.ggml.model", ...) for a Hugging Face directory's
// tokenizer. Errors: kUnsupported for vocabularies that GGUF cannot describe.
Result<nlohmann::json> tokenizer_to_gguf(const WeightSource& directory);

// Files of a Hugging Face directory (tokenizer.model or tokenizer.json, tokenizer_config.json, ...)
// for a GGUF file's tokenizer. Errors: kUnsupported.
Result<std::map<std::string, std::string>> tokenizer_to_files(const WeightSource& gguf);

}  // namespace penstock
