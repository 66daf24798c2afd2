// What a decoder looks like, whatever file it came from: sizes and about a dozen behaviour switches.
#pragma once
#include <cstdint>
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
#include "model/blocks/delta_net.h"
#include "model/blocks/latent_attention.h"
#include "model/blocks/mixer.h"
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

enum class NormPlacement : uint8_t {
  kPre,    // x += f(norm(x))
  kPost,   // x += norm(f(x))
  kBoth,   // x += norm(f(norm(x)))
  kAfter,  // x = norm(x + f(x))
};

// What a layer has that carries a state from token to token; other kinds are mixers (blocks/mixer.h).
enum class Recurrence : uint8_t {
  kNone,
  kDeltaNet,    // gated delta network (Qwen3-Next, Kimi Linear)
  kStateSpace,  // scan with a state space (Mamba 2)
};

inline constexpr float kNoCutoff = -std::numeric_limits<float>::infinity();

struct LayerConfig {
  bool attention = true;
  Recurrence recurrence = Recurrence::kNone;
  std::shared_ptr<const Mixer>
      mixer;             // in attention's place; null: none of those. Layers that have the same one share it
  int window = 0;        // tokens visible to a query including itself; 0 = all
  bool chunked = false;  // the window does not slide: KvLayerSpec::chunked
  int group = 0;         // cache group: layers of one group keep their tokens equally long
  int rope = 0;          // index into ModelConfig::ropes, or -1 for none
  bool moe = false;
  bool query_scale = false;  // ModelConfig::query_scale applies
  int head_dim = 0, n_kv_heads = 0,
      ffn_dim = 0;                // where they are not the model's; ask the model's head_dim_of(), ...
  int kv_layer = -1;              // >= 0: attends to the keys and values of that earlier layer, and has none
  bool keys_as_values = false;    // values are the projected keys before norm and rotation
  ActivationFunction activation;  // the model's, or with parameters of its own
  float score_factor = 1.0f;      // multiplies attention_scale
  float gate_cutoff = kNoCutoff;  // gates are what they exceed mean + this * deviation by (Ops::keep_above)
  bool carries_state() const { return recurrence != Recurrence::kNone || mixer != nullptr; }
};

// What Falcon-H1's activations are multiplied by. GGUF files have it in the weights (Architecture::gguf_multiplied).
struct Multipliers {
  float attention_in = 1.0f, attention_out = 1.0f, key = 1.0f;
  float scan_in = 1.0f, scan_out = 1.0f;
  float z = 1.0f, x = 1.0f, b = 1.0f, c = 1.0f, step = 1.0f;  // of what a scan's projection gives
  float gate = 1.0f, down = 1.0f;                             // of dense feed-forwards
  bool operator==(const Multipliers&) const = default;
};

struct ModelConfig {
  std::string arch;  // Architecture::name: "llama", "gemma3", ...
  std::string name;  // what the file calls itself, or ""
  int n_layers = 0;
  int n_heads = 0;
  int n_kv_heads = 0;   // in the cache
  int head_dim = 0;     // in the cache
  LatentConfig latent;  // then head_dim is kv_rank + rope_dim, and n_kv_heads is 1
  int model_dim = 0;
  int ffn_dim = 0;              // of dense layers
  int vocab_size = 0;           // rows of the embedding table
  int max_seq_len = 0;          // positions the model was made for
  int n_next_token_layers = 0;  // behind the last one in the file; not loaded
  int exit_layer = 0;  // the layers after which it was also trained to predict (early exit); 0 = none

  int n_experts = 0;  // 0 = no layer is a mixture
  int expert_ffn_dim = 0;
  ExpertRouting routing;
  int expert_latent_dim =
      0;  // experts read a projection of this size, and another widens what they give; 0 = none
  int shared_ffn_dim = 0;              // of the experts that every token takes, together; 0 = none
  bool shared_expert_gate = false;     // their result is multiplied by the sigmoid of a projection
  bool expert_selection_bias = false;  // a vector is added to the scores when experts are chosen

  DeltaConfig delta;
  float min_time_step = 0.0f, max_time_step = std::numeric_limits<float>::infinity();  // of Mamba 2's scans
  bool scan_norm = true;          // there is a norm behind Mamba 2's scans,
  bool norm_before_gate = false;  // and what comes out is multiplied by the gate behind it, not before
  Multipliers multipliers;
  // Gemma's mixture: dense layers' feed-forward beside the experts, each with norms of its own.
  bool experts_beside_dense = false;
  bool output_scales = false;  // the stream is multiplied by a number behind every layer
  int per_layer_dim =
      0;  // features that every layer gets of a token beside the stream, from a table of their own; 0 = none

  int per_layer_vocab = 0;  // rows of that table where not vocab_size: tokens beyond have its first
  AltUpConfig altup;

  int conv_taps =
      0;  // of the convolutions of delta networks and scans: tokens that each sees, itself included

  std::vector<LayerConfig> layers;  // [n_layers]
  std::vector<RopeConfig> ropes;    // empty with learned positions

  // --- Behaviour ---
  float norm_eps = 1e-5f;
  bool layer_norm = false;   // subtract the mean; otherwise RMS norm
  bool norm_bias = true;     // layer norms add a bias
  bool bare_norms = false;   // norms have no weights either (OLMo)
  float norm_offset = 0.0f;  // added to stored norm weights (gemma's 1 + w)
  NormPlacement norms = NormPlacement::kPre;
  bool parallel = false;        // x += attention(norm(x)) + feed-forward(norm(x)), not one after the other
  bool parallel_norms = false;  // then the feed-forward has a norm of its own
  bool adds_to_norm =
      false;  // sub-layers add to the norm that they read, not to the stream: x = n + f(n), n = norm(x)
  bool embedding_norm = false;
  bool one_mixer = false;  // a layer is attention, a scan or a feed-forward, with one norm before it
  QkNorm qk_norm = QkNorm::kNone;
  bool value_norm = false;        // values of every head are divided by their root mean square
  float clip_qkv = 0.0f;          // what is rotated or cached of q, k and v is clamped to +- this; 0 = not
  bool rope_before_norm = false;  // q and k are rotated before their norms
  bool qkv_by_group = false;  // a fused projection lies by KV head in this file: its queries, key and value
  int qkv_shards = 0;         // > 0: or in so many shards, of each the queries, the values and the keys
  bool sub_norms = false;     // BitNet: norms before the output and down projections
  bool int8_activations = false;     // BitNet: every linear rounds its input to 8 bits per token
  bool ternary_weights = false;      // BitNet master weights: round to {-1, 0, 1} * mean(|w|) on load
  bool divide_weight_scale = false;  // packed BitNet weights: {-1, 0, 1} / weight_scale, not * weight_scale
  ActivationFunction activation;
  bool rope_by_format =
      false;  // rows of q and k: adjacent pairs in GGUF files, halves in Hugging Face directories
  bool rope_interleaved = false;
  bool learned_positions = false;
  int skipped_positions = 0;  // rows that the table of positions begins with and nobody has (OPT); not loaded
  bool computed_positions = false;  // the table is not in the file: sines and cosines (XGLM)
  int first_position = 0;           // row of the table for a sequence's first token (RoBERTa)
  TokenId no_position =
      -1;  // tokens that have the row before it and are not counted (RoBERTa's padding); -1 = none
  bool causal = true;           // otherwise a token sees all of its sequence, which must be one step
  bool output_head = true;      // logits are computed; otherwise states are all there is
  bool first_norm = true;       // false: the first layer reads the stream as it is
  int n_token_types = 0;        // > 0: a vector, that of the token's type, is added to every embedding
  float alibi_max_bias = 0.0f;  // ALiBi's slopes go down to 2^-this; 0 = none
  bool alibi_scaled = false;    // biases too are multiplied by attention_scale (Falcon)
  bool attention_sinks = false;
  bool attention_gate =
      false;  // what was attended to is multiplied by the sigmoid of a projection beside the query
  bool head_gates = false;    // the same with a number for each head, by a projection of its own
  bool value_gates = false;   // or with a number for each value of each head
  PositionScale query_scale;  // in layers that say so
  bool gated_ffn = true;      // down(act(gate) * up); otherwise down(act(up))
  bool tied_embeddings = false;
  float embedding_scale = 1.0f;
  float residual_scale = 1.0f;
  float attention_scale = 0.0f;  // multiplies q.k; always set after reading
  float logit_scale = 1.0f;
  float attention_softcap = 0.0f, final_softcap = 0.0f;  // 0 = off

  int head_dim_of(int layer) const { return of_layer(layer, &LayerConfig::head_dim, head_dim); }
  int n_kv_heads_of(int layer) const { return of_layer(layer, &LayerConfig::n_kv_heads, n_kv_heads); }
  int ffn_dim_of(int layer) const { return of_layer(layer, &LayerConfig::ffn_dim, ffn_dim); }
  int expert_dim() const { return expert_latent_dim > 0 ? expert_latent_dim : model_dim; }  // read and given
  int per_layer_rows() const { return per_layer_vocab > 0 ? per_layer_vocab : vocab_size; }
  int q_dim_of(int layer) const { return n_heads * head_dim_of(layer); }
  int kv_dim_of(int layer) const { return n_kv_heads_of(layer) * head_dim_of(layer); }
  // Gates by a projection of their own; 0 = none.
  int n_gates_of(int layer) const { return value_gates ? q_dim_of(layer) : head_gates ? n_heads : 0; }
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
    return !one_mixer || (!kind.attention && !kind.carries_state());
  }
  bool has_states() const;
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

// Reads and checks the configuration of any known architecture; touches no weights.
Result<ModelConfig> read_config(const WeightSource& source);

// Well-known shapes for `plan` and `bench --shape`, without a file: shapes.cc is THE list.
struct NamedShape {
  std::string_view name;    // "llama-3.1-8b"
  std::string_view config;  // its config.json, without what does not matter for speed
};
std::span<const NamedShape> named_shapes();
Result<ModelConfig> config_from_shape(std::string_view name);

}  // namespace penstock
