// State space model of Mamba 2: x += out(norm(scan of silu(conv(x, B, C)) * silu(z))). z, x, B, C
// and a time step for each head are one projection of h. The norm may be absent, or precede the
// gate.
#pragma once
#include <limits>

#include "model/blocks/mixer.h"

namespace penstock {

namespace tensor {
// One projection of z, x, B, C and the time steps; kSsmRate, kSsmSkip and kSsmBias are whole names.
inline constexpr TensorName kSsmIn{"ssm_in", "mamba.in_proj"};
inline constexpr TensorName kSsmConv{"ssm_conv1d", "mamba.conv1d"};
inline constexpr TensorName kSsmRate{"ssm_a", "mamba.A_log"};
inline constexpr TensorName kSsmSkip{"ssm_d", "mamba.D"};
inline constexpr TensorName kSsmBias{"ssm_dt.bias", "mamba.dt_bias"};
inline constexpr TensorName kSsmNorm{"ssm_norm", "mamba.norm"};
inline constexpr TensorName kSsmOut{"ssm_out", "mamba.out_proj"};
}  // namespace tensor

struct ScanConfig {
  // Groups of heads that share B and C.
  int n_groups = 1;
  // Heads, a multiple of the groups.
  int n_heads = 1;
  // Rows and columns of a head's state: sizes of B and C, and of x.
  int state_dim = 1;
  int head_dim = 1;
  // Tokens that the convolution of x, B and C reads, the current one included.
  int taps = 1;
  // Bounds of time steps, not negative.
  float min_step = 0.0f;
  float max_step = std::numeric_limits<float>::infinity();
  // The output of the scan is normed, by group.
  bool norm = true;
  // The gate follows the norm; false: it precedes the norm.
  bool norm_before_gate = false;
  // Added to the mean square in that norm; 0: NormConfig::eps.
  float norm_eps = 0.0f;
  // Factors of the input and the output of the block, and of the parts of its projection
  // (Falcon-H1).
  struct Factors {
    float in = 1.0f, out = 1.0f;
    float z = 1.0f, x = 1.0f, b = 1.0f, c = 1.0f, step = 1.0f;
    bool operator==(const Factors&) const = default;
  } factors;

  int group_values() const { return n_groups * state_dim; }  // of B or C of all groups
  int values() const { return n_heads * head_dim; }
  int channels() const { return 2 * group_values() + values(); }  // of the convolution
};

std::shared_ptr<const Mixer> scan(const ScanConfig& config);
// Returns the configuration of the first layer with a scan; null if no layer has one.
const ScanConfig* scan_config(const ModelConfig& config);

}  // namespace penstock
