// Attention over latents (DeepSeek V2, arXiv 2405.04434). Nothing is ever expanded to keys and values of all heads: a query is projected
// to the latent, and what was attended to is projected to values.
#pragma once
#include "model/blocks/sublayer.h"
#include "model/tensors/specs.h"

namespace penstock {

namespace tensor {
// latent_a gives the latent and the rotated part, latent_b keys and values of all heads; or tensors [n_heads, kv_rank,
// plain_dim] and [n_heads, value_dim, kv_rank].
inline constexpr TensorName kQueryA{"attn_q_a", "self_attn.q_a_proj"};
inline constexpr TensorName kQueryANorm{"attn_q_a_norm", "self_attn.q_a_layernorm"};
inline constexpr TensorName kQueryB{"attn_q_b", "self_attn.q_b_proj"};
inline constexpr TensorName kLatentA{"attn_kv_a_mqa", "self_attn.kv_a_proj_with_mqa"};
inline constexpr TensorName kLatentANorm{"attn_kv_a_norm", "self_attn.kv_a_layernorm"};
inline constexpr TensorName kLatentB{"attn_kv_b", "self_attn.kv_b_proj"};
inline constexpr TensorName kLatentKeys{"attn_k_b", ""};
inline constexpr TensorName kLatentValues{"attn_v_b", ""};
}  // namespace tensor

// Attention over latents (DeepSeek V2's multi-head latent attention): the cache has one head, whose keys are a rotated part
// and a latent, of which keys and values of all heads are projections. Those of the keys are applied to the queries
// instead, those of the values to what was attended to.
struct LatentConfig {
  // Size of the latent of keys and values; 0 = ordinary attention.
  int kv_rank = 0;
  // Size of the latent that queries come from; 0 = they come from the stream.
  int query_rank = 0;
  // Dimensions of a head's keys that are rotated, the same for all heads.
  int rope_dim = 0;
  // Dimensions of a head's keys that are not rotated.
  int plain_dim = 0;
  // Dimensions of a head's values.
  int value_dim = 0;
  bool operator==(const LatentConfig&) const = default;
};

struct LatentWeights {
  LinearWeights q;          // [n_heads * (plain_dim + rope_dim), query_rank or model_dim]
  LinearWeights query;      // [query_rank, model_dim] or empty
  NormWeights query_norm;   // [query_rank]
  LinearWeights latent;     // [kv_rank, model_dim]
  NormWeights latent_norm;  // [kv_rank]
  LinearWeights rope;       // [rope_dim, model_dim]
  // One per head: of a query's plain part to the latent [kv_rank, plain_dim], and from it to values [value_dim, kv_rank].
  ByHead absorb, values;
  LinearWeights o;  // [model_dim, n_heads * value_dim]
};

void visit(TensorVisitor& v, LatentWeights& w);

class LatentAttentionBlock {
 public:
  explicit LatentAttentionBlock(Sublayer& sublayer);
  void forward(int layer, const NormedInput& h, Tensor x, const NormedInput* next);

 private:
  void project(const LatentWeights& latent, const NormedInput& h);

  Sublayer& s_;
  Tensor q_, k_;         // [n, n_heads * head_dim], [n, head_dim]: as the cache has them
  Tensor attended_;      // [n, n_heads * kv_rank]
  Tensor query_latent_;  // [n, query_rank]
  Tensor queries_;       // [n, n_heads * (plain_dim + rope_dim)]
  Tensor values_;        // [n, n_heads * value_dim]
};

}  // namespace penstock
