// A model of a known shape with random weights: what a machine's speed is, before any download.
#pragma once
#include <filesystem>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <string_view>

#include "base/result.h"
#include "formats/weight_source.h"
#include "model/arch/read_config.h"

namespace penstock {

// `shape`: a row of named_shapes(); `type`: a file type (ftype.h) or a layer coding
// (synthetic_layers.h). Memory: one pool of random
// blocks per encoding, as large as its largest tensor, which the tensors share from different offsets. Named
// as a GGUF file, with a stand-in vocabulary (one merge; most tokens are <t5>, <t6>, ...).
Result<std::unique_ptr<WeightSource>> make_synthetic_source(std::string_view shape, std::string_view type);
Result<std::unique_ptr<WeightSource>> make_synthetic_source(const ModelConfig& config, std::string_view type);

// Bytes of all weights of such a model, without making it.
Result<int64_t> synthetic_weight_bytes(const ModelConfig& config, std::string_view type);

// The architecture's name in GGUF ("mistral" is "llama" there).
std::string gguf_arch(const ModelConfig& config);

// Metadata from which read_config() makes the same configuration (no vocabulary).
nlohmann::json gguf_metadata(const ModelConfig& config);

// Writes any source with GGUF names to one file.
Status write_gguf(const WeightSource& source, const std::filesystem::path& path);

}  // namespace penstock
