// mmproj files: GGUF files with the towers of a model whose text part is another file, as llama.cpp
// writes them.
#pragma once
#include <filesystem>
#include <memory>

#include "formats/weight_source.h"

namespace penstock {

// Opens an mmproj file as the Hugging Face directory that it was made from: config.json and
// preprocessor_config.json are made of its keys, and tensors have the names and layouts that towers
// read. What processors of pictures and sounds need beyond the file's keys is what was published. Errors: those of
// open_weights(), kUnsupported (no mmproj file; a projector or a tensor that is not known, by name),
// kCorruptFile.
Result<std::unique_ptr<WeightSource>> open_mmproj(const std::filesystem::path& path);

}  // namespace penstock
