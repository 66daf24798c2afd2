// A model's configuration in the words of the other file format.
#pragma once
#include <nlohmann/json_fwd.hpp>

#include "formats/weight_source.h"
#include "model/blocks/config.h"
#include "quantize/plan/recipe.h"
#include "quantize/write/encode.h"

namespace penstock {

// config.json (without quantization_config). Errors: kUnsupported for what it cannot say.
Result<nlohmann::json> hf_config_of(const WeightSource& gguf, const ModelConfig& config);

// Whether two configurations compute the same, given weights in the layout of each; "" or what
// differs.
std::string config_difference(const ModelConfig& a, const ModelConfig& b);

// Parameters of activations are tensors of a directory (xIELU's) and settings in GGUF: into the
// configuration, and out of it.
Status read_activations(const WeightSource& source, ModelConfig& config);
std::vector<EncodedTensor> hf_extra_tensors(const ModelConfig& config);

// Tensors that GGUF has beside the weights (rope_freqs.weight). Errors: kUnsupported.
Result<std::vector<EncodedTensor>> gguf_extra_tensors(const WeightSource& source,
                                                      const ModelConfig& config);

}  // namespace penstock
