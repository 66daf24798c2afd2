// Descriptions of architectures: their names in files, how configurations are read, how tensors are
// named, which forward computes them.
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

// Computes a forward. REQUIRES: a step with a batch of this shape has begun (Ops::begin_step).
using ForwardFunction = StepOutputs (*)(const ModelConfig&, const ModelWeights&, StepShape,
                                        KvCache&, Ops&, const ForwardOptions&);

// Names of an architecture in config.json: first a model_type, then classes and other types; at
// most six.
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
  std::string_view names_[10];
  size_t count_ = 0;
};

// Layers of one file that predict further tokens; more are not read.
inline constexpr int kMostNextTokenLayers = 16;

// One architecture. It is defined at the end of the architecture's file and listed in archs.cc.
struct Architecture {
  // ModelConfig::arch; GGUF's general.architecture
  std::string_view name;
  std::string_view title = "";  // name of its models in documentation
  TypeNames hf_types = {};
  // Its directories have another architecture's model_type; `architectures` names one of hf_types.
  bool named_by_class = false;
  // name in GGUF files where it differs; "" = name
  std::string_view gguf_name = "";
  bool directories_only = false;  // its GGUF files were not tried
  // Sets the switches of the blocks. Sizes, ropes and common switches are already read; layers have
  // no windows yet.
  void (*configure)(ConfigReader& reader, ModelConfig& config);
  // Changes the default Hugging Face names.
  void (*hf_names)(NameTable& names, const ModelConfig& config) = nullptr;
  ForwardFunction forward;
  // Defaults of transformers for keys that config.json lacks: a JSON object, or "".
  std::string_view hf_defaults = "";
  // Alternative names of keys of config.json: {"alternative": "default name"}, or "".
  std::string_view hf_aliases = "";
  // Rewrites what config.json tells in a form of its own into the usual keys, before it is read.
  // Values may have any type.
  void (*hf_usual)(nlohmann::json& object) = nullptr;
  // Writes the keys that configure() reads beyond the common ones, for conversion.
  void (*describe)(ConfigWriter& writer, const ModelConfig& config) = nullptr;
  void (*gguf_names)(NameTable& names, const ModelConfig& config) = nullptr;  // as hf_names
  // default width of feed-forwards is four times the model's, if config.json has none
  bool wide_ffn = false;
  // config.json's partial_rotary_factor is read; transformers' other types rotate whole heads, or
  // fail.
  bool partial_rope = false;
  // value of AttentionConfig::qkv_by_group for Hugging Face directories
  bool hf_qkv_by_group = false;
  // Hugging Face directories store norm weights less one, GGUF files as applied.
  bool hf_norms_less_one = false;
  // How much less norms behind attention and behind feed-forwards are stored in these (PLaMo 2 and 3).
  float hf_attn_post_less = 1.0f, hf_ffn_post_less = 1.0f;
  // GGUF files store rotated rows of q and k as adjacent pairs, Hugging Face directories as halves.
  bool gguf_pairs = false;
  // GGUF files fold the scales of embeddings and logits, and factors of blocks, into the weights.
  bool gguf_multiplied = false;
  // GGUF files without attention or feed-forwards in any layer state 0 heads or features.
  bool zero_sizes = false;
  // Layers may have different numbers of query heads; files of other architectures that list
  // different ones are refused.
  bool heads_by_layer = false;
  // Values of heads may have fewer features than keys; files of other architectures that say so are
  // refused.
  bool narrow_values = false;
  // Keys beyond the common ones that it reads and that change results: files of other architectures
  // that have them are refused.
  std::span<const MeaningfulKey> own_keys = {};
};

// Returns what is added to a norm's weights in a directory of an architecture with hf_norms_less_one.
float hf_norm_less(const Architecture& architecture, const TensorName& name);

std::span<const Architecture* const> architectures();
// Returns null if unknown. name: Architecture::name.
const Architecture* find_architecture(std::string_view name);

// --- Shared by configure functions ---

// Gives every layer the file's sliding window, except each pattern-th one (0 = no exception); a
// per-layer list in the file takes precedence. default_window: window of files that have none; 0 =
// no window.
void read_windows(ConfigReader& reader, ModelConfig& config, int pattern, int default_window = 0);
// Rotates halves of heads in directories and adjacent pairs in GGUF files (Architecture::gguf_pairs);
// in llama.cc.
void set_rope_pairs(ConfigReader& reader, ModelConfig& config);
// Removes rotation, for models with other positions.
void drop_ropes(ModelConfig& config);
// Reads experts in every layer by the common keys.
void read_experts(ConfigReader& reader, ModelConfig& config);
// Reads rope 0 for layers with full attention and rope 1 for those with a window (Gemma 3).
void read_local_rope(ConfigReader& reader, ModelConfig& config);
// Writes both ropes as an object for each kind of layer (Mellum, Laguna).
void describe_local_rope(ConfigWriter& writer, const ModelConfig& config);
// Lets the last layers attend to keys and values of the last other layer with an equal window
// (Gemma 3n and 4).
void share_last_layers(ConfigReader& reader, ModelConfig& config);
void describe_qwen_vl(ConfigWriter&, const ModelConfig&);
// published: default numbers of a head's rotated pairs for time, height and width.
void describe_image_sections(ConfigWriter& writer, const ModelConfig& config,
                             std::array<unsigned, 3> published);
// Reads which layers have experts in Hugging Face's Qwen-MoEs: every decoder_sparse_step-th one,
// without those in mlp_only_layers.
void read_sparse_layers(ConfigReader& reader, ModelConfig& config);
// Reads, by layer, "sparse" (experts) or "dense"; does nothing if the file has no such list.
void read_mlp_layer_types(ConfigReader& reader, ModelConfig& config);
void describe_mlp_layer_types(ConfigWriter& writer, const ModelConfig& config);
// Returns the number of layers before the first one with experts.
int leading_dense_layers(const ModelConfig& config);
// Reads routing by sigmoid scores, with a bias for the choice, groups scored by their two best
// experts, and scaled weights.
void read_sigmoid_routing(ConfigReader& reader, ModelConfig& config);
// Fails unless groups have equal sizes and enough experts to choose from.
void check_expert_groups(ConfigReader& reader, const ModelConfig& config);
void describe_sigmoid_routing(ConfigWriter& writer, const ModelConfig& config);
// Reads latent attention, which uses the model's first rope; in deepseek.cc, like the three that
// follow. value_dim: of a head, for files that do not have it.
void read_latent(ConfigReader& reader, ModelConfig& config, std::optional<int> value_dim = {});
void describe_latent(ConfigWriter& writer, const ModelConfig& config);
// Reads experts by softmax behind dense layers, with the groups and weights of sigmoid routing, and
// shared ones.
void read_softmax_groups(ConfigReader& reader, ModelConfig& config);
// Reads attention with profiles over distances: kinds, heads and windows of layers, sizes, and how
// queries grow; in inkling.cc, like the two that follow.
void read_profile_layers(ConfigReader& reader, ModelConfig& config);
// Leaves rows of the tables that no token has.
void read_unpadded_rows(ConfigReader& reader, ModelConfig& config);
void inkling_names(NameTable& names, const ModelConfig& config);
// Fails unless layer_types, if the file has it, says in any of three words that layers select tokens.
void check_sparse_layer_types(ConfigReader& reader);
// Reads the growth of queries with the logarithm of the number of original contexts before them
// (Ministral 3, Mistral 4); in llama.cc.
void read_query_scale(ConfigReader& reader, ModelConfig& config);
void describe_query_scale(ConfigWriter& writer, const ModelConfig& config);
// Reads MiniCPM's factors of embeddings, of what sub-layers add and of logits; in minicpm.cc.
void read_minicpm_factors(ConfigReader& reader, ModelConfig& config);
void describe_minicpm_factors(ConfigWriter& writer, const ModelConfig& config);
// Reads the number of leading dense layers, and the width of shared experts in units of one expert.
void read_dense_layers(ConfigReader& reader, ModelConfig& config);
void read_shared_experts(ConfigReader& reader, ModelConfig& config);
// Reads layer norms, and their epsilon by the names that such models use.
void read_layer_norm(ConfigReader& reader, ModelConfig& config);
void describe_layer_norm(ConfigWriter& writer, const ModelConfig& config);

// Reads the clamp of queries, keys and values (OLMo, MPT).
void read_clip_qkv(ConfigReader& reader, ModelConfig& config);
void describe_clip_qkv(ConfigWriter& writer, const ModelConfig& config);

// --- Functions of one architecture that others reuse ---

void configure_granite(ConfigReader& reader, ModelConfig& config);  // llama.cc
void describe_granite(ConfigWriter& writer, const ModelConfig& config);
void granite_gguf_names(NameTable& names, const ModelConfig& config);
void describe_biases(ConfigWriter& writer, const ModelConfig& config);
void describe_ernie4_5(ConfigWriter& writer, const ModelConfig& config);
void mixtral_names(NameTable& names, const ModelConfig& config);
void granite_moe_names(NameTable& names, const ModelConfig& config);
void glm4_moe_gguf_names(NameTable& names, const ModelConfig& config);
void configure_glm4_moe_lite(ConfigReader& reader, ModelConfig& config);  // deepseek.cc
// Whether each layer has an indexer of its own; in deepseek.cc, like the three that follow.
std::vector<bool> read_indexer_types(ConfigReader& reader, const ModelConfig& config);
// Reads an indexer of latent attention in every layer.
void read_indexers_of_all(ConfigReader& reader, ModelConfig& config, bool interleaved);
// Reads indexers of latent attention, in all layers but those that use the selection before them.
void read_indexers(ConfigReader& reader, ModelConfig& config);
void describe_glm_dsa(ConfigWriter& writer, const ModelConfig& config);

struct DeltaConfig;
DeltaConfig read_qwen_delta(ConfigReader& reader);
void configure_qwen35_moe(ConfigReader& reader, ModelConfig& config);  // qwen_delta.cc
void qwen35_names(NameTable& names, const ModelConfig& config);
void qwen35_gguf_names(NameTable& names, const ModelConfig& config);
void describe_qwen_delta(ConfigWriter& writer, const ModelConfig& config);

// Encoders; in bert.cc.
void configure_encoder(ConfigReader& reader, ModelConfig& config);
void configure_bert(ConfigReader& reader, ModelConfig& config);
void configure_roberta(ConfigReader& reader, ModelConfig& config);
void read_token_types(ConfigReader& reader, ModelConfig& config);
void bert_names(NameTable& names, const ModelConfig& config);
void bert_gguf_names(NameTable& names, const ModelConfig& config);

// GGUF files have queries, keys and values apart, directories together; in llama_layouts.cc.
void apart_gguf_names(NameTable& names, const ModelConfig& config);

// --- Forwards ---

// Layers may be parallel.
StepOutputs parallel_forward(const ModelConfig& config, const ModelWeights& weights,
                             StepShape shape, KvCache& cache, Ops& ops,
                             const ForwardOptions& options);
StepOutputs gemma4_forward(const ModelConfig& config, const ModelWeights& weights, StepShape shape,
                           KvCache& cache, Ops& ops, const ForwardOptions& options);
StepOutputs gemma3n_forward(const ModelConfig& config, const ModelWeights& weights, StepShape shape,
                            KvCache& cache, Ops& ops, const ForwardOptions& options);
StepOutputs qwen4_forward(const ModelConfig& config, const ModelWeights& weights, StepShape shape,
                          KvCache& cache, Ops& ops, const ForwardOptions& options);
// Streams are read, written and mixed by shares (MixedStreams).
StepOutputs mixed_streams_forward(const ModelConfig& config, const ModelWeights& weights,
                                  StepShape shape, KvCache& cache, Ops& ops,
                                  const ForwardOptions& options);
// Sub-layers join a weighted stream (WeightedResidual).
StepOutputs weighted_forward(const ModelConfig& config, const ModelWeights& weights,
                             StepShape shape, KvCache& cache, Ops& ops,
                             const ForwardOptions& options);
StepOutputs one_mixer_forward(const ModelConfig& config, const ModelWeights& weights,
                              StepShape shape, KvCache& cache, Ops& ops,
                              const ForwardOptions& options);
StepOutputs bert_forward(const ModelConfig& config, const ModelWeights& weights, StepShape shape,
                         KvCache& cache, Ops& ops, const ForwardOptions& options);

}  // namespace penstock
