// Multi-head attention: x += (softmax(q k^T) v) o, where q, k and v are projections of h and k and
// v of all tokens are in the cache.
#pragma once
#include <memory>
#include <optional>

#include "model/blocks/block_index.h"
#include "model/blocks/pooled_index.h"
#include "model/tensors/specs.h"

namespace penstock {

namespace tensor {
// kSinks is a whole name.
inline constexpr TensorName kQ{"attn_q", "self_attn.q_proj"};
inline constexpr TensorName kK{"attn_k", "self_attn.k_proj"};
inline constexpr TensorName kV{"attn_v", "self_attn.v_proj"};
inline constexpr TensorName kQkv{"attn_qkv", "self_attn.qkv_proj"};
// Gates (kGates), queries, keys and values.
inline constexpr TensorName kGatedQkv{"", ""};
inline constexpr TensorName kO{"attn_output", "self_attn.o_proj"};
inline constexpr TensorName kGates{"attn_gate", "self_attn.g_proj"};
inline constexpr TensorName kQNorm{"attn_q_norm", "self_attn.q_norm"};
inline constexpr TensorName kKNorm{"attn_k_norm", "self_attn.k_norm"};
inline constexpr TensorName kAttnSubNorm{"attn_sub_norm", "self_attn.attn_sub_norm"};
inline constexpr TensorName kSinks{"attn_sinks.weight", "self_attn.sinks"};
// Outside of layers: the table or the embeddings of RelativeConfig, and their norm.
inline constexpr TensorName kRelative{"", ""};
inline constexpr TensorName kRelativeNorm{"", ""};
}  // namespace tensor

enum class QkNorm : uint8_t {
  kNone,
  kHead,   // over head_dim values of each head; all heads share the weights
  kHeads,  // over head_dim values of each head; each head has its own weights
  kRow,    // over all heads of a token together
  kPlain,  // over head_dim values of each head, without weights, in layers with rotation (Llama 4)
  kBare,   // the same in every layer (Muse Glimmer)
};

// Terms of scores by the distance from a query's token to a key's (RelativeTerms of ops.h).
struct RelativeConfig {
  // [2 * reach + 1] column of each distance (the key's position less the query's) from -reach to
  // reach, 0 to n_columns - 1; empty: there are no terms
  std::vector<int> columns;
  int n_columns = 0;
  // Terms are products of queries with the projections of keys of each column's embedding, and of
  // keys with those of queries (DeBERTa). Both false: a number for every head and column (MPNet).
  bool by_query = false, by_key = false;
  bool norm = false;  // of these embeddings
  bool has_embeddings() const { return by_query || by_key; }
  bool operator==(const RelativeConfig&) const = default;
};

struct AttentionConfig {
  QkNorm qk_norm = QkNorm::kNone;
  // Queries and keys are rotated before their norms; false: after them.
  bool rope_before_norm = false;
  // The values of every head are divided by their root mean square.
  bool value_norm = false;
  // Division of each head's output by its root mean square, before gates (Muse Spark).
  bool attended_norm = false;
  // Queries, keys and values are clamped to +- clip before rotation and caching; 0 = no bound.
  float clip = 0.0f;

  // Layout of a fused projection in this file. True: for each KV head its queries, key and value.
  // False: all queries, all keys, all values.
  bool qkv_by_group = false;
  // Directories have a head of every group in turn: query h attends to KV head h % n_kv_heads (PLaMo).
  bool heads_in_turn = false;
  // Number of shards of a fused projection, each of which has its queries, values and keys in this
  // order; 0: the projection has no shards.
  int qkv_shards = 0;

  // Features of a head's value, at most head_dim; 0: as many as a key has.
  int value_dim = 0;

  // Output gates: the sigmoid of a projection fused with the query's multiplies the attended
  // values.
  bool gated = false;
  // Output gates with one number for each head, by a projection of their own.
  bool head_gates = false;
  // Output gates with one number for each value of each head, by a projection of their own.
  bool value_gates = false;
  bool joins_gates = false;  // files have these gates, queries, keys and values as one matrix
  // Activation of head_gates and value_gates: sigmoid, or softplus (Laguna).
  Activation gate = Activation::kSigmoid;

  // Factor of the scores q k. It is always set after reading, usually to head_dim^-1/2.
  float scale = 0.0f;
  // Factor of queries that grows with their position, in layers with LayerConfig::query_scale.
  PositionScale query_scale;
  // Factors of queries that grow with their position, learned for each head, in all layers
  // (Ops::scale_heads_by_position, blocks of latent attention).
  bool learned_query_scale = false;
  // Soft bound of scores, softcap * tanh(score / softcap); 0 = no bound.
  float softcap = 0.0f;
  // Attention sinks: a score for each head that takes part in the softmax and has no value
  // (gpt-oss). LayerConfig::has_sinks says which layers have them.
  bool sinks = false;
  // Factors of the input of the q, k and v projections (in layers that also have a mixer), of the
  // block's output, and of keys (Falcon-H1).
  float in_factor = 1.0f;
  float out_factor = 1.0f;
  float key_factor = 1.0f;
  // ALiBi: the slopes of the heads go down to 2^-alibi_max_bias; 0 = no ALiBi.
  float alibi_max_bias = 0.0f;
  // ALiBi's biases are multiplied by `scale`, as scores are (Falcon).
  bool alibi_scaled = false;
  RelativeConfig relative;
  // Differences of two attentions (DifferentialAttention); heads have twice a key's features.
  bool differential = false;
  // Causal mask: a token attends to itself and to earlier tokens. False: it attends to all tokens
  // of its sequence, which must be one step.
  bool causal = true;
  // Indexer of layers that select (LayerConfig::selecting_layer), over blocks of tokens: a BlockIndex
  // with IndexerConfig::block, otherwise a PooledIndex.
  IndexerConfig indexer;
};

std::string_view difference(const AttentionConfig& a, const AttentionConfig& b);

// Returns the order of rows for qkv_by_group and qkv_shards: row r of q, k and v concatenated is
// row rows_by_group()[r] of the fused projection.
std::vector<int> rows_by_group(const ModelConfig& config);

struct AttentionWeights {
  // q: with output gates, each head's query is followed by its gate
  LinearWeights q, k, v, o;
  NormWeights q_norm, k_norm, sub_norm;
  std::unique_ptr<Vector> sinks;  // [n_heads] or null
  LinearWeights gates;            // [n_gates_of(), model_dim] or empty
  // [n_heads], [n_columns, head_dim] each, or empty: what queries and keys are multiplied with to
  // make their terms of scores, with AttentionConfig::scale. Made when the layer is loaded.
  std::vector<std::unique_ptr<Weight>> query_terms, key_terms;
  // Of layers that select, one of them.
  PooledIndexWeights index;
  BlockIndexWeights block_index;
};

void visit(TensorVisitor& v, AttentionWeights& w);

class AttentionBlock {
 public:
  explicit AttentionBlock(Sublayer& sublayer);
  void forward(int layer, const NormedInput& h, Tensor x, const NormedInput* next);

 private:
  // Views of one layer's queries, keys and values in the scratch memory that all layers share.
  struct Heads {
    // k and v are empty if the layer attends to those of an earlier layer
    Tensor q, k, v;
  };
  Heads project_heads(int layer, const NormedInput& h);
  void norm_heads(int layer, const Heads& heads);
  const RopeParams* prepare_heads(int layer, const Heads& heads);
  void store(int layer, const Heads& heads, const RopeParams* rope);
  Tensor select(int layer, const NormedInput& h);
  Tensor half_heads(Tensor x, int half) const;
  RelativeTerms relative_terms(int layer, const Heads& heads) const;

  Sublayer& s_;
  Tensor q_, k_, v_;                // of the widest layer
  Tensor attended_;                 // [n, attended_dim]
  Tensor gated_q_;                  // for every head its query, then its gate
  Tensor gates_;                    // [n, n_heads] or [n, attended_dim]
  Tensor query_terms_, key_terms_;  // [n, n_heads * n_columns] or empty
  std::optional<PooledIndex> index_;
  std::optional<BlockIndex> block_index_;
};

}  // namespace penstock
