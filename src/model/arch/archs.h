// What an architecture is: which files it has, how it behaves, what its tensors are called, how it computes.
#pragma once
#include <array>
#include <initializer_list>
#include <span>
#include <string_view>

#include "model/arch/config_reader.h"
#include "model/blocks/config.h"
#include "model/blocks/weights.h"
#include "model/forward/decoder.h"

namespace penstock {

// Of a step that has begun (Ops::begin_step) with a batch of this shape.
using ForwardFunction = StepOutputs (*)(const ModelConfig&, const ModelWeights&, StepShape, KvCache&, Ops&,
                                        const ForwardOptions&);

// What config.json calls an architecture: first a model_type, then classes and other types; at most six.
class TypeNames {
 public:
  constexpr TypeNames(std::initializer_list<std::string_view> names = {}) {
    for (const std::string_view name : names) names_[count_++] = name;
  }
  constexpr const std::string_view* begin() const { return names_; }
  constexpr const std::string_view* end() const { return names_ + count_; }
  constexpr bool empty() const { return count_ == 0; }
  constexpr std::string_view operator[](size_t i) const { return names_[i]; }

 private:
  std::string_view names_[6];
  size_t count_ = 0;
};

// Stands at the end of the architecture's file and in the list of archs.cc.
struct Architecture {
  std::string_view name;        // ModelConfig::arch; GGUF's general.architecture
  std::string_view title = "";  // what people call its models
  TypeNames hf_types = {};
  std::string_view gguf_name = "";  // of the architecture that GGUF files say instead; "" = name
  bool directories_only = false;    // its GGUF files were not tried
  // Sets the behaviour switches; sizes, rope and common switches are already read, layers have no window.
  void (*configure)(ConfigReader& reader, ModelConfig& config);
  // Changes to the usual Hugging Face names.
  void (*hf_names)(NameTable& names, const ModelConfig& config) = nullptr;
  ForwardFunction forward;
  // What transformers assumes when config.json does not say: a JSON object, or "".
  std::string_view hf_defaults = "";
  // Other names of keys of config.json: {"their name": "the usual name"}, or "".
  std::string_view hf_aliases = "";
  // What configure() reads beyond the usual keys, for files that are written.
  void (*describe)(ConfigWriter& writer, const ModelConfig& config) = nullptr;
  void (*gguf_names)(NameTable& names, const ModelConfig& config) = nullptr;  // as hf_names
  bool wide_ffn = false;  // feed-forwards are four times as wide as the model where config.json does not say
  // config.json's partial_rotary_factor is heeded; transformers' other types turn whole heads, or fail.
  bool partial_rope = false;
  bool hf_qkv_by_group = false;    // AttentionConfig::qkv_by_group of Hugging Face directories
  bool hf_norms_less_one = false;  // Hugging Face's norm weights are less one, GGUF's as they are applied
  bool gguf_pairs =
      false;  // GGUF files hold rotated rows of q and k as adjacent pairs, Hugging Face's as halves
  bool gguf_multiplied =
      false;  // GGUF files have the scales of embeddings and logits, and factors of blocks, in the weights
  bool zero_sizes =
      false;  // GGUF files without attention or feed-forwards in any layer say 0 of heads or features
  // Keys beyond the usual that it reads and that change what is computed: files of other architectures are refused with them.
  std::span<const MeaningfulKey> own_keys = {};
};

std::span<const Architecture* const> architectures();
// nullptr when unknown. `name` is Architecture::name.
const Architecture* find_architecture(std::string_view name);

// --- Shared by configure functions ---

// Every layer gets the file's sliding window, except each `pattern`-th one (0 = no exception); a per-layer list in
// the file wins. default_window 0 = no window unless the file has one.
void read_windows(ConfigReader& reader, ModelConfig& config, int pattern, int default_window = 0);
// Positions come otherwise than by rotation.
void drop_ropes(ModelConfig& config);
// Experts in every layer, by the usual keys.
void read_experts(ConfigReader& reader, ModelConfig& config);
// Rope 0 for layers that see everything, rope 1 for those with a window (Gemma 3).
void read_local_rope(ConfigReader& reader, ModelConfig& config);
// The last layers attend to the last of the others that sees as far (Gemma 3n and 4).
void share_last_layers(ConfigReader& reader, ModelConfig& config);
// Which layers have them in Hugging Face's Qwen-MoEs: every so many-th, without those that are listed.
void describe_qwen_vl(ConfigWriter&, const ModelConfig&);
// published: how many of a head's rotated pairs are of time, height and width where all are rotated as published.
void describe_image_sections(ConfigWriter& writer, const ModelConfig& config,
                             std::array<unsigned, 3> published);
void read_sparse_layers(ConfigReader& reader, ModelConfig& config);
// By layer: "sparse" (experts) or "dense"; nothing where the file has no such list.
void read_mlp_layer_types(ConfigReader& reader, ModelConfig& config);
void describe_mlp_layer_types(ConfigWriter& writer, const ModelConfig& config);
// Those before the first with experts.
int leading_dense_layers(const ModelConfig& config);
// Sigmoid scores with a bias for the choice, groups whose two best experts count, weights that are scaled.
void read_sigmoid_routing(ConfigReader& reader, ModelConfig& config);
// Fails unless the groups are equal and have enough experts to choose from.
void check_expert_groups(ConfigReader& reader, const ModelConfig& config);
void describe_sigmoid_routing(ConfigWriter& writer, const ModelConfig& config);
// Attention over latents, its rope that of the first of the model's; in deepseek.cc, like the two that follow. value_dim: of a
// head where the file does not say it.
void read_latent(ConfigReader& reader, ModelConfig& config, std::optional<int> value_dim = {});
void describe_latent(ConfigWriter& writer, const ModelConfig& config);
// Queries grow with the logarithm of how many original contexts lie before them (Ministral 3, Mistral 4); in llama.cc.
void read_query_scale(ConfigReader& reader, ModelConfig& config);
void describe_query_scale(ConfigWriter& writer, const ModelConfig& config);
// The first layers have none, and what every token takes is some experts wide.
void read_dense_layers(ConfigReader& reader, ModelConfig& config);
void read_shared_experts(ConfigReader& reader, ModelConfig& config);
// Layer norms, and their epsilon by the names that such models have for it.
void read_layer_norm(ConfigReader& reader, ModelConfig& config);
void describe_layer_norm(ConfigWriter& writer, const ModelConfig& config);

// Queries, keys and values are clamped (OLMo, MPT).
void read_clip_qkv(ConfigReader& reader, ModelConfig& config);
void describe_clip_qkv(ConfigWriter& writer, const ModelConfig& config);

// --- Of one architecture, and as they are of others ---

void configure_granite(ConfigReader& reader, ModelConfig& config);  // llama.cc
void describe_granite(ConfigWriter& writer, const ModelConfig& config);
void granite_gguf_names(NameTable& names, const ModelConfig& config);
void describe_biases(ConfigWriter& writer, const ModelConfig& config);
void describe_ernie4_5(ConfigWriter& writer, const ModelConfig& config);
void mixtral_names(NameTable& names, const ModelConfig& config);
void granite_moe_names(NameTable& names, const ModelConfig& config);
void glm4_moe_gguf_names(NameTable& names, const ModelConfig& config);
void configure_glm4_moe_lite(ConfigReader& reader, ModelConfig& config);  // deepseek.cc

// --- Forwards ---

// Layers may be parallel.
StepOutputs parallel_forward(const ModelConfig& config, const ModelWeights& weights, StepShape shape,
                             KvCache& cache, Ops& ops, const ForwardOptions& options);
StepOutputs gemma4_forward(const ModelConfig& config, const ModelWeights& weights, StepShape shape,
                           KvCache& cache, Ops& ops, const ForwardOptions& options);
StepOutputs gemma3n_forward(const ModelConfig& config, const ModelWeights& weights, StepShape shape,
                            KvCache& cache, Ops& ops, const ForwardOptions& options);
StepOutputs one_mixer_forward(const ModelConfig& config, const ModelWeights& weights, StepShape shape,
                              KvCache& cache, Ops& ops, const ForwardOptions& options);
StepOutputs bert_forward(const ModelConfig& config, const ModelWeights& weights, StepShape shape,
                         KvCache& cache, Ops& ops, const ForwardOptions& options);

}  // namespace penstock
