// A Hugging Face checkpoint: a directory with config.json, safetensors or PyTorch's files (one, or
// shards with an index) and the tokenizer's files.
#pragma once
#include "formats/mapped_source.h"

namespace penstock {

// Opens the directory. only_file: name of a file in it from which alone the tensors come; empty:
// from all.
Result<std::unique_ptr<WeightSource>> open_hf_directory(const std::filesystem::path& directory,
                                                        const std::string& only_file = "");

// Opens a safetensors or PyTorch file, told apart by its content, and returns its tensors; `source`
// owns the bytes that they point into.
Result<std::vector<TensorInfo>> open_tensors(const std::filesystem::path& path,
                                             MappedSource& source,
                                             FileBytes how = FileBytes::kMapped);

// Reads the JSON object in the file; Python's NaN and infinities become {"__float__": "NaN"}. An
// error when the file cannot be read, is not JSON, is not an object or is nested too deeply.
Result<nlohmann::json> read_json_object(const std::filesystem::path& path);

}  // namespace penstock
