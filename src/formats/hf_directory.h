// A Hugging Face checkpoint: a directory with config.json, safetensors or PyTorch's files (one, or shards with an index) and the
// tokenizer's files.
#pragma once
#include "formats/mapped_source.h"

namespace penstock {

// With `only_file` (a name in the directory) the tensors come from that file alone.
Result<std::unique_ptr<WeightSource>> open_hf_directory(const std::filesystem::path& directory,
                                                        const std::string& only_file = "");

// The tensors of a safetensors or a PyTorch file, found by its content; `source` owns what they point into.
Result<std::vector<TensorInfo>> open_tensors(const std::filesystem::path& path, MappedSource& source);

// The JSON object in the file, with Python's NaN and infinities as {"__float__": "NaN"}. Errors: unreadable, not JSON, not an
// object, nested too deep.
Result<nlohmann::json> read_json_object(const std::filesystem::path& path);

}  // namespace penstock
