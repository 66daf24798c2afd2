// Conversion of a model's configuration to the other file format.
#pragma once
#include <nlohmann/json_fwd.hpp>

#include "formats/weight_source.h"
#include "model/blocks/config.h"
#include "quantize/plan/recipe.h"
#include "quantize/write/encode.h"

namespace penstock {

// Returns config.json without quantization_config. Error: kUnsupported (not expressible).
Result<nlohmann::json> hf_config_of(const WeightSource& gguf, const ModelConfig& config);

// Compares what two configurations compute, given weights in the layout of each. Returns "" or the
// name of a difference.
std::string config_difference(const ModelConfig& a, const ModelConfig& b);

// Parameters of xIELU are tensors in a directory and settings in GGUF: read_activations() copies
// them into the configuration, hf_extra_tensors() returns them as tensors.
Status read_activations(const WeightSource& source, ModelConfig& config);
std::vector<EncodedTensor> hf_extra_tensors(const ModelConfig& config);

// Returns tensors that GGUF has beside weights (rope_freqs.weight). Error: kUnsupported.
Result<std::vector<EncodedTensor>> gguf_extra_tensors(const WeightSource& source,
                                                      const ModelConfig& config);

}  // namespace penstock
