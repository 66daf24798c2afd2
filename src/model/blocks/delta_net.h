// Gated delta networks (Qwen3-Next): x += out(norm(delta rule of silu(conv(q, k, v))) * silu(z)).
// q, k, v, z, a decay and a write strength for each value head are projections of h. Kimi Delta
// Attention (arXiv 2510.26692) has a decay for each key dimension, and sigmoid(z).
#pragma once
#include "model/blocks/mixer.h"

namespace penstock {

namespace tensor {
// Projections are separate or fused by key head. kDeltaRate and kDeltaBias are whole names. With
// decays by key, queries, keys and values have the names of attention, and each has a convolution
// named kDeltaConv with "q", "k" or "v" for {}.
inline constexpr TensorName kDeltaQkvz{"ssm_in", "linear_attn.in_proj_qkvz"};
inline constexpr TensorName kDeltaBa{"ssm_ba", "linear_attn.in_proj_ba"};
inline constexpr TensorName kDeltaQkv{"attn_qkv", "linear_attn.in_proj_qkv"};
inline constexpr TensorName kDeltaZ{"attn_gate", "linear_attn.in_proj_z"};
inline constexpr TensorName kDeltaA{"ssm_alpha", "linear_attn.in_proj_a"};
inline constexpr TensorName kDeltaB{"ssm_beta", "linear_attn.in_proj_b"};
inline constexpr TensorName kDeltaConv{"ssm_conv1d", "linear_attn.conv1d"};
inline constexpr TensorName kDeltaRate{"ssm_a", "linear_attn.A_log"};
inline constexpr TensorName kDeltaBias{"ssm_dt.bias", "linear_attn.dt_bias"};
inline constexpr TensorName kDeltaNorm{"ssm_norm", "linear_attn.norm"};
inline constexpr TensorName kDeltaOut{"ssm_out", "linear_attn.out_proj"};
// With DeltaConfig::separate.
inline constexpr TensorName kDeltaQ{"attn_q", "linear_attn.q_proj"};
inline constexpr TensorName kDeltaK{"attn_k", "linear_attn.k_proj"};
inline constexpr TensorName kDeltaV{"attn_v", "linear_attn.v_proj"};
inline constexpr TensorName kDeltaAIn{"", ""};
inline constexpr TensorName kDeltaZIn{"", ""};
}  // namespace tensor

struct DeltaConfig {
  // Number of key heads, which is also that of query heads.
  int n_key_heads = 1;
  // Number of value heads, a multiple of n_key_heads.
  int n_value_heads = 1;
  // Dimensions of a key and of a value head: rows and columns of a head's state.
  int key_dim = 1;
  int value_dim = 1;
  // Tokens that the convolution of queries, keys and values reads, the current one included.
  int taps = 1;
  // Value head h uses key head h % n_key_heads (GGUF files of Qwen3.5); false: neighbouring value
  // heads share a key head.
  bool key_heads_in_turn = false;
  // Kimi Delta Attention: a decay for each row of a head's state, and sigmoid gates, both projected
  // through key_dim dimensions; queries, keys and values have separate tensors.
  bool decay_by_key = false;
  // With decays by key: decays and gates are projected from the stream directly (Ling 3).
  bool full_rank = false;
  // GGUF files store rates of decay as positive numbers (Ling 3).
  bool positive_rates = false;
  // Queries, keys and values have tensors and convolutions of their own, as with decays by key
  // (OLMo Hybrid).
  bool separate = false;
  // Queries, keys, values, z, b and a are rows of one projection, kDeltaQkvz, in this order (Lara).
  bool one_projection = false;
  // Factor of write strengths, which are sigmoids.
  float write_factor = 1.0f;
  // Added to the mean square in the norm of the output; 0: NormConfig::eps.
  float norm_eps = 0.0f;
  // Lower bound of the logarithm of decays (GLM-5.3): DeltaParams::lowest_log_decay.
  float lowest_log_decay = 0.0f;
  // Output gates are sigmoids, not silu; they always are with decay_by_key.
  bool sigmoid_gate = false;

  int keys() const { return n_key_heads * key_dim; }
  int decays() const { return n_value_heads * (decay_by_key ? key_dim : 1); }
  int values() const { return n_value_heads * value_dim; }
  int channels() const { return 2 * keys() + values(); }  // of the convolution
};

std::shared_ptr<const Mixer> delta_net(const DeltaConfig& config);
// Returns the configuration of the first layer with a delta network; null if no layer has one.
const DeltaConfig* delta_config(const ModelConfig& config);

}  // namespace penstock
