// All weights of a decoder, checked and packed for one backend, and the names they have in files.
#pragma once
#include <algorithm>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "formats/weight_source.h"
#include "model/config.h"
#include "model/cuts.h"
#include "model/model.h"
#include "model/sources/expert_file.h"
#include "model/sources/packed_cache.h"
#include "ops/ops.h"

namespace penstock {

struct NormWeights {
  std::unique_ptr<Vector> weight, bias;  // null = this model has no such norm / no bias
  explicit operator bool() const { return weight != nullptr; }
};

struct LinearWeights {
  std::unique_ptr<Weight> weight;          // [out, in]
  std::unique_ptr<Vector> bias;            // [out] or null
  const AdapterTerms* adapters = nullptr;  // of its LinearSite
  // A rank's share of the inputs (ModelCuts): the product is a share of the sum, and where blocks reach over the cut, the weight
  // has `lead` inputs before the rank's own, and perhaps some behind, which must be zeros.
  bool partial = false;
  int lead = 0;

  LinearTarget into(Tensor out) const { return {weight.get(), bias.get(), out, adapters, partial}; }
};

struct ExpertWeights {
  std::vector<std::unique_ptr<Weight>> weights;  // [n_experts]
  std::vector<std::unique_ptr<Vector>> biases;   // [n_experts] or empty
  bool partial = false;                          // as LinearWeights
  int lead = 0;
  std::span<const AdapterTerms> adapters;  // [n_experts], of their LinearSite, or empty
  bool mapped = false;                     // they lie in a mapped file (PackedWeights::maps_experts)
};

// Of attention over latents (LatentConfig); queries are LayerWeights::q.
struct LatentWeights {
  LinearWeights query;      // [query_rank, model_dim] or empty
  NormWeights query_norm;   // [query_rank]
  LinearWeights latent;     // [kv_rank, model_dim]
  NormWeights latent_norm;  // [kv_rank]
  LinearWeights rope;       // [rope_dim, model_dim]
  // One per head: of a query's plain part to the latent [kv_rank, plain_dim], and from it to values [value_dim, kv_rank].
  std::vector<std::unique_ptr<Weight>> absorb, values;
};

// Of a gated short convolution.
struct ShortConvWeights {
  LinearWeights in;  // [3 * model_dim, model_dim]: a gate before, one behind, and what is convolved;
  LinearWeights before, behind, values;  // or each by itself (of a rank's channels)
  std::unique_ptr<Vector> weight, bias;  // [taps, model_dim]; [model_dim] or null
  LinearWeights out;                     // [model_dim, model_dim]
};

// Of a gated delta network or a scan of Mamba 2 (DeltaConfig), which has no b, and x, B and C in the place of q, k and v.
struct DeltaNetWeights {
  LinearWeights qkv;         // [channels, model_dim]: queries, keys and values of all heads
  LinearWeights q, k, v;     // or each by itself (decays by key, a rank's heads)
  LinearWeights a_in, z_in;  // [key_dim, model_dim]: what a and z read instead of the stream, or empty
  LinearWeights z;           // [values, model_dim]: gates of what comes out
  LinearWeights a,
      b;  // [decays, model_dim], [n_value_heads, model_dim]: how fast is forgotten, how much learned
  std::unique_ptr<Vector> conv;        // [taps, channels]
  std::unique_ptr<Vector> conv_bias;   // [channels] or null
  std::unique_ptr<Vector> rate, bias;  // [n_value_heads]; [decays]
  std::unique_ptr<Vector> norm;        // [value_dim]; of scans [values], in groups
  std::unique_ptr<Vector> skip;        // [n_value_heads], of scans
  LinearWeights out;                   // [model_dim, values]
};

// Of experts beside a dense feed-forward (ModelConfig::experts_beside_dense).
struct BesideWeights {
  NormWeights router_norm, expert_norm;           // of the stream, [model_dim]
  NormWeights dense_post_norm, expert_post_norm;  // [model_dim]
  std::unique_ptr<Vector> expert_scale;           // [n_experts]
};

// x += post(projection(act(gate x) * input)), where the input is the layer's part of the token's (PerLayerFrame).
struct PerLayerWeights {
  LinearWeights gate;        // [per_layer_dim, model_dim]
  LinearWeights projection;  // [model_dim, per_layer_dim]
  NormWeights post_norm;     // [model_dim]
};

// The inputs of all layers: table[token] and norm(projection x), where x is the first layer's input.
struct PerLayerFrame {
  std::unique_ptr<Weight> table;  // [vocab_size, n_layers * per_layer_dim]
  LinearWeights projection;       // [n_layers * per_layer_dim, model_dim]
  NormWeights norm;               // [per_layer_dim], of every layer's part
};

// Of a layer over several streams (AltUpConfig).
struct AltUpWeights {
  NormWeights router_norm;  // [model_dim]
  LinearWeights router;     // [n_streams, model_dim]
  LinearWeights predict;    // [n_streams^2, n_streams]: row q * n_streams + p for p's share of q
  LinearWeights correct;    // [n_streams, n_streams], with biases of one
  std::unique_ptr<Vector> correct_scale;  // [model_dim] or null
  LinearWeights laurel_in, laurel_out;    // [laurel_rank, model_dim] and back
  NormWeights laurel_norm;                // [model_dim]
};

struct LayerWeights {
  NormWeights attn_norm, q_norm, k_norm, attn_sub_norm, attn_post_norm;
  LinearWeights q, k, v, o;  // q with a gate behind every head's query where there are gates
  LatentWeights latent;
  ShortConvWeights conv;
  DeltaNetWeights delta;
  std::unique_ptr<Vector> sinks;  // [n_heads] or null
  LinearWeights gates;            // [n_gates_of(), model_dim] or empty
  NormWeights ffn_norm, ffn_sub_norm, ffn_post_norm;
  LinearWeights gate, up, down;  // dense layers; gate may be empty
  ActivationFunction activation;
  LinearWeights router;                               // mixtures
  std::unique_ptr<Vector> selection_bias;             // [n_experts] or null
  LinearWeights experts_in, experts_out;              // [expert_latent_dim, model_dim] and back, or empty
  ExpertWeights expert_gate, expert_up, expert_down;  // gates may be empty
  LinearWeights shared_gate, shared_up, shared_down,
      shared_router;  // of the shared experts, or empty; so may gates be
  BesideWeights beside;
  PerLayerWeights per_layer;
  AltUpWeights altup;
  float output_scale = 1.0f;  // multiplies the stream behind the layer
};

// Which matrix of every expert a LinearSite is.
enum class ExpertProjection : uint8_t { kNone, kGate, kUp, kDown };

// Rows of a file's matrix that make a linear layer, to which adapters may add; or one matrix of every expert of a layer, each by
// itself.
struct LinearSite {
  std::string name;  // of the matrix, with ".weight"; of experts what the layer's names begin with
  ExpertProjection projection = ExpertProjection::kNone;
  int n_experts = 0;
  int matrix_rows = 0;    // of the whole matrix
  std::vector<int> rows;  // row r of the layer is the matrix' row rows[r]; empty: first_row + r
  int first_row = 0, n_rows = 0, cols = 0;
  int first_col = 0,
      n_cols = 0;     // of the matrix' columns, those that the layer's weight has; all of them, or a rank's
  bool wide = false;  // its weights have 32 bits
  std::unique_ptr<AdapterTerms[]> terms;  // one, or [n_experts]
  std::span<AdapterTerms> all_terms() const {
    return {terms.get(), static_cast<size_t>(std::max(n_experts, 1))};
  }
};

struct ModelWeights {
  // [vocab_size, model_dim], or of several ranks (ModelCuts) a share of the rows, first_token and what follows; so has lm_head.
  std::unique_ptr<Weight> embedding;
  bool shares_vocabulary = false;
  int first_token = 0;
  int padding = 0;                      // most inputs that any LinearWeights have beside their own (lead)
  std::unique_ptr<Weight> positions;    // [first_position + max_seq_len, model_dim] or null
  std::unique_ptr<Weight> token_types;  // [n_token_types, model_dim] or null
  NormWeights embedding_norm;
  PerLayerFrame per_layer;
  std::vector<std::unique_ptr<Weight>> streams_in, streams_out;  // [n_streams - 1], [model_dim, model_dim]
  std::vector<LayerWeights> layers;
  NormWeights final_norm;
  std::unique_ptr<Weight> lm_head;                        // [vocab_size, model_dim]; null = the embedding
  std::unique_ptr<Vector> output_bias;                    // [vocab_size] or null
  std::unique_ptr<Vector> alibi_slopes;                   // [n_heads] or null
  std::vector<std::unique_ptr<Vector>> rope_frequencies;  // [n_ropes], [rotary_dim / 2] each
  std::vector<RopeParams> ropes;                          // views of rope_frequencies
  std::vector<LinearSite> sites;                          // of all linear layers
  Shard::Range own_layers = {0, 0};  // of a stage of a pipeline: the others are empty; {0, 0}: all are there

  const Weight& output() const { return lm_head ? *lm_head : *embedding; }
  Shard::Range layers_of(const ModelConfig& config) const {
    return own_layers.count > 0 ? own_layers : Shard::Range{0, config.n_layers};
  }
};

// A layer that predicts a token further (next_token_layer.h).
struct NextTokenWeights {
  LinearWeights projection;                // [model_dim, 2 * model_dim], of an embedding and a state
  NormWeights embedding_norm, state_norm;  // [model_dim]
  ModelWeights decoder;  // of one layer; embedding and lm_head are null where they are the target's
};

// EAGLE-3's layer (eagle_layer.h): as above, but the projection is of streams, queries, keys and values [.., 2 * model_dim], and
// the lm_head [draft_vocab, model_dim].
struct EagleWeights : NextTokenWeights {};

// Tensor names without ".weight" / ".bias"; "" = this naming has no such tensor. Layer names follow `layer`,
// in which {} is the layer's index; names of experts have {} for the expert, or none when all experts are one
// tensor, and those of norms by head have {} for the head, or none.
struct NameTable {
  std::string_view embedding, embedding_norm, positions, token_types, final_norm, lm_head, layer;
  std::string_view attn_norm, q, k, v, qkv, o, gates, q_norm, k_norm, attn_sub_norm, attn_post_norm;
  // Attention over latents: latent_a gives the latent and the rotated part, latent_b keys and values of all heads; or
  // tensors [n_heads, kv_rank, plain_dim] and [n_heads, value_dim, kv_rank].
  std::string_view query_a, query_a_norm, query_b, latent_a, latent_a_norm, latent_b, latent_keys,
      latent_values;
  std::string_view conv_in, conv, conv_out;  // gated short convolutions
  // Gated delta networks: projections apart or fused by key head (qkvz_rows()); delta_rate and delta_bias are whole names.
  // With decays by key, queries, keys and values are q, k and v, of each a convolution delta_conv with {} for "q", "k" or "v".
  std::string_view delta_qkvz, delta_ba, delta_qkv, delta_z, delta_a, delta_b, delta_conv, delta_rate,
      delta_bias, delta_norm, delta_out;
  std::string_view delta_a_in, delta_z_in;
  // Mamba 2: one projection of z, x, B, C and the time steps; ssm_rate, ssm_skip and ssm_bias are whole names.
  std::string_view ssm_in, ssm_conv, ssm_rate, ssm_skip, ssm_bias, ssm_norm, ssm_out;
  bool key_heads_in_turn = false;  // value heads lie so that DeltaConfig::key_heads_in_turn
  bool bare_ffn_norm = false;      // ffn_norm has no ".weight"
  std::string_view ffn_norm, gate, up, gate_up, down, ffn_sub_norm, ffn_post_norm;
  bool up_before_gate = false;  // in gate_up
  std::string_view other_gate, other_up,
      other_down;  // of gate, up and down in some files; see choose_names()
  std::string_view router, experts_in, experts_out, expert_gate, expert_up, expert_down;
  std::string_view shared_gate, shared_up, shared_gate_up, shared_down, shared_router;
  // Fused experts [n_experts, 2 * ffn, dim], whole; then expert_down is whole too, but not in GGUF, where the fused tensor may
  // be missing for two. Transposed: [n_experts, in, out];
  // interleaved: gate and up in turn, not one after the other.
  std::string_view expert_gate_up;
  // Where a file may also have one tensor for each: what stands for expert_down then; see choose_names().
  std::string_view fused_expert_down;
  bool experts_transposed = false, experts_interleaved = false;
  bool fused_expert_biases = false;  // named as the matrices, with _bias behind
  // Norms of experts beside a dense feed-forward; whole names of vectors: what the router's norm has for weights (times the
  // root of model_dim), and of the experts' weights.
  std::string_view expert_norm, dense_post_norm, expert_post_norm, router_scale, expert_scale;
  // Features beside the stream, and the whole name of what multiplies it behind a layer.
  std::string_view per_layer_table, per_layer_frame, per_layer_frame_norm;
  std::string_view per_layer_gate, per_layer_projection, per_layer_post_norm, output_scale;
  // Several streams: those of frames have {} for the stream, or none when all are one tensor; altup_scale is a whole name.
  std::string_view altup_router, altup_router_norm, altup_predict, altup_correct, altup_scale;
  // What names of the layer that predicts a token further begin with, where it is not simply behind the last.
  std::string_view next_token;
  std::string_view laurel_in, laurel_out, laurel_norm, streams_in, streams_out;
  // Whole names of vectors: the scores' bias of the router, attention sinks; and what xIELU's parameters begin with.
  std::string_view selection_bias, sinks, activation;
  std::vector<std::string_view> prefixes = {
      ""};                  // of all names but lm_head; the first that fits the file is used
  bool transposed = false;  // matrices are stored [in, out] (Conv1D)
};

// Weights that are not packed but come from an earlier start's file, or else a list of those that are packed, by
// the names that they have in such a file.
struct PackedWeights {
  std::shared_ptr<const PackedFile> from;  // null: the weights are packed
  std::vector<NamedWeight> made;
  bool maps_experts = false;  // experts' weights lie in a mapped file: in `from`, or are moved to
  ExpertFile* experts = nullptr;
};

// Checks every tensor's shape before use; a tensor that nothing uses is an error too, for the model would be
// another. With packed->from, its error kCorruptFile may also mean that file. shard: of the whole model's config what one of
// several ranks has (ModelCuts).
Result<std::unique_ptr<ModelWeights>> load_weights(const WeightSource& source, const ModelConfig& config,
                                                   Ops& ops, const Model::Progress& progress, int max_seq_len,
                                                   PackedWeights* packed = nullptr,
                                                   const ShardOptions& shard = {});

// Of all matrices, as the backend holds them.
int64_t packed_bytes(const ModelConfig& config, const ModelWeights& weights);

// The same piece by piece, for whoever holds one layer at a time: everything outside the layers (`layers` is
// n_layers empty ones), and one layer. Unused tensors are no error.
Result<std::unique_ptr<ModelWeights>> load_frame(const WeightSource& source, const ModelConfig& config,
                                                 Ops& ops, int max_seq_len = 0,
                                                 const ShardOptions& shard = {});
Result<LayerWeights> load_layer(const WeightSource& source, const ModelConfig& config, Ops& ops, int layer,
                                const ShardOptions& shard = {});

}  // namespace penstock
