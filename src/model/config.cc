#include "model/config.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "formats/prequantized.h"
#include "model/arch/archs.h"
#include "model/config_reader.h"
#include "model/rope.h"

namespace penstock {

using nlohmann::json;

namespace {

constexpr int kMaxLayers = 1024, kMaxHeads = 1024, kMaxHeadDim = 4096;
constexpr int kMaxDim = 1 << 20, kMaxVocab = 1 << 24;

std::string known_architectures(bool gguf) {
  std::string names;
  for (const Architecture& architecture : architectures()) {
    const std::string_view name = gguf                            ? architecture.name
                                  : architecture.hf_types.empty() ? ""
                                                                  : architecture.hf_types[0];
    if (!name.empty()) names += (names.empty() ? "" : ", ") + std::string(name);
  }
  return names;
}

Activation read_activation(ConfigReader& reader, Activation fallback) {
  std::string name;
  for (const std::string_view key : {"hidden_activation", "hidden_act", "activation_function"}) {
    if (name.empty()) name = reader.text({"", key}, "");
  }
  if (name.empty()) return fallback;
  if (name == "silu" || name == "swish") return Activation::kSilu;
  if (name == "gelu") return Activation::kGelu;
  if (name == "gelu_new" || name == "gelu_pytorch_tanh" || name == "gelu_fast") return Activation::kGeluTanh;
  if (name == "relu") return Activation::kRelu;
  if (name == "relu2") return Activation::kRelu2;
  reader.fail(
      ErrorCode::kUnsupported,
      fmt::format("activation: expected silu, gelu, gelu_new, gelu_pytorch_tanh, relu or relu2, got '{}'",
                  name));
  return fallback;
}

void read_sizes(ConfigReader& reader, ModelConfig& config) {
  const auto size = [&](Key key, std::string_view gpt2_name, int high, std::optional<int> fallback = {}) {
    if (!reader.has(key) && reader.has({"", gpt2_name})) key.hf = gpt2_name;
    return reader.integer(key, 1, high, fallback);
  };
  config.n_layers = size({"block_count", "num_hidden_layers"}, "n_layer", kMaxLayers);
  config.model_dim = size({"embedding_length", "hidden_size"}, "n_embd", kMaxDim);
  config.n_heads = size({"attention.head_count", "num_attention_heads"}, "n_head", kMaxHeads);
  config.n_kv_heads =
      size({"attention.head_count_kv", "num_key_value_heads"}, "", config.n_heads, config.n_heads);
  config.max_seq_len =
      size({"context_length", "max_position_embeddings"}, "n_positions", kMaxContextLength, 2048);
  const bool gpt2 = reader.has({"", "n_embd"});
  config.ffn_dim = size({"feed_forward_length", "intermediate_size"}, "n_inner", kMaxDim,
                        gpt2 ? std::optional<int>(std::min(4 * config.model_dim, kMaxDim)) : std::nullopt);
  config.head_dim = size({"attention.key_length", "head_dim"}, "", kMaxHeadDim,
                         std::clamp(config.model_dim / std::max(config.n_heads, 1), 1, kMaxHeadDim));
  if (reader.integer({"attention.value_length", ""}, 1, kMaxHeadDim, config.head_dim) != config.head_dim)
    reader.fail(ErrorCode::kUnsupported, "keys and values of different sizes are not supported");
  if (config.n_heads % std::max(config.n_kv_heads, 1) != 0) {
    reader.fail(ErrorCode::kCorruptFile,
                fmt::format("expected a number of heads that is a multiple of the {} KV heads, "
                            "got {}",
                            config.n_kv_heads, config.n_heads));
  }
  Key eps{"attention.layer_norm_rms_epsilon", "rms_norm_eps"};
  if (!reader.has(eps)) eps = {"attention.layer_norm_epsilon", "layer_norm_epsilon"};
  if (!reader.has(eps)) eps = {"attention.layer_norm_rms_epsilon", "layer_norm_eps"};
  config.norm_eps = reader.number(eps, 0.0f, 1.0f, reader.gguf() ? 1e-5f : 1e-6f);
}

// The entry of the source's list: looking a matrix up may encode it.
const TensorInfo* listed(const WeightSource& source, std::string_view name) {
  return source.WeightSource::find(name);
}

Result<ModelConfig> read(ConfigReader& reader, const Architecture& architecture, const WeightSource* source) {
  ModelConfig config;
  config.arch = architecture.name;
  read_sizes(reader, config);
  const TensorInfo* table =
      source == nullptr || !reader.gguf() ? nullptr : listed(*source, "token_embd.weight");
  if (table != nullptr && table->shape.size() == 2 && table->shape[0] >= 1 && table->shape[0] <= kMaxVocab) {
    config.vocab_size = static_cast<int>(table->shape[0]);
  } else {
    config.vocab_size = reader.integer({"vocab_size", "vocab_size"}, 1, kMaxVocab);
  }
  RETURN_IF_ERROR(reader.status());  // sizes are used from here on

  const auto no_head = [&](std::string_view name) {
    return source != nullptr && listed(*source, name) == nullptr;
  };
  config.tied_embeddings = reader.gguf()
                               ? no_head("output.weight")
                               : reader.flag({"", "tie_word_embeddings"}, no_head("lm_head.weight"));
  config.activation = read_activation(reader, Activation::kSilu);
  config.layers.resize(static_cast<size_t>(config.n_layers));
  config.ropes = {read_rope(reader, config)};
  architecture.configure(reader, config);

  for (const RopeConfig& rope : config.ropes) {
    if (rope.rotary_dim < 2 || rope.rotary_dim > config.head_dim || rope.rotary_dim % 2 != 0) {
      reader.fail(ErrorCode::kCorruptFile,
                  fmt::format("expected an even number of rotated dimensions in 2..{}, got {}",
                              config.head_dim, rope.rotary_dim));
    }
  }
  if (config.attention_scale == 0.0f)
    config.attention_scale = 1.0f / std::sqrt(static_cast<float>(config.head_dim));
  if (std::all_of(config.layers.begin(), config.layers.end(),
                  [](const LayerConfig& layer) { return layer.moe; }))
    config.ffn_dim = 0;
  RETURN_IF_ERROR(reader.status());
  return config;
}

// penstock.exit_layer (GGUF) or penstock_exit_layer (config.json), where the training left one.
Status read_exit_layer(const json& metadata, const char* key, const std::string& where, ModelConfig& config) {
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
    return found != metadata.end() && found->is_string() ? found->get<std::string>() : std::string();
  };
  const std::string where = source.path().string(), name = text("general.architecture");
  const Architecture* architecture = find_architecture(name);
  if (architecture == nullptr) {
    return errorf(ErrorCode::kUnsupported, "{}: general.architecture: expected one of {}, got '{}'", where,
                  known_architectures(true), name);
  }
  ConfigReader reader(metadata, Naming::kGguf, name, where);
  ASSIGN_OR_RETURN(ModelConfig config, read(reader, *architecture, &source));
  config.name = text("general.name");
  RETURN_IF_ERROR(read_exit_layer(metadata, "penstock.exit_layer", where, config));
  return config;
}

const Architecture* find_hf_architecture(std::string_view type) {
  for (const Architecture& architecture : architectures()) {
    if (std::ranges::find(architecture.hf_types, type) != architecture.hf_types.end()) return &architecture;
  }
  return nullptr;
}

// `source` may be null: then nothing is known of tensors.
Result<ModelConfig> read_hf(const json& file, const WeightSource* source, const std::string& where) {
  if (!file.is_object()) return errorf(ErrorCode::kCorruptFile, "{}: config.json: expected an object", where);
  // A text model inside a multimodal one has its own object.
  const auto nested = file.find("text_config");
  json object = nested != file.end() && nested->is_object() ? *nested : file;

  std::string type;
  for (const json* candidate : {static_cast<const json*>(&object), &file}) {
    const auto found = candidate->find("model_type");
    if (type.empty() && found != candidate->end() && found->is_string()) type = found->get<std::string>();
  }
  const Architecture* architecture = find_hf_architecture(type);
  const auto classes = file.find("architectures");
  if (architecture == nullptr && classes != file.end() && classes->is_array() && !classes->empty() &&
      (*classes)[0].is_string()) {
    architecture = find_hf_architecture((*classes)[0].get<std::string>());
  }
  if (architecture == nullptr) {
    return errorf(ErrorCode::kUnsupported, "{}: config.json: model_type: expected one of {}, got '{}'", where,
                  known_architectures(false), type);
  }
  if (!architecture->hf_defaults.empty()) {
    json merged = json::parse(architecture->hf_defaults);
    merged.update(object);
    object = std::move(merged);
  }
  const auto quantization = file.find("quantization_config");
  if (quantization != file.end() && quantization->is_object()) {
    if (!architecture->name.starts_with("bitnet") && source != nullptr) {
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

}  // namespace

Result<ModelConfig> read_config(const WeightSource& source) {
  if (source.naming() == Naming::kGguf) return read_gguf(source);
  ASSIGN_OR_RETURN(ModelConfig config, read_hf(source.config(), &source, source.path().string()));
  config.name = source.path().filename().string();
  return config;
}

Result<ModelConfig> config_from_shape(std::string_view name) {
  std::string known;
  for (const NamedShape& shape : named_shapes()) {
    if (shape.name == name) {
      ASSIGN_OR_RETURN(ModelConfig config, read_hf(json::parse(shape.config), nullptr, std::string(name)));
      config.name = name;
      return config;
    }
    known += (known.empty() ? "" : ", ") + std::string(shape.name);
  }
  return errorf(ErrorCode::kNotFound, "shape '{}': expected one of {}", name, known);
}

CacheSpec ModelConfig::cache_spec(KvDType dtype, int block_size) const {
  CacheSpec spec;
  spec.dtype = dtype;
  spec.block_size = block_size;
  for (const LayerConfig& layer : layers)
    spec.layers.push_back({n_kv_heads, head_dim, layer.window, layer.group});
  return spec;
}

namespace {

int64_t count_parameters(const ModelConfig& c, bool active) {
  const int64_t dim = c.model_dim, q = c.q_dim(), kv = c.kv_dim();
  const int64_t attention = dim * (q + 2 * kv) + q * dim;
  const int64_t dense = (c.gated_ffn ? 3 : 2) * dim * c.ffn_dim;
  const int64_t expert = 3 * dim * c.expert_ffn_dim;
  int64_t norms = c.norms == NormPlacement::kBoth ? 4 * dim : 2 * dim;
  if (c.qk_norm == QkNorm::kHead) norms += 2 * c.head_dim;
  if (c.qk_norm == QkNorm::kRow) norms += q + kv;
  if (c.sub_norms) norms += q + c.ffn_dim;
  int64_t total = dim + (c.tied_embeddings ? 1 : 2) * dim * c.vocab_size;
  if (active && !c.tied_embeddings) total -= dim * c.vocab_size;  // looking a row up reads one row
  for (const LayerConfig& layer : c.layers) {
    const int64_t experts = active ? c.n_active_experts : c.n_experts;
    total += attention + norms + (layer.moe ? experts * expert + dim * c.n_experts : dense);
  }
  if (c.learned_positions && !active) total += dim * c.max_seq_len;
  return total;
}

}  // namespace

int64_t ModelConfig::n_parameters() const { return count_parameters(*this, false); }
int64_t ModelConfig::n_active_parameters() const { return count_parameters(*this, true); }

}  // namespace penstock
