// Ling 3: Kimi Delta Attention with bounded decays in most layers; in the last layer of each group
// DeepSeek V3's attention, whose heads are gated; DeepSeek V3's experts after some dense layers.
#include <algorithm>
#include <nlohmann/json.hpp>

#include "model/arch/archs.h"
#include "model/blocks/delta_net.h"

namespace penstock {

namespace {

using nlohmann::json;

constexpr int kMostLingTaps = 64, kMostLingDim = 4096;
constexpr Key kLingExpertBounds{"swiglu_clamp_exp", "expert_swiglu_limit_list"};
constexpr Key kLingSharedBounds{"swiglu_clamp_shexp", "share_expert_swiglu_limit_list"};

// head_dim is that of delta networks; transformers writes it under another key beside the size of
// the rotated part.
void usual_ling3(json& object) {
  if (!object.contains("linear_head_dim") && object.contains("head_dim"))
    object["linear_head_dim"] = json(object["head_dim"]);
  object.erase("head_dim");
}

bool attends(ConfigReader& reader, const json* kinds, int group, size_t i) {
  if (kinds == nullptr) return (i + 1) % static_cast<size_t>(group) == 0;
  const json& kind = (*kinds)[i];
  if (reader.gguf()) return kind != 0;
  if (kind != "full_attention" && kind != "linear_attention")
    reader.fail(
        ErrorCode::kUnsupported,
        fmt::format("layer_types: expected linear_attention or full_attention, got {}",
                    kind.dump(-1, ' ', true, json::error_handler_t::replace).substr(0, 60)));
  return kind == "full_attention";
}

void read_ling3_layers(ConfigReader& reader, ModelConfig& config) {
  const Key list{"attention.head_count_kv", "layer_types"};
  const json* kinds = reader.find(list);
  const int group = reader.integer({"", "layer_group_size"}, 1, 1 << 20, 6);
  const size_t n = config.layers.size(),
               further = reader.gguf() ? static_cast<size_t>(config.n_next_token_layers) : 0;
  if (kinds != nullptr && (!kinds->is_array() || kinds->size() < n || kinds->size() > n + further))
    return reader.fail(ErrorCode::kCorruptFile,
                       fmt::format("{}: expected a list of {} layers", reader.name(list), n));
  // Implementations differ in the layers behind the last whole group.
  if (kinds == nullptr && config.n_layers % group != 0)
    return reader.fail(
        ErrorCode::kUnsupported,
        fmt::format("num_hidden_layers: expected a multiple of layer_group_size ({}), got {}",
                    group, config.n_layers));
  for (size_t i = 0; i < n; ++i) {
    config.layers[i].attention = attends(reader, kinds, group, i);
    if (!config.layers[i].attention) config.layers[i].rope = -1;
  }
}

void read_ling3_delta(ConfigReader& reader, ModelConfig& config) {
  DeltaConfig delta;
  delta.decay_by_key = delta.full_rank = delta.positive_rates = true;
  delta.n_key_heads = delta.n_value_heads = config.n_heads;
  delta.key_dim = delta.value_dim =
      reader.integer({"kda.head_dim", "linear_head_dim"}, 1, kMostLingDim, 128);
  delta.taps = reader.integer({"ssm.conv_kernel", "short_conv_kernel_size"}, 1, kMostLingTaps, 4);
  const bool bounded = reader.flag({"kda.safe_gate", "kda_safe_gate"}, true);
  const float lowest =
      reader.number({"kda.gate_lower_bound", "kda_lower_bound"}, -1e4f, 0.0f, -5.0f);
  if (bounded && lowest == 0.0f)
    reader.fail(ErrorCode::kCorruptFile, "kda_lower_bound: expected a negative number, got 0");
  delta.lowest_log_decay = bounded ? lowest : 0.0f;
  const std::shared_ptr<const Mixer> mixer = delta_net(delta);
  for (LayerConfig& layer : config.layers)
    if (!layer.attention) layer.mixer = mixer;
}

// Bounds of the experts' gates and products by layer; 0 and null: none.
void read_ling3_bounds(ConfigReader& reader, ModelConfig& config, Key key, bool shared) {
  const json* list = reader.find(key);
  if (list == nullptr) return;
  const bool numbers = list->is_array() && std::ranges::all_of(*list, [](const json& each) {
                         return each.is_null() || (each.is_number() && each >= 0);
                       });
  if (!numbers)
    return reader.fail(ErrorCode::kCorruptFile,
                       fmt::format("{}: expected a list of positive numbers", reader.name(key)));
  for (size_t i = 0; i < std::min(config.layers.size(), list->size()); ++i) {
    LayerConfig& layer = config.layers[i];
    const float bound = (*list)[i].is_null() ? 0.0f : (*list)[i].get<float>();
    if (bound == 0.0f || !layer.moe) continue;
    ActivationFunction bounded(Activation::kBoundedSilu);
    bounded.parameters[0] = bound;
    if (shared) layer.activation = bounded;
    if (!shared) layer.expert_activation = bounded;
  }
}

void configure_ling3(ConfigReader& reader, ModelConfig& config) {
  reader.expect_text("score_function", "sigmoid");
  reader.expect_text("gated_attention_proj_granularity_type", "head_wise");
  reader.expect_flag("no_kda_lora", true);
  reader.expect_flag("moe_router_enable_expert_bias", true);
  const int kv_heads = reader.integer({"", "num_key_value_heads"}, 1, kMostLingDim, config.n_heads);
  if (!reader.gguf() && kv_heads != config.n_heads)
    reader.fail(ErrorCode::kUnsupported,
                fmt::format("num_key_value_heads: expected the {} of num_attention_heads, got {}",
                            config.n_heads, kv_heads));
  configure_glm4_moe_lite(reader, config);
  config.attention.head_gates = true;
  if (reader.gguf())
    config.experts.routing.normalize = reader.flag({"expert_weights_norm", ""}, true);
  const int shared =
      reader.integer({"expert_shared_feed_forward_length", "moe_shared_expert_intermediate_size"},
                     0, 1 << 20, config.experts.ffn_dim);
  if (config.experts.shared_dim > 0)
    config.experts.shared_dim =
        std::min(config.experts.shared_dim / config.experts.ffn_dim * shared, 1 << 20);
  read_ling3_layers(reader, config);
  read_ling3_delta(reader, config);
  for (LayerConfig& layer : config.layers) {
    layer.activation = config.ffn.activation;
    layer.expert_activation = config.ffn.activation;
  }
  read_ling3_bounds(reader, config, kLingExpertBounds, false);
  read_ling3_bounds(reader, config, kLingSharedBounds, true);
}

void ling3_names(NameTable& names, const ModelConfig&) {
  names.embedding = "word_embeddings";
  names[tensor::kQ] = "attention.q_proj", names[tensor::kK] = "attention.k_proj";
  names[tensor::kV] = "attention.v_proj", names[tensor::kO] = "attention.dense";
  names[tensor::kQueryA] = "attention.q_a_proj", names[tensor::kQueryB] = "attention.q_b_proj";
  names[tensor::kQueryANorm] = "attention.q_a_layernorm";
  names[tensor::kLatentA] = "attention.kv_a_proj_with_mqa";
  names[tensor::kLatentANorm] = "attention.kv_a_layernorm";
  names[tensor::kLatentB] = "attention.kv_b_proj", names[tensor::kGates] = "attention.g_proj";
  names[tensor::kDeltaA] = "attention.f_proj", names[tensor::kDeltaZ] = "attention.g_proj";
  names[tensor::kDeltaB] = "attention.b_proj", names[tensor::kDeltaConv] = "attention.{}_conv1d";
  names[tensor::kDeltaRate] = "attention.A_log", names[tensor::kDeltaBias] = "attention.dt_bias";
  names[tensor::kDeltaNorm] = "attention.o_norm", names[tensor::kDeltaOut] = "attention.dense";
  names[tensor::kSelectionBias] = "mlp.gate.expert_bias";
}

void ling3_gguf_names(NameTable& names, const ModelConfig&) {
  names[tensor::kDeltaA] = "ssm_f_a", names[tensor::kDeltaZ] = "ssm_g_a";
  names[tensor::kDeltaConv] = "ssm_conv1d_{}", names[tensor::kDeltaOut] = "attn_output";
}

json ling3_bounds(const ModelConfig& config, bool shared) {
  json list = json::array();
  for (const LayerConfig& layer : config.layers) {
    const ActivationFunction own =
        shared ? layer.activation : layer.expert_activation.value_or(layer.activation);
    list.push_back(own.kind == Activation::kBoundedSilu ? own.parameters[0] : 0.0f);
  }
  return list;
}

void describe_ling3(ConfigWriter& writer, const ModelConfig& config) {
  describe_latent(writer, config);
  describe_sigmoid_routing(writer, config);
  json kv_heads = json::array(), kinds = json::array();
  for (const LayerConfig& layer : config.layers) {
    kv_heads.push_back(layer.attention ? uint64_t{1} : uint64_t{0});
    kinds.push_back(layer.attention ? "full_attention" : "linear_attention");
  }
  writer.set({"attention.head_count_kv", ""}, kv_heads);
  writer.set({"", "layer_types"}, kinds);
  writer.set({"rope.dimension_count", ""}, config.latent.rope_dim);
  writer.set({"leading_dense_block_count", ""}, leading_dense_layers(config));
  describe_mlp_layer_types(writer, config);
  writer.set({"expert_shared_count", ""}, 1);
  writer.set({"expert_shared_feed_forward_length", "moe_shared_expert_intermediate_size"},
             config.experts.shared_dim);
  writer.set({"", "n_shared_experts"}, 1);
  const DeltaConfig* const found = delta_config(config);
  const DeltaConfig delta = found != nullptr ? *found : DeltaConfig();
  writer.set({"ssm.conv_kernel", "short_conv_kernel_size"}, delta.taps);
  writer.set({"kda.head_dim", "linear_head_dim"}, delta.key_dim);
  writer.set({"kda.safe_gate", "kda_safe_gate"}, delta.lowest_log_decay < 0.0f);
  if (delta.lowest_log_decay < 0.0f)
    writer.set({"kda.gate_lower_bound", "kda_lower_bound"}, delta.lowest_log_decay);
  for (const bool shared : {false, true}) {
    const json bounds = ling3_bounds(config, shared);
    const bool any = std::ranges::any_of(bounds, [](const json& each) { return each != 0.0f; });
    if (any) writer.set(shared ? kLingSharedBounds : kLingExpertBounds, bounds);
  }
}

}  // namespace

extern constinit const Architecture kLing3 = {
    .name = "bailingmoe3",
    .title = "Ling 3 (`bailing_hybrid`)",
    .hf_types = {"bailing_hybrid", "BailingMoeV3ForCausalLM", "BailingHybridForCausalLM"},
    .configure = configure_ling3,
    .hf_names = ling3_names,
    .forward = decoder_forward,
    .hf_defaults = R"({"tie_word_embeddings": false, "rope_theta": 6e6, "kv_lora_rank": 512,
    "qk_nope_head_dim": 128, "qk_rope_head_dim": 64, "v_head_dim": 128, "n_shared_experts": 1, "n_group": 8,
    "topk_group": 4, "routed_scaling_factor": 2.5, "first_k_dense_replace": 2, "num_experts": 512,
    "num_experts_per_tok": 8, "moe_intermediate_size": 768, "max_position_embeddings": 262144})",
    .hf_aliases = R"({"num_shared_experts": "n_shared_experts", "num_expert_group": "n_group",
    "moe_renormalize": "norm_topk_prob", "num_experts_per_token": "num_experts_per_tok",
    "model_max_length": "max_position_embeddings", "num_mtp_layers": "num_nextn_predict_layers"})",
    .hf_usual = usual_ling3,
    .describe = describe_ling3,
    .gguf_names = ling3_gguf_names,
};

}  // namespace penstock
