// Rotary position embedding: from a configuration to the angle of every dimension pair.
#pragma once
#include <array>
#include <nlohmann/json_fwd.hpp>
#include <vector>

#include "model/arch/config_reader.h"
#include "model/blocks/config.h"

namespace penstock {

// Reads the single rope of a file. REQUIRES: config has head_dim and max_seq_len. Errors are
// recorded in the reader.
RopeConfig read_rope(ConfigReader& reader, const ModelConfig& config);
// Reads one entry of Hugging Face's rope_parameters (or rope_scaling with a separate rope_theta).
RopeConfig read_hf_rope(ConfigReader& reader, const nlohmann::json& parameters,
                        const ModelConfig& config, float default_theta);

// Order of the pairs that turn by time, rows and columns (M-RoPE): sections one after the other, or
// pair i by axis i % 3 as far as the section of that axis goes, and by time behind.
enum class AxisOrder : uint8_t { kSections, kInterleaved };
// Reads the axes of the model's first rope. published: sections of files that have none.
void read_rope_axes(ConfigReader& reader, ModelConfig& config, AxisOrder order,
                    std::array<int, 3> published);

// Returns radians per position for each pair: [rotary_dim / 2]. is_long: with longrope's long
// factors.
std::vector<float> rope_frequencies(const RopeConfig& rope, bool is_long = false);
// Returns the factor of cos and sin.
float rope_magnitude(const RopeConfig& rope);

// Returns the slopes of ALiBi, 2^(-b / n), 2^(-2b / n), ... for n heads and the largest bias b. If
// n is no power of two: those of the next smaller power, then every second one of the next larger
// power.
std::vector<float> alibi_slopes(int n_heads, float max_bias);

}  // namespace penstock
