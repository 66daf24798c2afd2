// Gemma 4 (text): layers with full attention have larger heads, of which proportional rope rotates
// a part; the last layers attend to keys and values of earlier ones; some sizes have per-layer
// inputs, others experts beside the feed-forward.
#include <array>
#include <charconv>
#include <cmath>
#include <nlohmann/json.hpp>

#include "model/arch/archs.h"
#include "model/arch/rope.h"
#include "model/blocks/per_layer.h"
#include "model/forward/decoder.h"

namespace penstock {

using nlohmann::json;

namespace {

constexpr int kMostHeadDim = 4096;

// transformers gives the last layer full attention, whatever its list says.
void read_layer_types(ConfigReader& reader, ModelConfig& config) {
  read_windows(reader, config, 6, 512);
  if (!reader.gguf()) config.layers.back().window = 0;
}

// Sets the head sizes of layers with full attention.
void read_wide_heads(ConfigReader& reader, ModelConfig& config, int head_dim, int n_kv_heads) {
  for (LayerConfig& layer : config.layers) {
    if (layer.window > 0) continue;
    if (head_dim != config.head_dim) layer.head_dim = head_dim;
    if (n_kv_heads > 0 && n_kv_heads != config.n_kv_heads) layer.n_kv_heads = n_kv_heads;
  }
  const json* overrides = reader.find({"", "per_layer_config"});
  if (overrides == nullptr) return;
  for (const auto& [number, own] : overrides->items()) {
    // transformers pads numbers to the width of the last layer's: "05".
    size_t i = config.layers.size();
    const char* const end = number.data() + number.size();
    const bool whole = std::from_chars(number.data(), end, i).ptr == end;
    if (!whole || i >= config.layers.size()) {
      return reader.fail(ErrorCode::kUnsupported,
                         fmt::format("per_layer_config: expected a layer in 0..{}, got '{}'",
                                     config.n_layers - 1, number));
    }
    ConfigReader inner(own, Naming::kHuggingFace, "",
                       fmt::format("{}: per_layer_config: {}", reader.where(), i));
    for (const auto& [key, value] : own.items()) {
      if (key != "head_dim" && key != "num_key_value_heads")
        inner.fail(ErrorCode::kUnsupported, fmt::format("{} is not understood", key));
    }
    config.layers[i].head_dim = inner.integer({"", "head_dim"}, 1, kMostHeadDim, config.head_dim);
    config.layers[i].n_kv_heads =
        inner.integer({"", "num_key_value_heads"}, 1, config.n_heads, config.n_kv_heads);
    reader.merge(inner);
  }
}

// Sets keys_as_values in layers with full attention that have own keys.
void use_keys_as_values(ModelConfig& config) {
  for (LayerConfig& layer : config.layers)
    layer.keys_as_values = layer.window == 0 && layer.kv_layer < 0;
}

// Whether some layer of a GGUF file has the tensor; any: all layers are searched, else those with
// full attention and own keys.
bool in_some_layer(ConfigReader& reader, const ModelConfig& config, std::string_view tensor,
                   bool any) {
  for (int i = 0; i < config.n_layers; ++i) {
    const LayerConfig& layer = config.layers[static_cast<size_t>(i)];
    if ((any || (layer.window == 0 && layer.kv_layer < 0)) &&
        reader.has_tensor(fmt::format("blk.{}.{}", i, tensor)))
      return true;
  }
  return false;
}

// Sets the model's number of KV heads to that of layers with a window.
void use_heads_of_windows(ModelConfig& config) {
  const auto with_window = std::ranges::find_if(
      config.layers, [](const LayerConfig& layer) { return layer.window > 0; });
  if (with_window == config.layers.end() || with_window->n_kv_heads == 0) return;
  const int usual = with_window->n_kv_heads;
  for (LayerConfig& layer : config.layers) {
    const int own = layer.n_kv_heads > 0 ? layer.n_kv_heads : config.n_kv_heads;
    layer.n_kv_heads = own == usual ? 0 : own;
  }
  config.n_kv_heads = usual;
}

// key_length in GGUF is that of layers with full attention.
void read_heads(ConfigReader& reader, ModelConfig& config) {
  if (reader.gguf()) {
    use_heads_of_windows(config);
    const int wide = config.head_dim;
    config.head_dim = reader.integer({"attention.key_length_swa", ""}, 1, kMostHeadDim, wide);
    if (reader.integer({"attention.value_length_swa", ""}, 1, kMostHeadDim, config.head_dim) !=
        config.head_dim)
      reader.fail(ErrorCode::kUnsupported, "keys and values of different sizes are not supported");
    return read_wide_heads(reader, config, wide, 0);
  }
  // per_layer_config overrides the other keys
  const bool says_all = reader.has({"", "per_layer_config"});
  const int wide =
      reader.integer({"", "global_head_dim"}, 1, kMostHeadDim, says_all ? config.head_dim : 512);
  const int n_wide =
      reader.integer({"", "num_global_key_value_heads"}, 1, config.n_heads, config.n_kv_heads);
  const bool keys_as_values = reader.flag({"", "attention_k_eq_v"}, false);
  read_wide_heads(reader, config, wide, keys_as_values ? n_wide : 0);
  if (keys_as_values) use_keys_as_values(config);
}

// Reads rope 0 for layers with full attention and rope 1 for layers with a window.
void read_ropes(ConfigReader& reader, ModelConfig& config) {
  ModelConfig wide = config;
  for (int i = 0; i < config.n_layers; ++i) {
    if (config.layers[static_cast<size_t>(i)].window == 0) wide.head_dim = config.head_dim_of(i);
  }
  RopeConfig full, local;
  if (reader.gguf()) {
    full = config.ropes[0];
    local.rotary_dim =
        reader.integer({"rope.dimension_count_swa", ""}, 2, kMostHeadDim, config.head_dim);
    local.theta = reader.number({"rope.freq_base_swa", ""}, 1.0f, 1e12f, 10000.0f);
    local.tensor_factors = false;
  } else {
    static const json kDefault = {
        {"sliding_attention", {{"rope_type", "default"}, {"rope_theta", 1e4}}},
        {"full_attention",
         {{"rope_type", "proportional"}, {"partial_rotary_factor", 0.25}, {"rope_theta", 1e6}}}};
    const json* given = reader.find({"", "rope_parameters"});
    const json& parameters = given == nullptr ? kDefault : *given;
    for (const char* kind : {"full_attention", "sliding_attention"}) {
      if (!parameters.is_object() || !parameters.contains(kind) || !parameters[kind].is_object()) {
        const bool needed = std::ranges::any_of(config.layers, [&](const LayerConfig& layer) {
          return (layer.window > 0) == (kind[0] == 's');
        });
        if (needed)
          return reader.fail(ErrorCode::kCorruptFile,
                             fmt::format("rope_parameters: {} is missing", kind));
        continue;
      }
      (kind[0] == 's' ? local : full) =
          read_hf_rope(reader, parameters[kind], kind[0] == 's' ? config : wide, 10000.0f);
    }
  }
  config.ropes = {full, local};
  for (LayerConfig& layer : config.layers) layer.rope = layer.window > 0 ? 1 : 0;
}

void read_mixture(ConfigReader& reader, ModelConfig& config) {
  const bool has = reader.gguf() ? reader.integer({"expert_count", ""}, 0, 4096, 0) > 0
                                 : reader.flag({"", "enable_moe_block"}, false);
  if (!reader.gguf()) reader.find({"", "num_experts"});  // unused without the block
  if (!has) return;
  read_experts(reader, config);
  config.experts.beside_dense = true;
}

}  // namespace

void share_last_layers(ConfigReader& reader, ModelConfig& config) {
  const int n_shared = reader.integer({"attention.shared_kv_layers", "num_kv_shared_layers"}, 0,
                                      config.n_layers - 1, 0);
  const int first = config.n_layers - n_shared;
  for (int i = first; i < config.n_layers; ++i) {
    LayerConfig& layer = config.layers[static_cast<size_t>(i)];
    int from = first - 1;
    while (from >= 0 && config.layers[static_cast<size_t>(from)].window != layer.window) --from;
    if (from < 0) {
      return reader.fail(ErrorCode::kCorruptFile,
                         fmt::format("num_kv_shared_layers: layer {} finds no layer of its kind "
                                     "before layer {} to share with",
                                     i, first));
    }
    layer.kv_layer = from;
    layer.keys_as_values = false;
    if (config.head_dim_of(i) != config.head_dim_of(from) ||
        config.n_kv_heads_of(i) != config.n_kv_heads_of(from)) {
      return reader.fail(
          ErrorCode::kCorruptFile,
          fmt::format("layer {} shares keys and values with layer {}, whose heads have other sizes",
                      i, from));
    }
  }
}

namespace {

void configure_gemma4(ConfigReader& reader, ModelConfig& config) {
  config.residual.norms = NormPlacement::kBoth;
  config.attention.qk_norm = QkNorm::kHead;
  config.attention.value_norm = true;
  config.attention.scale = 1.0f;
  if (reader.gguf()) config.ffn.activation = Activation::kGeluTanh;
  config.embedding.scale = std::sqrt(static_cast<float>(config.model_dim));
  config.output.softcap =
      reader.number({"final_logit_softcapping", "final_logit_softcapping"}, 0.0f, 1e6f, 0.0f);
  config.per_layer.dim = reader.integer(
      {"embedding_length_per_layer_input", "hidden_size_per_layer_input"}, 0, 1 << 16, 0);
  if (config.per_layer.dim > 0)
    config.per_layer.given_token = reader.integer(
        {":tokenizer.ggml.padding_token_id", "pad_token_id"}, 0, config.vocab_size - 1, 0);
  const std::string both_ways = reader.text({"", "use_bidirectional_attention"}, "");
  if (both_ways == "all")
    reader.fail(ErrorCode::kUnsupported,
                "use_bidirectional_attention: 'all' is not known in a decoder");
  read_layer_types(reader, config);
  for (LayerConfig& layer : config.layers)
    layer.sees_parts = both_ways == "vision" && layer.window > 0;
  read_heads(reader, config);
  config.residual.layer_scales =
      !reader.gguf() || in_some_layer(reader, config, "layer_output_scale.weight", true);
  share_last_layers(reader, config);
  if (reader.gguf() && !in_some_layer(reader, config, "attn_v.weight", false))
    use_keys_as_values(config);
  read_ropes(reader, config);
  read_mixture(reader, config);
  const bool vocabulary_fits = config.per_layer.dim == 0 || reader.gguf() ||
                               reader.integer({"", "vocab_size_per_layer_input"}, 1, 1 << 24,
                                              config.vocab_size) == config.vocab_size;
  if (!vocabulary_fits)
    reader.fail(ErrorCode::kUnsupported, "vocab_size_per_layer_input: expected vocab_size");
  if (!reader.flag({"", "use_double_wide_mlp"}, false)) return;
  for (LayerConfig& layer : config.layers) {
    if (layer.kv_layer >= 0) layer.ffn_dim = 2 * config.ffn_dim;
  }
}

// Gemma 4 without per-layer inputs and experts.
void configure_gemma4_unified(ConfigReader& reader, ModelConfig& config) {
  configure_gemma4(reader, config);
  if (config.per_layer.dim > 0 || config.experts.count > 0)
    reader.fail(ErrorCode::kUnsupported,
                "hidden_size_per_layer_input and enable_moe_block: expected neither");
}

// Writes the keys that llama.cpp's converter writes.
void describe_for_gguf(ConfigWriter& writer, const ModelConfig& config, int wide) {
  json ffn = json::array(), heads = json::array();
  int n_shared = 0;
  for (int i = 0; i < config.n_layers; ++i) {
    ffn.push_back(static_cast<uint64_t>(config.ffn_dim_of(i)));
    heads.push_back(static_cast<uint64_t>(config.n_kv_heads_of(i)));
    n_shared += config.layers[static_cast<size_t>(i)].kv_layer >= 0 ? 1 : 0;
  }
  for (const std::string_view part : {"attention.key_length", "attention.value_length"}) {
    writer.set({part, ""}, wide);
    writer.set({fmt::format("{}_swa", part), ""}, config.head_dim);
  }
  writer.set({"feed_forward_length", ""}, ffn);
  writer.set({"attention.head_count_kv", ""}, heads);
  writer.set({"attention.shared_kv_layers", ""}, n_shared);
  writer.set({"rope.dimension_count_swa", ""}, config.ropes[1].rotary_dim);
  writer.erase({"attention.scale", ""});
}

void describe_gemma4(ConfigWriter& writer, const ModelConfig& config) {
  int wide = config.head_dim, n_wide = config.n_kv_heads, n_shared = 0, window = 0;
  bool keys_as_values = false, double_wide = false;
  json types = json::array();
  for (int i = 0; i < config.n_layers; ++i) {
    const LayerConfig& layer = config.layers[static_cast<size_t>(i)];
    if (layer.window == 0) wide = config.head_dim_of(i), n_wide = config.n_kv_heads_of(i);
    keys_as_values |= layer.keys_as_values;
    double_wide |= layer.ffn_dim > 0;
    n_shared += layer.kv_layer >= 0 ? 1 : 0;
    window = std::max(window, layer.window);
    types.push_back(layer.window > 0 ? "sliding_attention" : "full_attention");
  }
  writer.set({"embedding_length_per_layer_input", "hidden_size_per_layer_input"},
             config.per_layer.dim);
  if (writer.gguf()) return describe_for_gguf(writer, config, wide);
  writer.set({"", "vocab_size_per_layer_input"}, config.vocab_size);
  writer.set({"", "global_head_dim"}, wide);
  writer.set({"", "num_global_key_value_heads"}, n_wide);
  writer.set({"", "attention_k_eq_v"}, keys_as_values);
  writer.set({"", "num_kv_shared_layers"}, n_shared);
  writer.set({"", "use_double_wide_mlp"}, double_wide);
  writer.set({"", "layer_types"}, types);
  writer.set({"", "enable_moe_block"}, config.experts.count > 0);
  if (config.experts.count > 0) writer.set({"", "top_k_experts"}, config.experts.routing.n_active);
  if (window > 0) writer.set({"", "sliding_window"}, window);
  const RopeConfig& local = config.ropes[1];
  json kinds = {
      {"sliding_attention",
       {{"rope_type", "default"},
        {"rope_theta", local.theta},
        {"partial_rotary_factor", static_cast<double>(local.rotary_dim) / config.head_dim}}}};
  writer.nest({"", "rope_parameters"}, "full_attention", kinds);
  for (const std::string_view key :
       {"rope_theta", "rope_scaling", "rope_local_base_freq", "partial_rotary_factor",
        "query_pre_attn_scalar", "num_experts_per_tok", "norm_topk_prob", "hidden_act"})
    writer.erase({"", key});
}

void gemma4_names(NameTable& names, const ModelConfig&) {
  names[tensor::kOutputScale] = "layer_scalar";
  names[tensor::kRouter] = "router.proj", names[tensor::kRouterScale] = "router.scale";
  names[tensor::kExpertScale] = "router.per_expert_scale";
  names[tensor::kExpertGateUp] = "experts.gate_up_proj",
  names[tensor::kExpertDown] = "experts.down_proj";
  names[tensor::kExpertNorm] = "pre_feedforward_layernorm_2";
  names[tensor::kDensePostNorm] = "post_feedforward_layernorm_1";
  names[tensor::kExpertPostNorm] = "post_feedforward_layernorm_2";
}

void gemma4_gguf_names(NameTable& names, const ModelConfig&) {
  names[tensor::kExpertGateUp] = "ffn_gate_up_exps.weight";
}

}  // namespace

StepOutputs gemma4_forward(const ModelConfig& config, const ModelWeights& weights, StepShape shape,
                           KvCache& cache, Ops& ops, const ForwardOptions& options) {
  const auto [first_layer, end_layer] = layers_of(config, weights, options);
  const Tensor x = options.stream != nullptr
                       ? *options.stream
                       : ops.new_tensor(shape.tokens, config.model_dim, TensorRole::kStream);
  const Tensor normed = ops.new_tensor(shape.tokens, config.model_dim);
  DecoderParts decoder(config, weights, shape, cache, ops);
  const auto input = [&](const NormWeights& norm) {
    return NormedInput{x, norm_params(config, norm), normed};
  };

  std::optional<PerLayerInputs> beside;
  if (config.per_layer.dim > 0 && !options.stage_input.empty()) {
    const Tensor given = stage_input(config, weights, shape, ops, options);
    ops.copy(given.columns(0, config.model_dim), x);
    beside.emplace(config, weights, given.columns(config.model_dim, given.cols - config.model_dim),
                   first_layer, ops);
  } else {
    begin_stream(config, weights, shape, x, ops, options);
    if (config.per_layer.dim > 0) beside.emplace(config, weights, x, ops);
  }
  for (int i = first_layer; i < end_layer; ++i) {
    const LayerWeights& layer = weights.layers[static_cast<size_t>(i)];
    const NormedInput h = input(layer.attn_norm), between = input(layer.ffn_norm);
    ops.prepare(h);
    decoder.attention(i, h, x, &between);
    if (config.layers[static_cast<size_t>(i)].moe) {
      decoder.dense_beside_experts(i, between, x);
    } else {
      decoder.feed_forward(i, between, x, nullptr);
    }
    if (beside) ops.add(x, beside->update(i, x), 1.0f);
    if (layer.output_scale != 1.0f) ops.scale(x, layer.output_scale, 0.0f);
  }
  if (options.stream != nullptr) return {};
  if (beside && goes_on(config, weights))
    return end_stage(std::array{x, beside->from(end_layer)}, ops);
  return output_head(config, weights, x, shape, ops, options);
}

extern constinit const Architecture kGemma4 = {
    .name = "gemma4",
    .title = "Gemma 4",
    .hf_types = {"gemma4_text", "Gemma4ForCausalLM", "gemma4", "Gemma4ForConditionalGeneration"},
    .configure = configure_gemma4,
    .hf_names = gemma4_names,
    .forward = gemma4_forward,
    .hf_defaults =
        R"({"tie_word_embeddings": true, "head_dim": 256, "hidden_activation": "gelu_pytorch_tanh", "sliding_window": 512,
        "num_attention_heads": 8, "num_key_value_heads": 4, "vocab_size": 262144, "max_position_embeddings": 131072,
        "hidden_size_per_layer_input": 256, "vocab_size_per_layer_input": 262144})",
    .describe = describe_gemma4,
    .gguf_names = gemma4_gguf_names,
};

// Gemma 4 in one tower; defaults of its own class in transformers.
extern constinit const Architecture kGemma4Unified = {
    .name = "gemma4_unified",
    .title = "Gemma 4 12B (text)",
    .hf_types = {"gemma4_unified_text", "Gemma4UnifiedForCausalLM", "gemma4_unified",
                 "Gemma4UnifiedForConditionalGeneration"},
    .gguf_name = "gemma4",
    .configure = configure_gemma4_unified,
    .hf_names = gemma4_names,
    .forward = gemma4_forward,
    .hf_defaults =
        R"({"tie_word_embeddings": true, "head_dim": 256, "hidden_activation": "gelu_pytorch_tanh", "sliding_window": 1024,
        "num_attention_heads": 8, "num_key_value_heads": 4, "vocab_size": 262144, "max_position_embeddings": 262144,
        "use_bidirectional_attention": "vision"})",
    .describe = describe_gemma4,
    .gguf_names = gemma4_gguf_names,
};

}  // namespace penstock
