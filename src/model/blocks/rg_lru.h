// Recurrent block of Griffin (arXiv 2402.19427): x += out(act(y h) * lru(conv(x h))). RG-LRU keeps a
// number for each channel, S = decay S + sqrt(1 - decay^2) sigmoid(i) x, where decay = exp(-8
// softplus(p) sigmoid(r)); i and r are projections of x by blocks of channels.
#pragma once
#include "model/blocks/mixer.h"

namespace penstock {

namespace tensor {
// The gates and kLruDecay are whole names; kLruDecay is p.
inline constexpr TensorName kLruX{"lru_x", "temporal_block.linear_x"};
inline constexpr TensorName kLruY{"lru_y", "temporal_block.linear_y"};
inline constexpr TensorName kLruOut{"lru_out", "temporal_block.linear_out"};
inline constexpr TensorName kLruConv{"lru_conv1d", "temporal_block.conv_1d"};
inline constexpr TensorName kLruInputGate{"lru_input_gate",
                                          "temporal_block.rg_lru.input_gate_weight"};
inline constexpr TensorName kLruInputBias{"lru_input_gate.bias",
                                          "temporal_block.rg_lru.input_gate_bias"};
inline constexpr TensorName kLruDecayGate{"lru_decay_gate",
                                          "temporal_block.rg_lru.recurrent_gate_weight"};
inline constexpr TensorName kLruDecayBias{"lru_decay_gate.bias",
                                          "temporal_block.rg_lru.recurrent_gate_bias"};
inline constexpr TensorName kLruDecay{"lru_decay", "temporal_block.rg_lru.recurrent_param"};
}  // namespace tensor

struct LruConfig {
  int n_blocks = 1;    // of channels, which share their gates' matrices
  int block_size = 1;  // channels of a block
  int taps = 1;        // tokens that the convolution reads, the current one included

  int channels() const { return n_blocks * block_size; }
};

std::shared_ptr<const Mixer> rg_lru(const LruConfig& config);

}  // namespace penstock
