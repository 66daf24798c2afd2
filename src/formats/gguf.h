// GGUF versions 2 and 3, one file or shards NAME-00001-of-000NN.gguf.
#pragma once
#include "formats/gguf_types.h"
#include "formats/mapped_source.h"

namespace penstock {

bool is_gguf(std::span<const std::byte> bytes);

// Opens the file and, when it is the first of a sharded model, its other shards.
Result<std::unique_ptr<WeightSource>> open_gguf(const std::filesystem::path& path,
                                                FileBytes how = FileBytes::kMapped);

// Content of one file: metadata, and tensors that point into the file's bytes.
struct GgufFile {
  nlohmann::json metadata;
  std::vector<TensorInfo> tensors;
};
// Parses a file's bytes. where: name of the file in messages. Errors: kCorruptFile, kUnsupported.
Result<GgufFile> parse_gguf(std::span<const std::byte> bytes, const std::string& where);

}  // namespace penstock
