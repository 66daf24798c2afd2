// Multi-head latent attention (DeepSeek V2, arXiv 2405.04434) in its absorbed form: keys and values
// are never expanded to all heads. A query is projected to the latent instead, and the attended
// latent is projected to values. Sparse (DeepSeek V3.2, GLM-5): an indexer scores the tokens that a
// query sees, and attention reads the ones with the highest scores only.
#pragma once
#include <functional>

#include "model/blocks/indexer.h"
#include "model/blocks/sublayer.h"
#include "model/tensors/specs.h"

namespace penstock {

namespace tensor {
// kLatentA projects to the latent and the rotated part, kLatentB to keys and values of all heads;
// some files have tensors kLatentKeys [n_heads, kv_rank, plain_dim] and kLatentValues [n_heads,
// value_dim, kv_rank] instead of kLatentB.
inline constexpr TensorName kQueryA{"attn_q_a", "self_attn.q_a_proj"};
inline constexpr TensorName kQueryANorm{"attn_q_a_norm", "self_attn.q_a_layernorm"};
inline constexpr TensorName kQueryB{"attn_q_b", "self_attn.q_b_proj"};
inline constexpr TensorName kLatentA{"attn_kv_a_mqa", "self_attn.kv_a_proj_with_mqa"};
inline constexpr TensorName kLatentANorm{"attn_kv_a_norm", "self_attn.kv_a_layernorm"};
inline constexpr TensorName kLatentRopeNorm{"attn_k_norm", "self_attn.k_rope_only_layernorm"};
inline constexpr TensorName kLatentB{"attn_kv_b", "self_attn.kv_b_proj"};
inline constexpr TensorName kLatentKeys{"attn_k_b", ""};
inline constexpr TensorName kLatentValues{"attn_v_b", ""};
inline constexpr TensorName kIndexQuery{"indexer.attn_q_b", "self_attn.indexer.wq_b"};
inline constexpr TensorName kIndexKey{"indexer.attn_k", "self_attn.indexer.wk"};
inline constexpr TensorName kIndexWeights{"indexer.proj", "self_attn.indexer.weights_proj"};
// whole names
inline constexpr TensorName kIndexGate{"", "self_attn.indexer.index_kpool_compress_gate"};
inline constexpr TensorName kIndexPlaces{"", "self_attn.indexer.index_kpool_compress_ape"};
inline constexpr TensorName kQuerySlopes{"", "self_attn.softmax_scaling.scale"};
inline constexpr TensorName kQueryBiases{"", "self_attn.softmax_scaling.bias"};
inline constexpr TensorName kIndexSlopes{"", "self_attn.indexer.softmax_scaling.scale"};
inline constexpr TensorName kIndexBiases{"", "self_attn.indexer.softmax_scaling.bias"};
inline constexpr TensorName kIndexInNorm{"", "self_attn.indexer.q_input_norm.weight"};
inline constexpr TensorName kIndexInNormBias{"", "self_attn.indexer.q_input_norm.bias"};
inline constexpr TensorName kIndexKeyNorm{"indexer.k_norm.weight",
                                          "self_attn.indexer.k_norm.weight"};
inline constexpr TensorName kIndexKeyNormBias{"indexer.k_norm.bias",
                                              "self_attn.indexer.k_norm.bias"};
}  // namespace tensor

// Sizes of latent attention. The cache has one head, whose keys are a rotated part and the latent,
// from which keys and values of all heads are projected. The key projection is applied to queries,
// the value projection to the attended latent.
struct LatentConfig {
  // Size of the latent of keys and values; 0 = ordinary attention.
  int kv_rank = 0;
  // Size of the latent from which queries are projected; 0 = they are projected from the stream.
  int query_rank = 0;
  // Rotated dimensions of a key, shared by all heads; 0 = none.
  int rope_dim = 0;
  // Dimensions of a head's key that are not rotated.
  int plain_dim = 0;
  // Dimensions of a head's value.
  int value_dim = 0;
  // Of the latents' norms, independent of the other norms.
  float norm_eps = 1e-6f;
  // Factors of the normed latents of queries, and of keys and values.
  float query_factor = 1.0f, latent_factor = 1.0f;
  // The rotated part of keys is normed too, before its rotation.
  bool norms_rotated = false;
  // Queries are projected from the normed latent and the raw one behind it; each head's query is
  // followed by its gates (AttentionConfig::value_gates; A.X K2).
  bool gates_of_latent = false;
  IndexerConfig indexer;
  bool operator==(const LatentConfig&) const = default;
};

// Factors of heads' queries that grow with the position (Ops::scale_heads_by_position); [n_heads].
struct HeadScales {
  std::unique_ptr<Vector> slopes, biases;
};

// Weights of an indexer. Scores are compared only, so factors that all of them have are left out.
struct IndexerWeights {
  LinearWeights query;    // [n_heads * head_dim, query_rank or, from_input, model_dim]
  LinearWeights key;      // [head_dim, model_dim]
  NormWeights key_norm;   // [head_dim], a layer norm with bias
  LinearWeights weights;  // [n_heads, model_dim]: weights of the heads' scores
  // With IndexerConfig::gated: [head_dim, model_dim] and [pool, head_dim], of which PoolParams make
  // the weights of a block's tokens.
  LinearWeights gate;
  std::unique_ptr<Vector> places;
  // With IndexerConfig::from_input: a layer norm with bias [model_dim], and scales of queries.
  NormWeights in_norm;
  HeadScales scales;
};

struct LatentWeights {
  // [n_heads * (plain_dim + rope_dim), query_rank, 2 * query_rank or model_dim]
  LinearWeights q;
  LinearWeights query;     // [query_rank, model_dim] or empty
  NormWeights query_norm;  // [query_rank]
  HeadScales scales;       // with AttentionConfig::learned_query_scale
  // Of layers that do not attend to latents of an earlier one (LayerConfig::kv_layer).
  LinearWeights latent;     // [kv_rank, model_dim]
  NormWeights latent_norm;  // [kv_rank]
  LinearWeights rope;       // [rope_dim, model_dim] or empty
  NormWeights rope_norm;    // [rope_dim], with LatentConfig::norms_rotated
  // One matrix per head: absorb [kv_rank, plain_dim] projects the plain part of a query to the
  // latent, values [value_dim, kv_rank] the attended latent to values.
  ByHead absorb, values;
  LinearWeights o;  // [model_dim, n_heads * value_dim]
  // With AttentionConfig::head_gates [n_heads, model_dim], with value_gates [n_heads * value_dim,
  // model_dim or, with LatentConfig::gates_of_latent, 2 * query_rank], or empty.
  LinearWeights gates;
  std::unique_ptr<Vector> sinks;  // [n_heads], with AttentionConfig::sinks
  IndexerWeights indexer;
};

void visit(TensorVisitor& v, LatentWeights& w);

class LatentAttentionBlock {
 public:
  explicit LatentAttentionBlock(Sublayer& sublayer);
  void forward(int layer, const NormedInput& h, Tensor x, const NormedInput* next);

 private:
  void project(int layer, const NormedInput& h);
  void project_index_queries(int layer, const NormedInput& h);
  void project_queries(int layer, Tensor queries);
  void select(int layer);
  void store(int layer);
  int widest(const std::function<int(int layer, const LatentConfig&)>& size) const;
  Tensor selection_of(int layer) const;
  bool has_indexer(int layer) const;

  Sublayer& s_;
  // All of the widest layer. [n, n_heads * head_dim], [n, head_dim]: in the layout of the cache
  Tensor q_, k_;
  Tensor attended_;      // [n, n_heads * kv_rank]
  Tensor query_latent_;  // [n, query_rank], or 2 * query_rank: normed, then raw
  Tensor queries_;       // [n, n_heads * (plain_dim + rope_dim)]
  Tensor values_;        // [n, n_heads * value_dim]
  Tensor gates_;         // [n, n_heads] or [n, n_heads * value_dim]
  // Of the indexer: [n, n_heads * head_dim], [n, head_dim], [n, n_heads] and, from Ops::select(),
  // [n, SelectParams::most()].
  Tensor index_q_, index_k_, index_weights_, selected_;
  Tensor token_keys_, index_gates_;  // [n, head_dim]: of tokens that share a key
  Tensor index_in_;                  // [n, model_dim]: with IndexerConfig::from_input
  int selecting_layer_ = -1;         // whose selection that is; -1 = of none
};

}  // namespace penstock
