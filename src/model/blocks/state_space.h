// Scans of Mamba 2: x += out(norm(scan of silu(conv(x, B, C)) * silu(z))), where z, x, B, C and a time step for each head are one
// projection of h. There may be no norm, or the gate behind it. Their sizes and weights are in the words of delta networks.
#pragma once
#include "model/blocks/delta_net.h"

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

void visit_state_space(TensorVisitor& v, DeltaNetWeights& w);

class StateSpaceBlock {
 public:
  StateSpaceBlock(Sublayer& sublayer, const DeltaScratch& scratch) : s_(sublayer), scratch_(scratch) {}
  void forward(int layer, const NormedInput& h, Tensor x, const NormedInput* next);

 private:
  Sublayer& s_;
  const DeltaScratch& scratch_;
};

}  // namespace penstock
