#include "model/arch/read_config.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <nlohmann/json.hpp>
#include <utility>

#include "base/json_text.h"
#include "base/nearest_name.h"
#include "formats/hf_config.h"
#include "formats/prequantized.h"
#include "model/arch/archs.h"
#include "model/arch/config_reader.h"
#include "model/arch/hf_sizes.h"
#include "model/arch/names.h"
#include "model/arch/rope.h"

namespace penstock {

using nlohmann::json;

namespace {

constexpr int kMaxLayers = 1024, kMaxHeads = 1024, kMaxHeadDim = 4096;
constexpr int kMaxDim = 1 << 20, kMaxVocab = 1 << 24;

std::vector<std::string_view> known_architectures(bool gguf) {
  std::vector<std::string_view> names;
  for (const Architecture* architecture : architectures()) {
    if (gguf) names.push_back(architecture->name);
    if (!gguf && !architecture->hf_types.empty()) names.push_back(architecture->hf_types[0]);
  }
  return names;
}

std::string_view nearest(std::string_view name, bool gguf) {
  return nearest_name(name, known_architectures(gguf));
}

Activation read_activation(ConfigReader& reader, Activation fallback) {
  std::string name;
  for (const std::string_view key : {"hidden_activation", "hidden_act", "activation_function"}) {
    if (name.empty()) name = reader.text({"", key}, "");
  }
  if (name.empty()) return fallback;
  if (name == "silu" || name == "swish" || name == "swiglu") return Activation::kSilu;
  if (name == "gelu") return Activation::kGelu;
  if (name == "gelu_new" || name == "gelu_pytorch_tanh" || name == "gelu_fast")
    return Activation::kGeluTanh;
  if (name == "relu") return Activation::kRelu;
  if (name == "relu2") return Activation::kRelu2;
  if (name == "xielu") return Activation::kXielu;
  reader.fail(ErrorCode::kUnsupported,
              fmt::format("activation: expected silu, gelu, gelu_new, gelu_pytorch_tanh, relu, "
                          "relu2 or xielu, got '{}'",
                          name));
  return fallback;
}

constexpr Key kHeads{"attention.head_count", "num_attention_heads"};
constexpr Key kKvHeads{"attention.head_count_kv", "num_key_value_heads"};
constexpr Key kFfnDim{"feed_forward_length", "intermediate_size"};

bool is_list(ConfigReader& reader, Key key) {
  const json* found = reader.find(key);
  return found != nullptr && found->is_array();
}

// Reads a number, or the first nonzero number of a list by layer.
int read_usual(ConfigReader& reader, Key key, int low, int high, std::optional<int> fallback) {
  if (!is_list(reader, key)) return reader.integer(key, low, high, fallback);
  for (const int n : reader.integers(key, 0, high)) {
    if (n > 0) return n;
  }
  return fallback.value_or(high);
}

// Reads sizes listed by layer that differ from the model's. 0 KV heads mean no attention; the
// architecture handles that.
void read_layer_sizes(ConfigReader& reader, ModelConfig& config) {
  const auto read = [&](Key key, int high, int usual, int LayerConfig::* size) {
    if (!is_list(reader, key)) return;
    const std::vector<int> sizes = reader.integers(key, 0, high);
    if (sizes.size() < config.layers.size()) {
      return reader.fail(ErrorCode::kCorruptFile,
                         fmt::format("{}: expected {} numbers, got {}", reader.name(key),
                                     config.layers.size(), sizes.size()));
    }
    for (size_t i = 0; i < config.layers.size(); ++i) {
      if (sizes[i] != usual) config.layers[i].*size = sizes[i];
    }
  };
  read(kHeads, kMaxHeads, config.n_heads, &LayerConfig::n_heads);
  read(kKvHeads, kMaxHeads, config.n_kv_heads, &LayerConfig::n_kv_heads);
  read(kFfnDim, kMaxDim, config.ffn_dim, &LayerConfig::ffn_dim);
}

// Checks that exactly the layers with attention have KV heads.
void check_kv_heads(ConfigReader& reader, const ModelConfig& config) {
  const json* list = reader.find({"attention.head_count_kv", ""});
  if (list == nullptr || !list->is_array()) return;
  bool same =
      list->size() == config.layers.size() + static_cast<size_t>(config.n_next_token_layers);
  for (size_t i = 0; same && i < config.layers.size(); ++i)
    same = ((*list)[i] != 0) == config.layers[i].attention;
  if (!same) {
    reader.fail(ErrorCode::kUnsupported, fmt::format("attention.head_count_kv: architecture {} has "
                                                     "attention in other layers than this list: {}",
                                                     config.arch, list->dump().substr(0, 200)));
  }
}

void read_sizes(ConfigReader& reader, const Architecture& architecture, ModelConfig& config) {
  config.n_layers = reader.integer({"block_count", "num_hidden_layers"}, 1, kMaxLayers);
  // GGUF's count includes layers that predict further tokens.
  const int most_next = reader.gguf() ? std::max(config.n_layers - 1, 0) : kMaxLayers;
  config.n_next_token_layers =
      reader.integer({"nextn_predict_layers", "num_nextn_predict_layers"}, 0, most_next, 0);
  if (reader.gguf()) config.n_layers -= config.n_next_token_layers;
  config.model_dim = reader.integer({"embedding_length", "hidden_size"}, 1, kMaxDim);
  // Files of models without attention or feed-forwards state 0.
  const int least = reader.gguf() && architecture.zero_sizes ? 0 : 1;
  config.n_heads = std::max(1, read_usual(reader, kHeads, least, kMaxHeads, {}));
  config.n_kv_heads =
      std::max(1, read_usual(reader, kKvHeads, least, config.n_heads, config.n_heads));
  config.max_seq_len =
      reader.integer({"context_length", "max_position_embeddings"}, 1, kMaxContextLength, 2048);
  std::optional<int> ffn_dim;
  if (architecture.wide_ffn && !reader.gguf()) ffn_dim = std::min(4 * config.model_dim, kMaxDim);
  // Optional if all layers have experts.
  const Key expert_width{"expert_feed_forward_length", "moe_intermediate_size"};
  if (!ffn_dim && reader.has(expert_width))
    ffn_dim = read_usual(reader, expert_width, 1, kMaxDim, {});
  config.ffn_dim = read_usual(reader, kFfnDim, least, kMaxDim, ffn_dim);
  config.head_dim =
      reader.integer({"attention.key_length", "head_dim"}, 1, kMaxHeadDim,
                     std::clamp(config.model_dim / std::max(config.n_heads, 1), 1, kMaxHeadDim));
  const bool latent = reader.has({"attention.kv_lora_rank", "kv_lora_rank"});
  if (!latent && !architecture.narrow_values &&
      reader.integer({"attention.value_length", ""}, 1, kMaxHeadDim, config.head_dim) !=
          config.head_dim)
    reader.fail(ErrorCode::kUnsupported, "keys and values of different sizes are not supported");
  Key eps{"attention.layer_norm_rms_epsilon", "rms_norm_eps"};
  if (reader.gguf() && !reader.has(eps)) eps = {"attention.layer_norm_epsilon", ""};
  config.norm.eps = reader.number(eps, 0.0f, 1.0f, reader.gguf() ? 1e-5f : 1e-6f);
}

// Meaningful keys of several architectures, in addition to Architecture::own_keys.
constexpr MeaningfulKey kSharedKeys[] = {
    {{"", "layer_types"}, 0},
    {{"", "use_qk_norm"}, 0},
    {{"expert_count", "num_experts"}, 1},
    {{"", "num_local_experts"}, 0},
    {{"", "n_routed_experts"}, 0},
    {{"", "moe_num_experts"}, 0},
};

bool is_neutral(const json& value, double neutral) {
  if (value.is_boolean()) return !value.get<bool>();
  if (value.is_number()) return value.get<double>() == neutral || value.get<double>() == 0.0;
  if (!value.is_array()) return false;
  return std::ranges::all_of(value, [](const json& item) { return item == "full_attention"; });
}

void check_understood(ConfigReader& reader, std::span<const MeaningfulKey> keys,
                      const Architecture& architecture) {
  for (const auto& [key, neutral] : keys) {
    const std::string_view name = reader.gguf() ? key.gguf : key.hf;
    if (name.empty() || reader.was_asked_for(name)) continue;
    const json* value = reader.find(key);
    if (value == nullptr || is_neutral(*value, neutral)) continue;
    reader.fail(
        ErrorCode::kUnsupported,
        fmt::format("{}: {} is not understood for architecture {}", name,
                    value->dump(-1, ' ', true, json::error_handler_t::replace).substr(0, 60),
                    architecture.name));
  }
}

void check_all_understood(ConfigReader& reader, const Architecture& architecture) {
  check_understood(reader, kSharedKeys, architecture);
  for (const Architecture* other : architectures())
    check_understood(reader, other->own_keys, architecture);
}

// Looks up the list of tensors, since find() may encode the matrix.
const TensorInfo* listed(const WeightSource& source, std::string_view name) {
  return source.WeightSource::find(name);
}

void check_heads(ConfigReader& reader, const ModelConfig& config, int layer) {
  const Architecture* row = find_architecture(config.arch);
  if (config.n_heads_of(layer) != config.n_heads && (row == nullptr || !row->heads_by_layer)) {
    reader.fail(
        ErrorCode::kUnsupported,
        fmt::format("{}: {} and {} heads: layers of architecture {} have equally many",
                    reader.name(kHeads), config.n_heads, config.n_heads_of(layer), config.arch));
  }
  const int n_kv_heads = config.n_kv_heads_of(layer), head_dim = config.head_dim_of(layer);
  const bool ordered = config.attention.qkv_by_group || config.attention.qkv_shards > 0;
  if (ordered && n_kv_heads != config.n_kv_heads) {
    reader.fail(ErrorCode::kUnsupported,
                fmt::format("{}: {} and {}: layers with fused projections have equally many",
                            reader.name(kKvHeads), config.n_kv_heads, n_kv_heads));
  }
  if (config.n_heads_of(layer) % n_kv_heads != 0) {
    reader.fail(
        ErrorCode::kCorruptFile,
        fmt::format("expected a number of heads that is a multiple of the {} KV heads, got {}",
                    n_kv_heads, config.n_heads_of(layer)));
  }
  const int index = config.layers[static_cast<size_t>(layer)].rope;
  if (index < 0 || config.ropes.empty()) return;
  const int rotary_dim = config.ropes[static_cast<size_t>(index)].rotary_dim;
  if (rotary_dim < 2 || rotary_dim > head_dim || rotary_dim % 2 != 0) {
    reader.fail(ErrorCode::kCorruptFile,
                fmt::format("expected an even number of rotated dimensions in 2..{}, got {}",
                            head_dim, rotary_dim));
  }
}

// Checks and derives values that depend on several keys.
void finish(ConfigReader& reader, ModelConfig& config) {
  check_kv_heads(reader, config);
  for (int i = 0; i < config.n_layers; ++i) check_heads(reader, config, i);
  if (config.attention.scale == 0.0f)
    config.attention.scale = 1.0f / std::sqrt(static_cast<float>(config.head_dim));
  const auto is_mixture = [](const LayerConfig& layer) { return layer.moe; };
  const bool both = config.experts.beside_dense || config.experts.reads_early;
  if (std::ranges::all_of(config.layers, is_mixture) && !both) config.ffn_dim = 0;
  for (LayerConfig& layer : config.layers) {
    const bool own = layer.activation.kind == Activation::kBoundedSilu ||
                     layer.activation.kind == Activation::kCappedSilu ||
                     (layer.activation.kind == Activation::kXielu &&
                      layer.activation.kind == config.ffn.activation.kind);
    if (!own) layer.activation = config.ffn.activation;
  }
}

// Makes an encoder of a decoder whose tokens see the whole text (gte-Qwen2, Nemotron 3 Embed), as
// transformers does: windows of w tokens then reach w tokens back and w ahead. llama.cpp, which
// bounds only what is before a token, has no such files.
void read_causality(ConfigReader& reader, const Architecture& architecture, ModelConfig& config) {
  if (reader.flag({"attention.causal", "is_causal"}, true) || !config.attention.causal) return;
  const auto is_plain = [&](const LayerConfig& layer) {
    return layer.attention && !(reader.gguf() && layer.window > 0) && layer.mixer == nullptr &&
           !layer.chunked && layer.kv_layer < 0 && layer.selecting_layer < 0 &&
           layer.entry_ratio == 0;
  };
  if (architecture.forward != decoder_forward || config.latent.kv_rank > 0 ||
      !std::ranges::all_of(config.layers, is_plain)) {
    return reader.fail(ErrorCode::kUnsupported,
                       fmt::format("{}: false: layers of architecture {} see earlier tokens only",
                                   reader.name({"attention.causal", "is_causal"}), config.arch));
  }
  config.attention.causal = config.output.has_head = false;
  for (LayerConfig& layer : config.layers) {
    layer.sees_parts = false;
    if (layer.window > 0) ++layer.window;
  }
}

// Whether a directory has an output matrix that differs from the embedding, although its
// configuration ties them.
bool head_differs(const WeightSource& source, const ModelConfig& config) {
  const TensorInfo* head = listed(source, std::string(output_stem(source)) + ".weight");
  if (head == nullptr) return false;
  const std::string ending =
      std::string(tensor_names(config, Naming::kHuggingFace).embedding) + ".weight";
  const TensorInfo* table = nullptr;
  for (const TensorInfo& tensor : source.tensors()) {
    if (!tensor.name.ends_with(ending)) continue;
    if (table == nullptr || tensor.name.size() < table->name.size()) table = &tensor;
  }
  return table != nullptr &&
         (table->type != head->type || !std::ranges::equal(table->bytes, head->bytes));
}

// Returns the number of layers of the tower whose features are added behind layers of the decoder
// (DeepStack).
int deep_levels(ConfigReader& reader, const WeightSource& source, int n_layers) {
  if (reader.gguf()) return reader.integer({"n_deepstack_layers", ""}, 0, n_layers, 0);
  const json::json_pointer key("/vision_config/deepstack_visual_indexes");
  const json& config = multimodal_part(source.config());
  const json* indexes = config.contains(key) ? &config[key] : nullptr;
  return indexes != nullptr && indexes->is_array()
             ? static_cast<int>(std::min<size_t>(indexes->size(), static_cast<size_t>(n_layers)))
             : 0;
}

Result<ModelConfig> read(ConfigReader& reader, const Architecture& architecture,
                         const WeightSource* source) {
  ModelConfig config;
  config.arch = architecture.name;
  reader.set_source(source);
  read_sizes(reader, architecture, config);
  const TensorInfo* table =
      source == nullptr || !reader.gguf() ? nullptr : listed(*source, "token_embd.weight");
  if (table != nullptr && table->shape.size() == 2 && table->shape[0] >= 1 &&
      table->shape[0] <= kMaxVocab) {
    config.vocab_size = static_cast<int>(table->shape[0]);
  } else {
    config.vocab_size = reader.integer({"vocab_size", "vocab_size"}, 1, kMaxVocab);
  }
  RETURN_IF_ERROR(reader.status());  // the sizes are used below

  const bool knows = source != nullptr;
  config.embedding.tied = reader.gguf() ? knows && listed(*source, "output.weight") == nullptr
                                        : reader.flag({"", "tie_word_embeddings"},
                                                      knows && output_stem(*source).empty());
  config.ffn.activation = read_activation(reader, Activation::kSilu);
  config.layers.resize(static_cast<size_t>(config.n_layers));
  if (knows) config.embedding.deep_levels = deep_levels(reader, *source, config.n_layers);
  read_layer_sizes(reader, config);
  config.ropes = {read_rope(reader, config)};
  config.attention.qkv_by_group = architecture.hf_qkv_by_group && !reader.gguf();
  architecture.configure(reader, config);
  read_causality(reader, architecture, config);
  // As transformers does: two different matrices are not tied, whatever the configuration says.
  const bool tied =
      reader.status() && !reader.gguf() && config.embedding.tied && config.output.has_head;
  if (tied && source != nullptr && head_differs(*source, config)) config.embedding.tied = false;
  check_all_understood(reader, architecture);
  finish(reader, config);
  RETURN_IF_ERROR(reader.status());
  return config;
}

// Reads penstock.exit_layer (GGUF) or penstock_exit_layer (config.json), which training may have
// added.
Status read_exit_layer(const json& metadata, const char* key, const std::string& where,
                       ModelConfig& config) {
  const auto found = metadata.find(key);
  if (found == metadata.end() || found->is_null()) return {};
  const int64_t layer = found->is_number_integer() ? found->get<int64_t>() : -1;
  if (layer < 1 || layer >= config.n_layers) {
    return errorf(ErrorCode::kCorruptFile, "{}: {}: expected a layer in 1..{}, got {}", where, key,
                  config.n_layers - 1, found->dump(-1, ' ', true, json::error_handler_t::replace));
  }
  config.exit_layer = static_cast<int>(layer);
  return {};
}

Result<ModelConfig> read_gguf(const WeightSource& source) {
  const json& metadata = source.config();
  const auto text = [&](const char* key) {
    const auto found = metadata.find(key);
    return found != metadata.end() && found->is_string() ? found->get<std::string>()
                                                         : std::string();
  };
  const std::string where = source.path().string(), name = text("general.architecture");
  const Architecture* architecture = find_architecture(name);
  if (architecture == nullptr) {
    return errorf(
        ErrorCode::kUnsupported,
        "{}: general.architecture: '{}' is no architecture that is known here; nearest: {} (of {})",
        where, name, nearest(name, true), fmt::join(known_architectures(true), ", "));
  }
  ConfigReader reader(metadata, Naming::kGguf, name, where);
  ASSIGN_OR_RETURN(ModelConfig config, read(reader, *architecture, &source));
  config.name = text("general.name");
  RETURN_IF_ERROR(read_exit_layer(metadata, "penstock.exit_layer", where, config));
  return config;
}

const Architecture* find_hf_architecture(std::string_view type) {
  for (const Architecture* architecture : architectures()) {
    if (std::ranges::find(architecture->hf_types, type) != architecture->hf_types.end())
      return architecture;
  }
  return nullptr;
}

// The architecture that a configuration names, null if it is not known; and whether it is a decoder
// whose tokens see the whole text (llama_bidirec, Lfm2BidirectionalModel).
struct NamedArchitecture {
  std::string type;
  const Architecture* architecture = nullptr;
  bool sees_all = false;
};

// part: the text model's configuration, which may be inside that of the whole model.
NamedArchitecture named_architecture(const json& part, const json& whole) {
  NamedArchitecture found;
  for (const json* candidate : {&part, &whole}) {
    const auto type = candidate->find("model_type");
    if (found.type.empty() && type != candidate->end() && type->is_string())
      found.type = type->get<std::string>();
  }
  constexpr std::string_view kSeesAll = "_bidirec";
  found.sees_all = found.type.ends_with(kSeesAll);
  if (found.sees_all) found.type.resize(found.type.size() - kSeesAll.size());
  found.architecture = find_hf_architecture(found.type);
  for (const json* candidate : {&part, &whole}) {
    const auto classes = candidate->find("architectures");
    if (classes == candidate->end() || !classes->is_array() || classes->empty() ||
        !(*classes)[0].is_string())
      continue;
    const auto& name = (*classes)[0].get_ref<const std::string&>();
    found.sees_all |= name.find("Bidirectional") != std::string::npos;
    const Architecture* named = find_hf_architecture(name);
    if (found.architecture == nullptr || (named != nullptr && named->named_by_class))
      found.architecture = named;
  }
  return found;
}

// Adds rope_scaling, which makers tell users to write into config.json, to rope_parameters, as
// transformers does. rope_parameters of each kind of layer stay as they are.
void join_ropes(json& object) {
  const auto added = object.find("rope_scaling"), saved = object.find("rope_parameters");
  if (added == object.end() || saved == object.end() || !added->is_object() || added->empty() ||
      !saved->is_object() ||
      std::ranges::any_of(*saved, [](const json& one) { return one.is_object(); }))
    return;
  json joined = *saved;
  if (added->contains("type")) joined.erase("rope_type");  // its older name
  joined.update(*added);
  object["rope_parameters"] = std::move(joined);
}

void use_usual_names(const Architecture& architecture, json& object) {
  if (architecture.hf_aliases.empty()) return;
  const json aliases = bounded_json(architecture.hf_aliases);
  for (const auto& [theirs, usual] : aliases.items()) {
    const auto found = object.find(theirs);
    if (found == object.end() || found->is_null()) continue;
    object[usual.get_ref<const std::string&>()] = json(*found);
  }
}

// Derives the number of layers from their list.
void count_layers(json& object) {
  if (object.contains("num_hidden_layers")) return;
  for (const char* key : {"layers_block_type", "layer_types", "hybrid_override_pattern"}) {
    const auto list = object.find(key);
    if (list == object.end()) continue;
    if (list->is_array()) object["num_hidden_layers"] = list->size();
    if (list->is_string()) object["num_hidden_layers"] = list->get_ref<const std::string&>().size();
    return;
  }
}

// Adds defaults for absent keys.
void add_defaults(json defaults, json& object) {
  defaults.update(object);
  object = std::move(defaults);
}

// Refuses directories of a tower only, which name their text model (Ultravox).
Status check_text_is_here(const json& file, const std::string& where) {
  const auto apart = file.find("text_model_id");
  if (apart == file.end() || !apart->is_string()) return {};
  return errorf(ErrorCode::kUnsupported,
                "{}: config.json: text_model_id: the weights of the text model are not in this "
                "directory, but in '{}': open that one, and this directory as its tower (mmproj)",
                where, apart->get_ref<const std::string&>().substr(0, 200));
}

// source: null if no tensors are known.
Result<ModelConfig> read_hf(const json& file, const WeightSource* source,
                            const std::string& where) {
  if (!file.is_object())
    return errorf(ErrorCode::kCorruptFile, "{}: config.json: expected an object", where);
  const json& part = text_part(file);
  const bool nested = &part != &file;
  json object = part;
  // its prompts are not causal, unlike those of the Gemma text model inside
  if (file.value("model_type", json()) == "paligemma")
    return errorf(
        ErrorCode::kUnsupported,
        "{}: config.json: model_type: the prompts of 'paligemma' are seen from both sides, which "
        "is not supported",
        where);

  if (!nested) RETURN_IF_ERROR(check_text_is_here(file, where));
  const auto [type, architecture, sees_all] = named_architecture(object, file);
  if (architecture == nullptr) {
    return errorf(ErrorCode::kUnsupported,
                  "{}: config.json: model_type: '{}' is no architecture that is known here; "
                  "nearest: {} (of {})",
                  where, type, nearest(type, false), fmt::join(known_architectures(false), ", "));
  }
  // The output matrix belongs to the outer model: tied if either configuration says so, unless the
  // file has two different matrices.
  if (nested) {
    const auto outer = file.find("tie_word_embeddings");
    if (outer != file.end() && (*outer == true || !object.contains("tie_word_embeddings")))
      object["tie_word_embeddings"] = *outer;
  }
  if (sees_all && !object.contains("is_causal")) object["is_causal"] = false;
  join_ropes(object);
  use_usual_names(*architecture, object);
  if (architecture->hf_usual != nullptr) architecture->hf_usual(object);
  count_layers(object);
  if (!architecture->hf_defaults.empty())
    add_defaults(bounded_json(architecture->hf_defaults), object);
  // transformers omits sizes of a nested text model that equal the defaults of its class.
  if (nested) {
    const json sizes = hf_sizes(type);
    add_defaults(sizes.empty() ? hf_sizes(architecture->hf_types[0]) : sizes, object);
  }
  const json* quantization = quantization_config_of(file);
  if (quantization != nullptr && quantization->is_object()) {
    // MXFP4 experts have separate tensors; all others are stored plainly.
    const bool plain_beside =
        quantization->value("quant_method", json()) == "mxfp4" && architecture->name == "gpt-oss";
    if (!architecture->name.starts_with("bitnet") && !plain_beside && source != nullptr) {
      ASSIGN_OR_RETURN(const auto layers, open_prequantized(*source));
      if (layers == nullptr) {
        return errorf(ErrorCode::kUnsupported,
                      "{}: config.json: quantization_config: cannot read quant_method {}", where,
                      quantization->value("quant_method", json("(missing)")).dump());
      }
    }
    object["quantization_config"] = *quantization;
  }
  ConfigReader reader(object, Naming::kHuggingFace, "", where + ": config.json");
  ASSIGN_OR_RETURN(ModelConfig config, read(reader, *architecture, source));
  RETURN_IF_ERROR(read_exit_layer(object, "penstock_exit_layer", where + ": config.json", config));
  return config;
}

// Cuts a shape to its first `text` layers.
Status keep_layers(std::string_view text, nlohmann::json& fields) {
  const auto given = fields.find("num_hidden_layers");
  if (given == fields.end() || !given->is_number_unsigned())
    return make_error(ErrorCode::kInvalidArgument, "shape: its layers are not cut");
  const auto all = given->get<size_t>();
  size_t n = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), n);
  if (error != std::errc() || end != text.data() + text.size() || n < 1 || n > all)
    return errorf(ErrorCode::kInvalidArgument,
                  "shape: expected 1 to {} layers behind the colon, got '{}'", all, text);
  fields["num_hidden_layers"] = n;
  for (auto& field : fields)
    if (field.is_array() && field.size() == all)
      field.erase(field.begin() + static_cast<ptrdiff_t>(n), field.end());
  return {};
}

}  // namespace

Result<ModelConfig> read_config(const WeightSource& source) {
  if (source.naming() == Naming::kGguf) return read_gguf(source);
  ASSIGN_OR_RETURN(ModelConfig config, read_hf(source.config(), &source, source.path().string()));
  config.name = source.path().filename().string();
  return config;
}

Result<ModelConfig> config_from_shape(std::string_view name) {
  const std::string_view shape_name = name.substr(0, name.find(':'));
  std::string known;
  for (const NamedShape& shape : named_shapes()) {
    if (shape.name == shape_name) {
      nlohmann::json fields = bounded_json(shape.config);
      if (name.size() > shape_name.size())
        RETURN_IF_ERROR(keep_layers(name.substr(shape_name.size() + 1), fields));
      ASSIGN_OR_RETURN(ModelConfig config, read_hf(fields, nullptr, std::string(name)));
      config.name = name;
      return config;
    }
    known += (known.empty() ? "" : ", ") + std::string(shape.name);
  }
  return errorf(ErrorCode::kNotFound, "shape '{}': expected one of {}", name, known);
}

}  // namespace penstock
