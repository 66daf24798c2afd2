// What a decoder looks like, whatever file it came from.
#pragma once
#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "cache/cache_spec.h"
#include "formats/weight_source.h"
#include "model/blocks/alt_up.h"
#include "model/blocks/attention.h"
#include "model/blocks/embedding.h"
#include "model/blocks/experts.h"
#include "model/blocks/latent_attention.h"
#include "model/blocks/mixer.h"
#include "model/blocks/per_layer.h"
#include "ops/ops.h"
#include "penstock/types.h"

namespace penstock {

enum class RopeScaling : uint8_t { kNone, kLinear, kLlama3, kYarn, kLongRope, kProportional };

struct RopeConfig {
  int rotary_dim = 0;  // leading dimensions of a head that are rotated; even
  float theta = 10000.0f;
  RopeScaling scaling = RopeScaling::kNone;
  float factor = 1.0f;                                    // context is this many times the original one
  int original_max_seq_len = 0;                           // llama3, yarn, longrope
  float low_freq_factor = 1.0f, high_freq_factor = 4.0f;  // llama3
  float beta_fast = 32.0f, beta_slow = 1.0f;              // yarn
  bool truncate = true;                            // yarn: correction range rounded to whole dimensions
  float attention_factor = 0.0f;                   // multiplies cos and sin; 0 = by the scaling's own rule
  float mscale = 0.0f, mscale_all_dim = 0.0f;      // yarn: both set = their own attention factor
  std::vector<float> short_factors, long_factors;  // longrope: [rotary_dim / 2]; GGUF has them as tensors
  bool backwards = false;                          // turned the other way round
  int n_turning = 0;           // proportional: of the pairs of rotary_dim the first, which alone turn
  bool tensor_factors = true;  // factors that a GGUF file has as a tensor are for this one
};

inline constexpr float kNoCutoff = -std::numeric_limits<float>::infinity();

struct LayerConfig {
  bool attention = true;
  // Mixer in attention's place, or beside it; null: none. Layers that have the same one share it.
  std::shared_ptr<const Mixer> mixer;
  // Tokens visible to a query, itself included; 0 = all.
  int window = 0;
  // Window that does not slide (KvLayerSpec::chunked).
  bool chunked = false;
  // Cache group: layers of one group keep their tokens equally long.
  int group = 0;
  // Index into ModelConfig::ropes; -1 = no rotation.
  int rope = 0;
  // Mixture of experts in the place of the dense feed-forward, or beside it.
  bool moe = false;
  // Growth of queries with their position (AttentionConfig::query_scale).
  bool query_scale = false;
  // Sizes of this layer where they are not the model's, otherwise 0: ask the model's head_dim_of(), n_kv_heads_of(), ffn_dim_of().
  int head_dim = 0;
  int n_kv_heads = 0;
  int ffn_dim = 0;
  // Earlier layer to whose keys and values it attends, having none; -1 = its own.
  int kv_layer = -1;
  // Values that are the projected keys, before norm and rotation.
  bool keys_as_values = false;
  // The model's activation, or with parameters of its own.
  ActivationFunction activation;
  // Factor of AttentionConfig::scale.
  float score_factor = 1.0f;
  // Gates are what they exceed mean + this * deviation by (Ops::keep_above); kNoCutoff: as they are.
  float gate_cutoff = kNoCutoff;

  bool carries_state() const { return mixer != nullptr; }
};

// Sizes, layers, and what the blocks of layers are told, each in its block's words.
struct ModelConfig {
  // Architecture::name: "llama", "gemma3", ...
  std::string arch;
  // What the file calls itself, or "".
  std::string name;

  int n_layers = 0;
  int n_heads = 0;
  // Heads of keys and values in the cache; 1 with attention over latents.
  int n_kv_heads = 0;
  // Dimensions of a head in the cache; kv_rank + rope_dim with attention over latents.
  int head_dim = 0;
  // Features of the residual stream.
  int model_dim = 0;
  // Features of dense feed-forwards; 0 = no layer has one.
  int ffn_dim = 0;
  // Rows of the embedding table.
  int vocab_size = 0;
  // Positions the model was made for.
  int max_seq_len = 0;
  // Layers behind the last one in the file that predict further tokens; not loaded.
  int n_next_token_layers = 0;
  // Layers after which it was also trained to predict (early exit); 0 = none.
  int exit_layer = 0;

  std::vector<LayerConfig> layers;  // [n_layers]
  std::vector<RopeConfig> ropes;    // LayerConfig::rope; empty with learned positions

  EmbeddingConfig embedding;
  PositionsConfig positions;
  NormConfig norm;
  ResidualConfig residual;
  AttentionConfig attention;
  LatentConfig latent;
  FeedForwardConfig ffn;
  ExpertsConfig experts;
  PerLayerConfig per_layer;
  AltUpConfig altup;
  OutputConfig output;
  RoundingConfig rounding;

  int head_dim_of(int layer) const { return of_layer(layer, &LayerConfig::head_dim, head_dim); }
  int n_kv_heads_of(int layer) const { return of_layer(layer, &LayerConfig::n_kv_heads, n_kv_heads); }
  int ffn_dim_of(int layer) const { return of_layer(layer, &LayerConfig::ffn_dim, ffn_dim); }
  int expert_dim() const {
    return experts.latent_dim > 0 ? experts.latent_dim : model_dim;
  }  // read and given
  int per_layer_rows() const { return per_layer.vocab > 0 ? per_layer.vocab : vocab_size; }
  int q_dim_of(int layer) const { return n_heads * head_dim_of(layer); }
  int kv_dim_of(int layer) const { return n_kv_heads_of(layer) * head_dim_of(layer); }
  // Gates by a projection of their own; 0 = none.
  int n_gates_of(int layer) const {
    return attention.value_gates ? q_dim_of(layer) : attention.head_gates ? n_heads : 0;
  }
  // The largest of any layer.
  int q_dim() const { return largest(&ModelConfig::q_dim_of, n_heads * head_dim); }
  int kv_dim() const { return largest(&ModelConfig::kv_dim_of, n_kv_heads * head_dim); }
  int widest_ffn() const { return largest(&ModelConfig::ffn_dim_of, ffn_dim); }
  bool layers_differ() const;  // in sizes, or some attend to others' keys and values
  int cache_value_dim() const { return latent.kv_rank > 0 ? latent.kv_rank : head_dim; }  // of a head
  // What the output projection of attention reads.
  int attended_dim_of(int layer) const {
    return latent.kv_rank > 0 ? n_heads * latent.value_dim : q_dim_of(layer);
  }
  bool has_feed_forward(int layer) const {
    const LayerConfig& kind = layers[static_cast<size_t>(layer)];
    return !residual.one_mixer || (!kind.attention && !kind.carries_state());
  }
  bool has_states() const;
  // Another mixer in the place of each, null = the same; layers that share one share what comes.
  void replace_mixers(const std::function<std::shared_ptr<const Mixer>(const Mixer&)>& other);
  // Values of a token that a stage of a pipeline hands to the one that begins with this layer: the streams, and what later layers get
  // beside them.
  int stage_dim(int first_layer) const;
  CacheSpec cache_spec(CacheTypes types, int block_size) const;
  int64_t n_parameters() const;         // matrices and norms (no biases); a tied table counts once
  int64_t n_active_parameters() const;  // those that one token passes through, without the embedding lookup

 private:
  int of_layer(int layer, int LayerConfig::* size, int usual) const {
    const int own = layers[static_cast<size_t>(layer)].*size;
    return own > 0 ? own : usual;
  }
  int largest(int (ModelConfig::*size)(int) const, int least) const;
};

}  // namespace penstock
