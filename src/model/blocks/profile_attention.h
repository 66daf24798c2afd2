// Attention without positions, whose scores have a term for each distance: every head's query mixes
// learned profiles over distances (Inkling). Keys and values are convolved over the last tokens, and
// so is what each sub-layer gives:
//   k = norm(conv(Wk h)), v = conv(Wv h);  score(t, s) = q_t k_s / head_dim + r_t profiles[t - s],
//   r = Wr h.
// Bounded (Inkling 2): queries, keys and r are bounded in length, values are normed, outputs gated,
// each token has its sinks, and in layers without a window its own taps of convolutions.
#pragma once
#include "model/blocks/sublayer.h"
#include "model/tensors/specs.h"

namespace penstock {

namespace tensor {
inline constexpr TensorName kProfileQ{"", "attn.wq_du"};
inline constexpr TensorName kProfileK{"", "attn.wk_dv"};
inline constexpr TensorName kProfileV{"", "attn.wv_dv"};
inline constexpr TensorName kProfileMix{"", "attn.wr_du"};
inline constexpr TensorName kProfileO{"", "attn.wo_ud"};
inline constexpr TensorName kProfileGates{"", "attn.gate_attn"};
inline constexpr TensorName kProfileSinks{"", "attn.attn_sink_proj"};
inline constexpr TensorName kProfileQNorm{"", "attn.q_norm"};
inline constexpr TensorName kProfileKNorm{"", "attn.k_norm"};
inline constexpr TensorName kKeyConv{"", "attn.k_sconv"};
inline constexpr TensorName kValueConv{"", "attn.v_sconv"};
inline constexpr TensorName kAttnConv{"", "attn_sconv"};
inline constexpr TensorName kFfnConv{"", "mlp_sconv"};
inline constexpr TensorName kQueryInputNorm{"", "q_input_norm"};
inline constexpr TensorName kKeyInputNorm{"", "k_input_norm"};
inline constexpr TensorName kValueInputNorm{"", "v_input_norm"};
// Whole names.
inline constexpr TensorName kProfiles{"", "attn.rel_logits_proj.proj"};
inline constexpr TensorName kProfileQScale{"", "attn.q_l2_clip.scale"};
inline constexpr TensorName kProfileMixScale{"", "attn.rel_l2_clip.scale"};
inline constexpr TensorName kKeyTaps{"", "attn.k_sconv.weight_proj"};
inline constexpr TensorName kValueTaps{"", "attn.v_sconv.weight_proj"};
inline constexpr TensorName kKeyStaticTaps{"", "attn.k_sconv.static_w"};
inline constexpr TensorName kValueStaticTaps{"", "attn.v_sconv.static_w"};
}  // namespace tensor

struct ProfileConfig {
  int width = 0;   // profiles that a head mixes; 0 = no layer has this attention
  int extent = 0;  // distances of a profile in layers without a window; in others the window's
  int taps = 0;    // tokens of a convolution, the last included
  bool bounded = false;
  float bound = 0.0f, mix_bound = 0.0f;  // of queries and keys, of what mixes profiles
  bool operator==(const ProfileConfig&) const = default;
};

std::string_view difference(const ProfileConfig& a, const ProfileConfig& b);
// Values of a sequence's state in a layer: the last inputs of its four convolutions.
int64_t profile_state_values(const ModelConfig& config, int layer);

struct ProfileWeights {
  LinearWeights q, k, v, mix, o;
  LinearWeights profiles;                        // [distances + 1, width]; zeros last
  NormWeights q_norm, k_norm;                    // [head_dim], or empty
  std::vector<NormWeights> input_norms;          // bounded: one for all, or of q, k and v
  LinearWeights gates, sinks;                    // bounded
  std::unique_ptr<Vector> q_scale, mix_scale;    // bounded: [q_dim], [n_heads * width]
  LinearWeights key_taps, value_taps;            // [n_kv_heads * taps, model_dim] or empty
  std::unique_ptr<Vector> key_conv, value_conv;  // [taps, kv_dim]
  std::unique_ptr<Vector> attention_conv, feed_forward_conv;  // [taps, model_dim]
  std::unique_ptr<Vector> columns;                            // RelativeTerms::columns
};

// ffn_norm: LayerWeights::ffn_norm, visited here if bounded.
void visit(TensorVisitor& v, ProfileWeights& w, NormWeights& ffn_norm);

class ProfileAttentionBlock {
 public:
  explicit ProfileAttentionBlock(Sublayer& sublayer);
  // x += attention, of queries, keys and values that may read different streams.
  void forward(int layer, const NormedInput& query, const NormedInput& key,
               const NormedInput& value, Tensor x);
  // x += conv(y), behind attention or behind the feed-forward.
  void add_convolved(int layer, bool behind_attention, Tensor y, Tensor x);

 private:
  void project(int layer, const NormedInput& query, const NormedInput& key,
               const NormedInput& value);
  void convolve(int layer);
  void norm(int layer);
  ConvParams conv(int layer, const Vector* weight, int64_t offset) const;

  Sublayer& s_;
  Tensor q_, k_, v_, k_in_, v_in_;  // of the widest layer
  Tensor mix_, terms_;              // [n, n_heads * width], [n, n_heads * (distances + 1)]
  Tensor attended_, gates_, sinks_;
  Tensor key_taps_, value_taps_;
  Tensor convolved_;  // [n, model_dim]
};

}  // namespace penstock
