// A model of a known shape with random weights, to measure a machine's speed without a download.
#pragma once
#include <filesystem>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <string_view>

#include "base/result.h"
#include "formats/weight_source.h"
#include "model/arch/read_config.h"

namespace penstock {

// shape: a row of named_shapes(). type: a file type (ftype.h) or a layer coding
// (synthetic_layers.h). Memory: one pool of random blocks for each encoding, as large as its
// largest tensor; tensors share it at different offsets. Tensors have GGUF names; the vocabulary is
// a stand-in (one merge; most tokens are <t5>, <t6>, ...).
Result<std::unique_ptr<WeightSource>> make_synthetic_source(std::string_view shape,
                                                            std::string_view type);
Result<std::unique_ptr<WeightSource>> make_synthetic_source(const ModelConfig& config,
                                                            std::string_view type);

// Returns the bytes of all weights of such a model, without making it.
Result<int64_t> synthetic_weight_bytes(const ModelConfig& config, std::string_view type);

// Returns the architecture's name in GGUF ("llama" for "mistral").
std::string gguf_arch(const ModelConfig& config);

// Returns metadata from which read_config() makes the same configuration, without a vocabulary.
nlohmann::json gguf_metadata(const ModelConfig& config);

// Checks that no model but an earlier one of random weights is lost where write_gguf() writes. Error:
// kInvalidArgument.
Status check_replaces_synthetic(const std::filesystem::path& path);

// Writes a source with GGUF names to one file.
Status write_gguf(const WeightSource& source, const std::filesystem::path& path);

}  // namespace penstock
