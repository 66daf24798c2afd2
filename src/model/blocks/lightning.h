// Lightning attention (arXiv 2401.04658; MiniMax-01): linear attention whose states decay by a rate of
// the layer and the head:
//   q, k, v = silu(h qkv^T);  S = exp(-rate) S + k v^T;  x += out(sigmoid(h gate^T) norm(S^T q)).
#pragma once
#include "model/blocks/mixer.h"

namespace penstock {

namespace tensor {
// Rows of kLightningQkv are those of each head: queries, keys, values.
inline constexpr TensorName kLightningQkv{"attn_qkv", "self_attn.qkv_proj"};
inline constexpr TensorName kLightningGate{"attn_gate", "self_attn.output_gate"};
inline constexpr TensorName kLightningNorm{"attn_norm_2", "self_attn.norm"};
inline constexpr TensorName kLightningOut{"attn_output", "self_attn.out_proj"};
}  // namespace tensor

// Every rank has all heads.
std::shared_ptr<const Mixer> lightning(int n_heads, int head_dim);

// The rates of a layer's heads, which decrease from head to head and from layer to layer.
std::vector<float> lightning_rates(int n_heads, int layer, int n_layers);

}  // namespace penstock
