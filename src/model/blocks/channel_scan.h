// State space model of Mamba 1: x += out(scan of silu(conv(x)) * silu(z)). x and z are one
// projection of h; time steps, B and C are projections of what was convolved, and every channel has
// a rate for each row of its state.
#pragma once
#include "model/blocks/state_space.h"

namespace penstock {

namespace tensor {
// One projection of the low-rank time steps, B and C; and of the time steps of all channels.
inline constexpr TensorName kSsmX{"ssm_x", "mamba.x_proj"};
inline constexpr TensorName kSsmStep{"ssm_dt", "mamba.dt_proj"};
inline constexpr TensorName kSsmStepNorm{"ssm_dt_norm", "mamba.dt_layernorm"};
inline constexpr TensorName kSsmBNorm{"ssm_b_norm", "mamba.b_layernorm"};
inline constexpr TensorName kSsmCNorm{"ssm_c_norm", "mamba.c_layernorm"};
}  // namespace tensor

struct ChannelScanConfig {
  int channels = 1;
  // Rows of a channel's state: size of B and C.
  int state_dim = 1;
  // Rank of the projection of time steps.
  int step_rank = 1;
  // Tokens that the convolution reads, the current one included.
  int taps = 1;
  // Time steps (before their second projection), B and C are divided by their root mean square
  // (Falcon Mamba), and multiplied by weights (Jamba).
  enum class Norms : uint8_t { kNone, kPlain, kWeights } norms = Norms::kNone;
  // Added to the mean square.
  float eps = 1e-6f;
  // > 0: channels of a head have one time step, one rate and one skip, and one projection has for each head
  // its gates and then its channels; B and C are before time steps in the other one (PLaMo 2).
  int n_heads = 0;
  int n_steps() const { return n_heads > 0 ? n_heads : channels; }
  int head_dim() const { return channels / n_steps(); }
  bool operator==(const ChannelScanConfig&) const = default;
};

std::shared_ptr<const Mixer> channel_scan(const ChannelScanConfig& config);
// Returns the configuration of the first layer with such a scan; null if no layer has one.
const ChannelScanConfig* channel_scan_config(const ModelConfig& config);

}  // namespace penstock
