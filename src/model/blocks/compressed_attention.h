// Attention of DeepSeek V4: one head of keys, which are the values too, read by all heads of queries.
// A query sees the tokens of a window and, beside them, entries that each stand for `entry_ratio`
// tokens: a mean of projections of these tokens, weighted by gates. Layers with an indexer read the
// entries with the highest scores only; theirs overlap (PoolParams::overlaps), and the indexer's keys
// are made alike. The output is rotated back by the query's position, and projected in groups of heads.
#pragma once
#include "model/blocks/indexer.h"
#include "model/blocks/sublayer.h"
#include "model/tensors/specs.h"

namespace penstock {

namespace tensor {
// kEntryPlaces and kIndexEntryPlaces are whole names, as is kAttnSink.
inline constexpr TensorName kLowQuery{"attn_q_a", "attn.wq_a"};
inline constexpr TensorName kLowQueryNorm{"attn_q_a_norm", "attn.q_norm"};
inline constexpr TensorName kLowQueryUp{"attn_q_b", "attn.wq_b"};
inline constexpr TensorName kSharedKv{"attn_kv", "attn.wkv"};
inline constexpr TensorName kSharedKvNorm{"attn_kv_a_norm", "attn.kv_norm"};
inline constexpr TensorName kAttnSink{"attn_sinks.weight", "attn.attn_sink"};
inline constexpr TensorName kOutGroups{"attn_output_a", "attn.wo_a"};
inline constexpr TensorName kOutJoined{"attn_output_b", "attn.wo_b"};
inline constexpr TensorName kEntryKv{"attn_compressor_kv", "attn.compressor.wkv"};
inline constexpr TensorName kEntryGate{"attn_compressor_gate", "attn.compressor.wgate"};
inline constexpr TensorName kEntryPlaces{"attn_compressor_ape.weight", "attn.compressor.ape"};
inline constexpr TensorName kEntryNorm{"attn_compressor_norm", "attn.compressor.norm"};
inline constexpr TensorName kIndexEntryKv{"indexer_compressor_kv", "attn.indexer.compressor.wkv"};
inline constexpr TensorName kIndexEntryGate{"indexer_compressor_gate",
                                            "attn.indexer.compressor.wgate"};
inline constexpr TensorName kIndexEntryPlaces{"indexer_compressor_ape.weight",
                                              "attn.indexer.compressor.ape"};
inline constexpr TensorName kIndexEntryNorm{"indexer_compressor_norm",
                                            "attn.indexer.compressor.norm"};
inline constexpr TensorName kEntryIndexQuery{"indexer.attn_q_b", "attn.indexer.wq_b"};
inline constexpr TensorName kEntryIndexWeights{"indexer.proj", "attn.indexer.weights_proj"};
}  // namespace tensor

// Sizes of layers of this kind. LayerConfig has their windows and the tokens of their entries; the
// model's ropes are, in this order, that of layers with entries, its inverse, that of the others, and
// its inverse.
struct CompressedConfig {
  int query_rank = 0;  // of the latent of queries; 0 = the model has other attention
  int rope_dim = 0;    // last dimensions of a head, which are rotated in adjacent pairs
  // Neighbouring heads in so many groups are projected to out_rank features each, and all of these to
  // the stream.
  int n_groups = 0, out_rank = 0;
  // Its blocks are the entries: `pool` is their ratio, and top_k / pool of them are selected.
  IndexerConfig indexer;
  // Names of transformers' files, which differ in some tensors from the published ones.
  bool saved_names = false;
  bool operator==(const CompressedConfig&) const = default;
};

// What makes entries (or an indexer's keys) of tokens. Of overlapping entries both projections have two
// halves, and so have the places.
struct CompressorWeights {
  LinearWeights kv, gate;          // [width, model_dim]
  std::unique_ptr<Vector> places;  // [ratio, width]
  NormWeights norm;                // of entries
};

struct CompressedWeights {
  LinearWeights query;            // [query_rank, model_dim]
  NormWeights query_norm;         // [query_rank]
  LinearWeights q;                // [n_heads * head_dim, query_rank]
  LinearWeights kv;               // [head_dim, model_dim]
  NormWeights kv_norm;            // [head_dim]
  std::unique_ptr<Vector> sinks;  // [n_heads]
  ByHead groups;                  // n_groups matrices [out_rank, heads of a group * head_dim]
  LinearWeights o;                // [model_dim, n_groups * out_rank]
  CompressorWeights entries;      // of layers that have them, or empty
  // Of layers with an indexer, or empty: [n_heads * head_dim, query_rank], [n_heads, model_dim].
  LinearWeights index_query, index_weights;
  CompressorWeights index;
};

void visit(TensorVisitor& v, CompressedWeights& w);

// Returns the parameters by which a layer makes entries of head_dim features, without places; behind
// them in its state are those of its indexer's keys.
PoolParams entry_pool(const ModelConfig& config, int layer);
PoolParams index_entry_pool(const ModelConfig& config, int layer);
// Number of values of a layer's state: the tokens of its open entry, and those of the one before if
// entries overlap.
int64_t entry_state_values(const ModelConfig& config, int layer);

class CompressedAttentionBlock {
 public:
  explicit CompressedAttentionBlock(Sublayer& sublayer);
  void forward(int layer, const NormedInput& h, Tensor x, const NormedInput* next);

 private:
  void project(int layer, const NormedInput& h);
  void store_entries(const CompressorWeights& w, const PoolParams& pool, Tensor projected,
                     Tensor entries, int cache_layer);
  Tensor select(int layer);
  RopeParams rope_of(int index, int head_dim) const;

  Sublayer& s_;
  Tensor q_, kv_;         // [n, n_heads * head_dim], [n, head_dim]
  Tensor query_latent_;   // [n, query_rank]
  Tensor attended_;       // [n, n_heads * head_dim]
  Tensor grouped_;        // [n, n_groups * out_rank]
  Tensor entry_parts_;    // [n, 4 * head_dim]: projections of both compressor's matrices
  Tensor entries_;        // [n, head_dim]
  Tensor index_q_;        // [n, indexer.n_heads * indexer.head_dim]
  Tensor index_weights_;  // [n, indexer.n_heads]
  Tensor index_parts_;    // [n, 4 * indexer.head_dim]
  Tensor index_entries_;  // [n, indexer.head_dim]
  Tensor selected_;       // [n, SelectParams::cols()]
};

}  // namespace penstock
