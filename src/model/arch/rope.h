// Rotary position embedding: from a configuration to the angle of every dimension pair.
#pragma once
#include <nlohmann/json_fwd.hpp>
#include <vector>

#include "model/arch/config_reader.h"
#include "model/blocks/config.h"

namespace penstock {

// The file's single rope. `config` has head_dim and max_seq_len. Errors stay in the reader.
RopeConfig read_rope(ConfigReader& reader, const ModelConfig& config);
// One entry of Hugging Face's rope_parameters (or rope_scaling with a separate rope_theta).
RopeConfig read_hf_rope(ConfigReader& reader, const nlohmann::json& parameters, const ModelConfig& config,
                        float default_theta);

// Radians per position for each pair: [rotary_dim / 2]. is_long: by longrope's long factors.
std::vector<float> rope_frequencies(const RopeConfig& rope, bool is_long = false);
// What cos and sin are multiplied by.
float rope_magnitude(const RopeConfig& rope);

// ALiBi's: 2^(-b / n), 2^(-2b / n), ... for n heads, b the largest bias. Where n is no power of two, those of the next smaller
// one and then every second of the next larger one.
std::vector<float> alibi_slopes(int n_heads, float max_bias);

}  // namespace penstock
