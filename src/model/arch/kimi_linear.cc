// Kimi Linear: Kimi Delta Attention in most layers, latent attention without rotation in the
// others, experts after some dense layers.
#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "model/arch/archs.h"
#include "model/blocks/delta_net.h"

namespace penstock {

namespace {

constexpr int kMaxKdaTaps = 64, kMaxKdaHeads = 1024, kMaxKdaDim = 4096;

using nlohmann::json;

json list_of(const json& object, const char* key) {
  const auto found = object.find(key);
  return found != object.end() && found->is_array() ? *found : json::array();
}

// Reads published directories: layer numbers start at 1.
void read_numbered_layers(ConfigReader& reader, const json& numbers, ModelConfig& config) {
  const json attending = list_of(numbers, "full_attn_layers"),
             recurrent = list_of(numbers, "kda_layers");
  for (int i = 0; i < config.n_layers; ++i) {
    LayerConfig& layer = config.layers[static_cast<size_t>(i)];
    const bool attends = std::ranges::find(attending, json(i + 1)) != attending.end();
    const bool carries = std::ranges::find(recurrent, json(i + 1)) != recurrent.end();
    if (attends == carries) {
      return reader.fail(
          ErrorCode::kCorruptFile,
          fmt::format(
              "linear_attn_config: expected layer {} in one of full_attn_layers and kda_layers",
              i + 1));
    }
    layer.attention = attends;
  }
}

void read_listed_layers(ConfigReader& reader, const json& kinds, bool gguf, ModelConfig& config) {
  const std::string_view name = gguf ? "attention.head_count_kv" : "layer_types";
  if (!kinds.is_array() || kinds.size() != config.layers.size()) {
    return reader.fail(ErrorCode::kCorruptFile,
                       fmt::format("{}: expected a list of {} layers", name, config.layers.size()));
  }
  for (size_t i = 0; i < config.layers.size(); ++i) {
    const bool recurrent = gguf ? kinds[i] == 0 : kinds[i] == "linear_attention";
    if (!gguf && !recurrent && kinds[i] != "full_attention") {
      return reader.fail(
          ErrorCode::kUnsupported,
          fmt::format("layer_types: expected linear_attention or full_attention, got {}",
                      kinds[i].dump(-1, ' ', true, json::error_handler_t::replace).substr(0, 60)));
    }
    config.layers[i].attention = !recurrent;
  }
}

// Reads layers in transformers' order: the lists of linear_attn_config if there is no layer_types;
// by default every fourth layer has attention.
void read_kda_layers(ConfigReader& reader, const json& linear, ModelConfig& config) {
  const json* kinds = reader.find({"attention.head_count_kv", "layer_types"});
  if (kinds != nullptr && !kinds->is_null()) {
    read_listed_layers(reader, *kinds, reader.gguf(), config);
  } else if (linear.contains("full_attn_layers") && linear.contains("kda_layers")) {
    read_numbered_layers(reader, linear, config);
  } else {
    for (size_t i = 0; i < config.layers.size(); ++i)
      config.layers[i].attention = i > 0 && i % 4 == 0;
  }
  for (LayerConfig& layer : config.layers) layer.rope = -1;
}

// Reads a size from linear_attn_config, or from the key that transformers writes instead.
int read_kda_size(ConfigReader& reader, const json& linear, const char* key, const char* beside,
                  int most, int usual) {
  const auto found = linear.find(key);
  if (found == linear.end()) return reader.integer({"", beside}, 1, most, usual);
  if (!found->is_number_integer() || *found < 1 || *found > most) {
    reader.fail(
        ErrorCode::kCorruptFile,
        fmt::format("linear_attn_config.{}: expected a whole number in 1..{}, got {}", key, most,
                    found->dump(-1, ' ', true, json::error_handler_t::replace).substr(0, 60)));
    return 1;
  }
  return found->get<int>();
}

void read_kda(ConfigReader& reader, ModelConfig& config) {
  const json* found = reader.find({"", "linear_attn_config"});
  const json linear = found != nullptr && found->is_object() ? *found : json::object();
  DeltaConfig delta;
  delta.decay_by_key = true;
  if (reader.gguf()) {
    delta.key_dim = reader.integer({"kda.head_dim", ""}, 1, kMaxKdaDim);
    delta.n_key_heads = config.n_heads;
    delta.taps = reader.integer({"ssm.conv_kernel", ""}, 1, kMaxKdaTaps);
  } else {
    delta.key_dim = read_kda_size(reader, linear, "head_dim", "linear_head_dim", kMaxKdaDim, 128);
    delta.n_key_heads =
        read_kda_size(reader, linear, "num_heads", "linear_num_heads", kMaxKdaHeads, 32);
    delta.taps = read_kda_size(reader, linear, "short_conv_kernel_size", "linear_conv_kernel_dim",
                               kMaxKdaTaps, 4);
  }
  delta.n_value_heads = delta.n_key_heads, delta.value_dim = delta.key_dim;
  read_kda_layers(reader, linear, config);
  const std::shared_ptr<const Mixer> mixer = delta_net(delta);
  for (LayerConfig& layer : config.layers)
    if (!layer.attention) layer.mixer = mixer;
}

void configure_kimi_linear(ConfigReader& reader, ModelConfig& config) {
  reader.expect_text("moe_router_activation_func", "sigmoid");
  reader.expect_flag("mla_use_nope", true);
  configure_glm4_moe_lite(reader, config);
  if (reader.gguf())
    config.experts.routing.normalize = reader.flag({"expert_weights_norm", ""}, true);
  if (config.ropes[0].scaling != RopeScaling::kNone)
    reader.fail(ErrorCode::kUnsupported, "rope scaling: expected none, nothing is rotated");
  config.attention.scale =
      1.0f / std::sqrt(static_cast<float>(config.latent.plain_dim + config.latent.rope_dim));
  read_kda(reader, config);
}

void kimi_linear_names(NameTable& names, const ModelConfig&) {
  names[tensor::kDeltaQkvz] = names[tensor::kDeltaBa] = names[tensor::kDeltaQkv] = "";
  names[tensor::kDeltaAIn] = "self_attn.f_a_proj", names[tensor::kDeltaA] = "self_attn.f_b_proj";
  names[tensor::kDeltaZIn] = "self_attn.g_a_proj", names[tensor::kDeltaZ] = "self_attn.g_b_proj";
  names[tensor::kDeltaB] = "self_attn.b_proj", names[tensor::kDeltaConv] = "self_attn.{}_conv1d";
  names[tensor::kDeltaRate] = "self_attn.A_log", names[tensor::kDeltaBias] = "self_attn.dt_bias";
  names[tensor::kDeltaNorm] = "self_attn.o_norm", names[tensor::kDeltaOut] = "self_attn.o_proj";
  // transformers names dense feed-forwards like experts; published checkpoints do not.
  names.other_gate = "block_sparse_moe.gate_proj", names.other_up = "block_sparse_moe.up_proj";
  names.other_down = "block_sparse_moe.down_proj", names[tensor::kGateUp] = "";
  names[tensor::kRouter] = "block_sparse_moe.gate";
  names[tensor::kSelectionBias] = "block_sparse_moe.gate.e_score_correction_bias";
  names[tensor::kExpertGate] = "block_sparse_moe.experts.{}.w1",
  names[tensor::kExpertUp] = "block_sparse_moe.experts.{}.w3";
  names[tensor::kExpertDown] = "block_sparse_moe.experts.{}.w2";
  names[tensor::kSharedGate] = "block_sparse_moe.shared_experts.gate_proj";
  names[tensor::kSharedUp] = "block_sparse_moe.shared_experts.up_proj";
  names[tensor::kSharedDown] = "block_sparse_moe.shared_experts.down_proj";
}

void kimi_linear_gguf_names(NameTable& names, const ModelConfig&) {
  names[tensor::kDeltaQkvz] = names[tensor::kDeltaBa] = names[tensor::kDeltaQkv] = "";
  names[tensor::kDeltaAIn] = "ssm_f_a", names[tensor::kDeltaA] = "ssm_f_b";
  names[tensor::kDeltaZIn] = "ssm_g_a", names[tensor::kDeltaZ] = "ssm_g_b";
  names[tensor::kDeltaConv] = "ssm_conv1d_{}", names[tensor::kDeltaOut] = "attn_output";
}

void describe_kimi_linear(ConfigWriter& writer, const ModelConfig& config) {
  describe_latent(writer, config);
  describe_sigmoid_routing(writer, config);
  json kv_heads = json::array();
  int n_dense = 0;
  for (const LayerConfig& layer : config.layers) {
    kv_heads.push_back(layer.attention ? uint64_t{1} : uint64_t{0});
    n_dense += layer.moe ? 0 : 1;
  }
  writer.set({"attention.head_count_kv", ""}, kv_heads);
  writer.set({"rope.dimension_count", ""}, config.latent.rope_dim);
  writer.set({"leading_dense_block_count", ""}, n_dense);
  writer.set({"expert_shared_count", ""}, config.experts.shared_dim / config.experts.ffn_dim);
  const DeltaConfig* const found = delta_config(config);
  const DeltaConfig delta = found != nullptr ? *found : DeltaConfig();
  writer.set({"ssm.conv_kernel", ""}, delta.taps);
  writer.set({"kda.head_dim", ""}, delta.key_dim);
}

}  // namespace

extern constinit const Architecture kKimiLinear = {
    .name = "kimi-linear",
    .title = "Kimi Linear",
    .hf_types = {"kimi_linear", "KimiLinearForCausalLM"},
    .configure = configure_kimi_linear,
    .hf_names = kimi_linear_names,
    .forward = decoder_forward,
    .hf_defaults =
        R"({"rms_norm_eps": 1e-5, "first_k_dense_replace": 1, "n_shared_experts": 1, "routed_scaling_factor": 2.446,
    "num_experts": 256, "num_experts_per_tok": 8, "moe_intermediate_size": 1024, "kv_lora_rank": 512, "qk_rope_head_dim": 64,
    "qk_nope_head_dim": 128, "v_head_dim": 128})",
    .hf_aliases =
        R"({"num_experts_per_token": "num_experts_per_tok", "num_shared_experts": "n_shared_experts",
    "num_expert_group": "n_group", "moe_renormalize": "norm_topk_prob", "model_max_length": "max_position_embeddings"})",
    .describe = describe_kimi_linear,
    .gguf_names = kimi_linear_gguf_names,
};

}  // namespace penstock
