// A Hugging Face checkpoint: a directory with config.json, safetensors (one file, or shards with an index)
// and the tokenizer's files.
#pragma once
#include "formats/mapped_source.h"

namespace penstock {

// With `only_file` (a name in the directory) the tensors come from that file alone.
Result<std::unique_ptr<WeightSource>> open_hf_directory(const std::filesystem::path& directory,
                                                        const std::string& only_file = "");

}  // namespace penstock
