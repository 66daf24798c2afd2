// Configuration of a decoder, independent of the file format that it was read from.
#pragma once
#include <algorithm>
#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "formats/weight_source.h"
#include "model/blocks/alt_up.h"
#include "model/blocks/attention.h"
#include "model/blocks/block_residuals.h"
#include "model/blocks/compressed_attention.h"
#include "model/blocks/convolved_attention.h"
#include "model/blocks/embedding.h"
#include "model/blocks/experts.h"
#include "model/blocks/gated_streams.h"
#include "model/blocks/latent_attention.h"
#include "model/blocks/mixed_streams.h"
#include "model/blocks/mixer.h"
#include "model/blocks/ngram_rows.h"
#include "model/blocks/per_layer.h"
#include "model/blocks/profile_attention.h"
#include "model/blocks/shared_block.h"
#include "model/blocks/sphere.h"
#include "ops/cache_spec.h"
#include "ops/ops.h"
#include "penstock/types.h"

namespace penstock {

enum class RopeScaling : uint8_t { kNone, kLinear, kLlama3, kYarn, kLongRope, kProportional };

struct RopeConfig {
  // leading dimensions of a head that are rotated; even
  int rotary_dim = 0;
  float theta = 10000.0f;
  RopeScaling scaling = RopeScaling::kNone;
  // ratio of the extended context to the original one
  float factor = 1.0f;
  int original_max_seq_len = 0;                           // llama3, yarn, longrope
  float low_freq_factor = 1.0f, high_freq_factor = 4.0f;  // llama3
  float beta_fast = 32.0f, beta_slow = 1.0f;              // yarn
  // yarn: the correction range is rounded to whole dimensions
  bool truncate = true;
  // multiplies cos and sin; 0 = the rule of the scaling
  float attention_factor = 0.0f;
  // yarn: both set: they define the attention factor
  float mscale = 0.0f, mscale_all_dim = 0.0f;
  // longrope: [rotary_dim / 2]; GGUF has them as tensors
  std::vector<float> short_factors, long_factors;
  bool backwards = false;  // rotates by the negative angle
  bool learned = false;    // the frequencies are multiplied by exp of a tensor's numbers
  // proportional: the number of leading pairs of rotary_dim that are rotated
  int n_turning = 0;
  // Axis of positions by which each pair turns: 0 time, 1 rows, 2 columns (M-RoPE). [rotary_dim / 2];
  // empty: the rotation knows no axes.
  std::vector<uint8_t> axes;
  // the tensor of factors in a GGUF file, if any, applies to this one
  bool tensor_factors = true;
};

inline constexpr float kNoCutoff = -std::numeric_limits<float>::infinity();

struct LayerConfig {
  bool attention = true;
  // The layer has a feed-forward, or experts. In models whose layers may lack either (deci_forward).
  bool feed_forward = true;
  // Mixer that replaces attention, or that is computed beside it; null: none. Layers with equal
  // mixers share one object.
  std::shared_ptr<const Mixer> mixer;
  // Tokens visible to a query, itself included; 0 = all.
  int window = 0;
  // Windows are chunks that do not slide (KvLayerSpec::chunked).
  bool chunked = false;
  // Tokens of a picture see all of it, those behind them too (Batch::sights).
  bool sees_parts = false;
  // Placement of the layer's norms; empty: that of ResidualConfig.
  std::optional<NormPlacement> norms;
  // Cache group. Layers of one group keep their tokens for the same time.
  int group = 0;
  // Index into ModelConfig::ropes; -1 = no rotation.
  int rope = 0;
  // Index of a rotation before that one, of other features of a head; -1: none (Gemma 4's tower).
  int first_rope = -1;
  // Mixture of experts that replaces the dense feed-forward, or that is computed beside it.
  bool moe = false;
  // The token alone chooses its experts, from a table (MixtureWeights::token_experts).
  bool hashed_experts = false;
  // In models with AttentionConfig::sinks.
  bool has_sinks = true;
  // Queries grow with their position (AttentionConfig::query_scale).
  bool query_scale = false;
  // Latent attention of this layer, where it differs from the model's; null: ModelConfig::latent.
  // Indexers are the model's. Read it by ModelConfig::latent_of().
  std::shared_ptr<const LatentConfig> latent;
  // Sizes of this layer that differ from the model's; 0 = the model's. Read them by
  // ModelConfig::head_dim_of(), n_heads_of(), n_kv_heads_of() and ffn_dim_of().
  int head_dim = 0;
  int n_heads = 0;
  int n_kv_heads = 0;
  int ffn_dim = 0;
  // Index of the earlier layer whose keys and values this layer attends to, having none of its own;
  // -1 = its own.
  int kv_layer = -1;
  // Layer of the cache in which this layer keeps keys and values; -1: that of its index. Layers that
  // are computed one after the other over whole sequences may share one.
  int cache_layer = -1;
  // Index of an earlier layer whose weights this layer has, in models that compute layers several
  // times (each time with a cache of its own); -1 = its own.
  int weights_layer = -1;
  // Index of the layer whose indexer selects the tokens that this layer attends to, itself or an
  // earlier one; -1 = it attends to all tokens that it sees.
  int selecting_layer = -1;
  // Index of the layer, itself or an earlier one, whose mixture joins the stream behind this one
  // (ExpertsConfig::shortcut); -1 = none.
  int joining_layer = -1;
  // Index of the layer whose shared block this one computes, itself or an earlier one; -1 = none
  // (SharedBlock).
  int shared_layer = -1;
  // Tokens of an entry that a query sees beside those of the window (CompressedConfig); 0 = none.
  int entry_ratio = 0;
  // Index into NgramConfig::hashes of rows that the layer adds to the streams; -1 = none.
  int ngrams = -1;
  // Values are the projected keys, before norm and rotation.
  bool keys_as_values = false;
  // Activation of the feed-forward: the model's, or the same with parameters of this layer.
  ActivationFunction activation;
  // Activation of routed experts; none: `activation`.
  std::optional<ActivationFunction> expert_activation;
  // Multiplies AttentionConfig::scale.
  float score_factor = 1.0f;
  // Gates are replaced by the amount by which they exceed mean + gate_cutoff * standard deviation
  // (Ops::keep_above); kNoCutoff: they are unchanged.
  float gate_cutoff = kNoCutoff;

  bool carries_state() const { return mixer != nullptr; }
  // The layer has none of what reads the stream before the feed-forward.
  bool has_no_mixer() const { return !attention && mixer == nullptr; }
};

// Sizes, layers, and the configuration of every block.
struct ModelConfig {
  // Architecture::name: "llama", "gemma3", ...
  std::string arch;
  // Name of the model in its file, or "".
  std::string name;

  int n_layers = 0;
  int n_heads = 0;
  // Heads of keys and values in the cache; 1 with latent attention.
  int n_kv_heads = 0;
  // Dimensions of a head in the cache; kv_rank + rope_dim with latent attention.
  int head_dim = 0;
  // Features of the residual stream.
  int model_dim = 0;
  // Features of dense feed-forwards; 0 = no layer has one.
  int ffn_dim = 0;
  // Rows of the embedding table.
  int vocab_size = 0;
  // Longest sequence that the model was trained for, in tokens.
  int max_seq_len = 0;
  // Layers after the last decoder layer in the file that predict further tokens (multi-token
  // prediction); they are not among n_layers.
  int n_next_token_layers = 0;
  // Their form; empty: that of the last layer with attention. Of fewer, the last one is repeated.
  std::vector<LayerConfig> next_token_layers;
  // They read the stream behind the last layer, and each other's, without norms.
  bool next_token_streams = false;
  // Rows of an encoder that the layers of each sequence attend to (cross_attention.h); 0 = none.
  int encoder_rows = 0;
  // Values of a token that layers hand on to later ones beside the streams (Sublayer::carried).
  int carried_dim = 0;
  // Number of layers after which the model was also trained to predict (early exit); 0 = none.
  int exit_layer = 0;

  std::vector<LayerConfig> layers;  // [n_layers]
  // indexed by LayerConfig::rope; empty with learned positions
  std::vector<RopeConfig> ropes;

  EmbeddingConfig embedding;
  PositionsConfig positions;
  NormConfig norm;
  ResidualConfig residual;
  AttentionConfig attention;
  LatentConfig latent;
  CompressedConfig compressed;
  ProfileConfig profiles;
  BlockResidualsConfig block_residuals;
  SphereConfig sphere;
  ConvolvedConfig convolved;
  FeedForwardConfig ffn;
  ExpertsConfig experts;
  PerLayerConfig per_layer;
  AltUpConfig altup;
  GatedStreamsConfig streams;
  MixedStreamsConfig mixed_streams;
  NgramConfig ngrams;
  SharedConfig shared;
  OutputConfig output;
  RoundingConfig rounding;

  int head_dim_of(int layer) const { return of_layer(layer, &LayerConfig::head_dim, head_dim); }
  int n_heads_of(int layer) const { return of_layer(layer, &LayerConfig::n_heads, n_heads); }
  int n_kv_heads_of(int layer) const {
    return of_layer(layer, &LayerConfig::n_kv_heads, n_kv_heads);
  }
  int ffn_dim_of(int layer) const { return of_layer(layer, &LayerConfig::ffn_dim, ffn_dim); }
  // Features that experts read and return.
  int expert_dim() const { return experts.latent_dim > 0 ? experts.latent_dim : model_dim; }
  int rows_in_file() const { return embedding.n_rows > 0 ? embedding.n_rows : vocab_size; }
  int output_rows() const { return output.rows > 0 ? output.rows : rows_in_file(); }
  int per_layer_rows() const { return per_layer.vocab > 0 ? per_layer.vocab : vocab_size; }
  int q_dim_of(int layer) const { return n_heads_of(layer) * head_dim_of(layer); }
  int kv_dim_of(int layer) const { return n_kv_heads_of(layer) * head_dim_of(layer); }
  int value_dim_of(int layer) const {
    return attention.value_dim > 0 ? attention.value_dim : head_dim_of(layer);
  }
  int v_dim_of(int layer) const { return n_kv_heads_of(layer) * value_dim_of(layer); }
  // Features that attention gives to the output projection.
  int attended_dim_of(int layer) const { return n_heads_of(layer) * value_dim_of(layer); }
  // Number of output gates of attention that have a projection of their own; 0 = none.
  int n_gates_of(int layer) const {
    return attention.value_gates  ? attended_dim_of(layer)
           : attention.head_gates ? n_heads_of(layer)
                                  : 0;
  }
  // Sizes of the widest layer.
  int q_dim() const { return largest(&ModelConfig::q_dim_of, n_heads * head_dim); }
  int most_heads() const { return largest(&ModelConfig::n_heads_of, n_heads); }
  int kv_dim() const { return largest(&ModelConfig::kv_dim_of, n_kv_heads * head_dim); }
  int v_dim() const { return largest(&ModelConfig::v_dim_of, 0); }
  int attended_dim() const { return largest(&ModelConfig::attended_dim_of, 0); }
  int widest_ffn() const { return largest(&ModelConfig::ffn_dim_of, ffn_dim); }
  // whether sizes differ, or some layers attend to keys and values of others
  bool layers_differ() const;
  const LatentConfig& latent_of(int layer) const {
    const auto& own = layers[static_cast<size_t>(layer)].latent;
    return own != nullptr ? *own : latent;
  }
  bool has_feed_forward(int layer) const {
    const LayerConfig& kind = layers[static_cast<size_t>(layer)];
    if (!residual.one_mixer) return kind.feed_forward;
    return !kind.attention && !kind.carries_state();
  }
  // Whether a layer has the weights of an earlier one.
  bool repeats(int layer) const {
    const int of = layers[static_cast<size_t>(layer)].weights_layer;
    return of >= 0 && of < layer;
  }
  // Feature of the model that only backends with Ops::can_select() (needs_all: Ops::has_all())
  // compute; empty: none.
  std::string_view needs_select() const;
  std::string_view needs_all() const;
  bool has_states() const;
  bool has_entries() const;
  // Number of values of a sequence's state in a layer: of its mixer, of an indexer's open block, of
  // rows of n-grams.
  int64_t state_values_of(int layer) const;
  const IndexerConfig& indexer() const {
    if (compressed.query_rank > 0) return compressed.indexer;
    return latent.kv_rank > 0 ? latent.indexer : attention.indexer;
  }
  int n_streams() const {
    return std::max({1, altup.n_streams, streams.count, mixed_streams.count});
  }
  // Replaces every mixer by other(mixer); null keeps it. Layers that share a mixer share its
  // replacement.
  void replace_mixers(const std::function<std::shared_ptr<const Mixer>(const Mixer&)>& other);
  // Number of values per token that a pipeline stage hands to the stage that begins with
  // first_layer: the residual streams, and the per-layer inputs of the layers from there on.
  int stage_dim(int first_layer) const;
  CacheSpec cache_spec(CacheTypes types, int block_size) const;
  // matrices and norms, no biases; a tied table counts once
  int64_t n_parameters() const;
  // parameters that one token uses, without the embedding lookup
  int64_t n_active_parameters() const;

 private:
  int of_layer(int layer, int LayerConfig::* size, int usual) const {
    const int own = layers[static_cast<size_t>(layer)].*size;
    return own > 0 ? own : usual;
  }
  int largest(int (ModelConfig::*size)(int) const, int least) const;
};

}  // namespace penstock
