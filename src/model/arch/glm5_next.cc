// GLM-5.3-Flash: Kimi Delta Attention with bounded decays in most layers, latent attention without
// rotation to selected blocks of tokens in the others, experts after some dense layers, around all
// of which residual streams are mixed.
#include <array>
#include <cmath>
#include <nlohmann/json.hpp>

#include "base/check.h"
#include "model/arch/archs.h"
#include "model/blocks/delta_net.h"
#include "model/forward/decoder.h"

namespace penstock {

namespace {

using nlohmann::json;

constexpr int kMostGlm5Taps = 64, kMostGlm5Heads = 1024, kMostGlm5Dim = 4096, kMostGlm5Rank = 8192;
constexpr int kMostGlm5Pool = 256, kMostGlm5Selected = 1 << 16, kMostGlm5Iterations = 1000;
constexpr float kUsualBound = -5.0f;

// The keys in which transformers keeps what linear_attn_config says; 0 stands for no bound.
void usual_glm5_next(json& object) {
  object.erase("head_dim");  // 0: no dimension is rotated
  const auto bound = object.find("linear_lower_bound");
  if (bound != object.end() && bound->is_null()) *bound = 0;
  const auto found = object.find("linear_attn_config");
  if (found == object.end() || !found->is_object()) return;
  const json linear = *found;
  for (const auto& [theirs, usual] :
       {std::pair("head_dim", "linear_head_dim"), std::pair("num_heads", "linear_num_heads"),
        std::pair("short_conv_kernel_size", "linear_conv_kernel_dim"),
        std::pair("gate_lower_bound", "linear_lower_bound")})
    if (linear.contains(theirs)) object[usual] = linear[theirs];
  if (object.contains("linear_lower_bound") && object["linear_lower_bound"].is_null()) {
    const auto safe = linear.find("safe_gate");
    object["linear_lower_bound"] = safe == linear.end() || *safe != false ? kUsualBound : 0.0f;
  }
}

// Whether the list, which counts layers from 1, is that of the layers with (or without) attention.
bool agrees(const json& numbers, const ModelConfig& config, bool attention) {
  if (!numbers.is_array()) return false;
  json own = json::array();
  for (int i = 0; i < config.n_layers; ++i)
    if (config.layers[static_cast<size_t>(i)].attention == attention) own.push_back(i + 1);
  return numbers == own;
}

void check_linear_config(ConfigReader& reader, const ModelConfig& config) {
  const json* found = reader.find({"", "linear_attn_config"});
  if (found == nullptr || !found->is_object()) return;
  for (const auto& [key, value] : found->items()) {
    if (key == "full_attn_layers" || key == "kda_layers") {
      if (!agrees(value, config, key == "full_attn_layers"))
        reader.fail(
            ErrorCode::kUnsupported,
            fmt::format("linear_attn_config.{}: expected the same layers as layer_types", key));
    } else if (key != "head_dim" && key != "num_heads" && key != "short_conv_kernel_size" &&
               key != "gate_lower_bound" && key != "safe_gate") {
      reader.fail(ErrorCode::kUnsupported,
                  fmt::format("linear_attn_config.{}: its meaning is not known", key));
    }
  }
}

// Every fourth layer has attention, unless the file lists kinds of layers.
void read_glm5_layers(ConfigReader& reader, ModelConfig& config) {
  const json* kinds = reader.find({"", "layer_types"});
  const bool listed =
      kinds != nullptr && kinds->is_array() && kinds->size() == config.layers.size();
  if (kinds != nullptr && !listed)
    return reader.fail(
        ErrorCode::kCorruptFile,
        fmt::format("layer_types: expected a list of {} layers", config.layers.size()));
  for (size_t i = 0; i < config.layers.size(); ++i) {
    LayerConfig& layer = config.layers[i];
    layer.rope = -1;
    const json kind =
        listed ? (*kinds)[i] : json(i % 4 == 3 ? "indexed_attention" : "linear_attention");
    layer.attention = kind != "linear_attention";
    if (layer.attention && kind != "indexed_attention" && kind != "full_attention" &&
        kind != "deepseek_sparse_attention")
      reader.fail(
          ErrorCode::kUnsupported,
          fmt::format("layer_types: expected linear_attention or indexed_attention, got {}",
                      kind.dump(-1, ' ', true, json::error_handler_t::replace).substr(0, 60)));
  }
}

void read_delta(ConfigReader& reader, ModelConfig& config) {
  DeltaConfig delta;
  delta.decay_by_key = true;
  delta.key_dim = delta.value_dim = reader.integer({"", "linear_head_dim"}, 1, kMostGlm5Dim, 128);
  delta.n_key_heads = delta.n_value_heads =
      reader.integer({"", "linear_num_heads"}, 1, kMostGlm5Heads, 64);
  delta.taps = reader.integer({"", "linear_conv_kernel_dim"}, 1, kMostGlm5Taps, 4);
  delta.lowest_log_decay = reader.number({"", "linear_lower_bound"}, -1e4f, 0.0f, kUsualBound);
  const std::shared_ptr<const Mixer> mixer = delta_net(delta);
  for (LayerConfig& layer : config.layers)
    if (!layer.attention) layer.mixer = mixer;
}

void read_plain_latent(ConfigReader& reader, ModelConfig& config) {
  LatentConfig& l = config.latent;
  if (reader.integer({"", "qk_rope_head_dim"}, 0, kMostGlm5Dim, 0) != 0)
    reader.fail(ErrorCode::kUnsupported, "qk_rope_head_dim: expected 0, nothing is rotated");
  l.kv_rank = reader.integer({"", "kv_lora_rank"}, 1, kMostGlm5Rank);
  l.query_rank = reader.integer({"", "q_lora_rank"}, 1, kMostGlm5Rank);
  l.plain_dim = reader.integer({"", "qk_nope_head_dim"}, 1, kMostGlm5Dim);
  l.value_dim = reader.integer({"", "v_head_dim"}, 1, kMostGlm5Dim);
  l.rope_dim = 0;
  l.norm_eps = config.norm.eps;
  config.n_kv_heads = 1;
  for (LayerConfig& layer : config.layers) layer.n_kv_heads = 0;
  config.head_dim = l.kv_rank;
  config.attention.scale = 1.0f / std::sqrt(static_cast<float>(l.plain_dim));
}

void read_kpool(ConfigReader& reader, ModelConfig& config) {
  IndexerConfig& indexer = config.latent.indexer;
  indexer.gated = true;
  indexer.pool = reader.integer({"", "index_kpool"}, 2, kMostGlm5Pool, 16);
  indexer.top_k = reader.integer({"", "index_topk"}, 1, kMostGlm5Selected);
  indexer.n_heads = reader.integer({"", "index_n_heads"}, 1, kMostGlm5Heads);
  indexer.head_dim = reader.integer({"", "index_head_dim"}, 2, kMostGlm5Dim);
  if (indexer.head_dim % 2 != 0)
    reader.fail(ErrorCode::kUnsupported,
                fmt::format("index_head_dim: expected an even number, got {}", indexer.head_dim));
  if (indexer.top_k % indexer.pool != 0)
    reader.fail(ErrorCode::kCorruptFile,
                fmt::format("index_topk: expected a multiple of the {} tokens of a block, got {}",
                            indexer.pool, indexer.top_k));
  // Without the open block a text's first tokens would attend to nothing.
  reader.expect_flag("index_kpool_always_select_tail", true);
  const std::vector<bool> full = read_indexer_types(reader, config);
  for (size_t i = 0; i < config.layers.size(); ++i) {
    if (!config.layers[i].attention) continue;
    const bool shares = !full[i];
    if (shares && (i == 0 || !config.layers[i - 1].attention || !full[i - 1]))
      return reader.fail(
          ErrorCode::kUnsupported,
          "indexer_types: expected \"shared\" directly behind a layer with attention "
          "and an indexer of its own only");
    config.layers[i].selecting_layer = static_cast<int>(shares ? i - 1 : i);
  }
}

void configure_glm5_next(ConfigReader& reader, ModelConfig& config) {
  if (reader.gguf())
    return reader.fail(ErrorCode::kUnsupported,
                       "GGUF files of this architecture are not known: expected a directory");
  if (config.ffn.activation.kind != Activation::kSilu)
    reader.fail(ErrorCode::kUnsupported, "hidden_act: expected silu");
  const int kv_heads = reader.integer({"", "num_key_value_heads"}, 1, kMostGlm5Dim, config.n_heads);
  if (kv_heads != config.n_heads)
    reader.fail(ErrorCode::kUnsupported,
                fmt::format("num_key_value_heads: expected the {} of num_attention_heads, got {}",
                            config.n_heads, kv_heads));
  reader.expect_text("scoring_func", "sigmoid");
  reader.expect_text("topk_method", "noaux_tc");
  read_glm5_layers(reader, config);
  read_plain_latent(reader, config);
  read_kpool(reader, config);
  read_delta(reader, config);
  check_linear_config(reader, config);
  read_experts(reader, config);
  read_dense_layers(reader, config);
  read_mlp_layer_types(reader, config);
  read_sigmoid_routing(reader, config);
  read_shared_experts(reader, config);
  ActivationFunction capped(Activation::kCappedSilu);
  capped.parameters[0] = reader.number({"", "swiglu_limit"}, 1e-3f, 1e6f, 10.0f);
  for (LayerConfig& layer : config.layers) layer.activation = capped;
  config.mixed_streams.count = reader.integer({"", "hc_mult"}, 1, kMaxMixedStreams, 4);
  config.mixed_streams.eps = reader.number({"", "hc_eps"}, 0.0f, 1.0f, 1e-6f);
  config.mixed_streams.iterations =
      reader.integer({"", "hc_sinkhorn_iters"}, 1, kMostGlm5Iterations, 20);
  drop_ropes(config);
}

void glm5_next_names(NameTable& names, const ModelConfig&) {
  names[tensor::kDeltaQkvz] = names[tensor::kDeltaBa] = names[tensor::kDeltaQkv] = "";
  names[tensor::kDeltaAIn] = "self_attn.f_a_proj", names[tensor::kDeltaA] = "self_attn.f_b_proj";
  names[tensor::kDeltaZIn] = "self_attn.g_a_proj", names[tensor::kDeltaZ] = "self_attn.g_b_proj";
  names[tensor::kDeltaB] = "self_attn.b_proj", names[tensor::kDeltaConv] = "self_attn.{}_conv1d";
  names[tensor::kDeltaRate] = "self_attn.A_log", names[tensor::kDeltaBias] = "self_attn.dt_bias";
  names[tensor::kDeltaNorm] = "self_attn.o_norm", names[tensor::kDeltaOut] = "self_attn.o_proj";
}

}  // namespace

StepOutputs mixed_streams_forward(const ModelConfig& config, const ModelWeights& weights,
                                  StepShape shape, KvCache& cache, Ops& ops,
                                  const ForwardOptions& options) {
  PENSTOCK_CHECK(options.stream == nullptr);  // the model has several streams
  const auto [first_layer, end_layer] = layers_of(config, weights, options);
  DecoderParts decoder(config, weights, shape, cache, ops);
  MixedStreams streams(config, shape.tokens, ops);
  const Tensor x = ops.new_tensor(shape.tokens, config.model_dim, TensorRole::kStream);
  if (first_layer == 0) {
    embed_input(config, weights, shape, x, ops);
    streams.begin(x);
  } else {
    streams.go_on(stage_input(config, weights, shape, ops, options));
  }
  for (int i = first_layer; i < end_layer; ++i) {
    const LayerWeights& layer = weights.layers[static_cast<size_t>(i)];
    const NormedInput h = streams.enter(layer.mixed_streams.attention, layer.attn_norm);
    const Tensor mixed = streams.cleared();
    decoder.attention(i, h, mixed, nullptr);
    streams.leave(mixed);
    const NormedInput between = streams.enter(layer.mixed_streams.feed_forward, layer.ffn_norm);
    const Tensor fed = streams.cleared();
    decoder.feed_forward(i, between, fed, nullptr);
    streams.leave(fed);
  }
  if (goes_on(config, weights)) return end_stage(std::array{streams.all()}, ops);
  streams.end(weights.last_shares, x);
  return output_head(config, weights, x, shape, ops, options);
}

extern constinit const Architecture kGlm5Next = {
    .name = "glm5next",
    .title = "GLM-5.3-Flash (text, also of `glm5_next`; sparse attention)",
    .hf_types = {"glm5_next_text", "Glm5NextForCausalLM", "glm5_next",
                 "Glm5NextForConditionalGeneration"},
    .directories_only = true,
    .configure = configure_glm5_next,
    .hf_names = glm5_next_names,
    .forward = mixed_streams_forward,
    .hf_defaults = R"({"rms_norm_eps": 1e-5, "q_lora_rank": 1536, "kv_lora_rank": 512,
    "qk_nope_head_dim": 256, "v_head_dim": 256, "n_routed_experts": 288, "n_shared_experts": 1,
    "num_experts_per_tok": 8, "moe_intermediate_size": 2048, "routed_scaling_factor": 2.5, "first_k_dense_replace": 3,
    "index_topk": 2048, "index_n_heads": 32, "index_head_dim": 128})",
    .hf_usual = usual_glm5_next,
};

}  // namespace penstock
