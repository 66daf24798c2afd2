// Hunyuan dense and with experts: every head of q and k is rotated, then normed. Hy3: normed, then
// rotated, and experts chosen by sigmoid and a bias.
#include <cmath>
#include <nlohmann/json.hpp>

#include "model/arch/archs.h"

namespace penstock {

namespace {

// Returns a number that must be equal in all layers, which files may list one by one.
int number_for_all(ConfigReader& reader, Key key, int high, int fallback) {
  if (!reader.has(key)) return fallback;
  const std::vector<int> numbers = reader.integers(key, 0, high);
  const bool same =
      !numbers.empty() && std::ranges::count(numbers, numbers[0]) == std::ssize(numbers);
  if (!same)
    reader.fail(ErrorCode::kUnsupported,
                fmt::format("{}: expected the same number for all layers", reader.name(key)));
  return same ? numbers[0] : fallback;
}

// Fails if the file has a feature of the first models of the family, which models with these names
// lack.
void check_hunyuan(ConfigReader& reader) {
  for (const std::string_view key : {"use_cla", "group_limited_greedy"}) {
    if (reader.flag({"", key}, false))
      reader.fail(ErrorCode::kUnsupported, fmt::format("{}: expected false", key));
  }
}

void configure_hunyuan(ConfigReader& reader, ModelConfig& config) {
  check_hunyuan(reader);
  config.attention.qk_norm = reader.flag({"", "use_qk_norm"}, true) ? QkNorm::kHead : QkNorm::kNone;
  config.attention.rope_before_norm = true;
  const nlohmann::json* rope = reader.find({"", "rope_parameters"});
  if (rope == nullptr) rope = reader.find({"", "rope_scaling"});
  if (rope == nullptr) return;
  ConfigReader inner(*rope, Naming::kHuggingFace, "", reader.where() + ": rope_parameters");
  const std::string type = inner.text({"", "rope_type"}, inner.text({"", "type"}, "default"));
  // "dynamic" with alpha is a larger theta at every length.
  const float alpha = inner.number({"", "alpha"}, 0.0f, 1e6f, 0.0f);
  const float dim = static_cast<float>(config.ropes[0].rotary_dim);
  if (type == "dynamic" && alpha > 0 && dim > 2)
    config.ropes[0].theta *= std::pow(alpha, dim / (dim - 2));
  reader.merge(inner);
}

void describe_hunyuan(ConfigWriter& writer, const ModelConfig& config) {
  if (config.attention.qk_norm == QkNorm::kNone) writer.set({"", "use_qk_norm"}, false);
  writer.set({"", "attention_bias"}, writer.has_tensor("blk.0.attn_q.bias"));
}

void hunyuan_names(NameTable& names, const ModelConfig&) {
  names[tensor::kQNorm] = "self_attn.query_layernorm",
  names[tensor::kKNorm] = "self_attn.key_layernorm";
}

void configure_hunyuan_moe(ConfigReader& reader, ModelConfig& config) {
  configure_hunyuan(reader, config);
  config.experts.count = number_for_all(reader, {"expert_count", "num_experts"}, 4096, 1);
  config.experts.routing.n_active =
      number_for_all(reader, {"expert_used_count", "moe_topk"}, config.experts.count, 1);
  config.experts.routing.normalize = true;
  config.experts.ffn_dim = number_for_all(
      reader, {"expert_feed_forward_length", "moe_intermediate_size"}, 1 << 20, config.ffn_dim);
  const int n_shared =
      number_for_all(reader, {"expert_shared_count", "num_shared_expert"}, 1024, 1);
  config.experts.shared_dim = std::min(n_shared * config.ffn_dim, 1 << 20);
  if (config.experts.count < 1 || config.experts.routing.n_active < 1 || config.experts.ffn_dim < 1)
    reader.fail(ErrorCode::kCorruptFile,
                "num_experts, moe_topk, moe_intermediate_size: expected at least 1");
  const int n_dense = reader.integer({"", "moe_layer_num_skipped"}, 0, 1 << 20, 0);
  for (int i = n_dense; i < config.n_layers; ++i) config.layers[static_cast<size_t>(i)].moe = true;
}

void hunyuan_moe_names(NameTable& names, const ModelConfig& config) {
  hunyuan_names(names, config);
  names[tensor::kRouter] = "mlp.gate.wg";
  names[tensor::kSharedGate] = "mlp.shared_mlp.gate_proj",
  names[tensor::kSharedUp] = "mlp.shared_mlp.up_proj";
  names[tensor::kSharedDown] = "mlp.shared_mlp.down_proj";
}

void describe_hunyuan_moe(ConfigWriter& writer, const ModelConfig& config) {
  describe_hunyuan(writer, config);
  writer.set({"expert_shared_feed_forward_length", ""}, config.experts.shared_dim);
  writer.set({"expert_shared_count", "num_shared_expert"},
             config.experts.shared_dim / config.experts.ffn_dim);
  writer.set({"", "moe_topk"}, config.experts.routing.n_active);
  writer.set({"", "moe_layer_num_skipped"}, leading_dense_layers(config));
  for (const std::string_view key : {"num_experts_per_tok", "norm_topk_prob"})
    writer.erase({"", key});
}

void configure_hy_v3(ConfigReader& reader, ModelConfig& config) {
  config.attention.qk_norm = QkNorm::kHead;
  read_experts(reader, config);
  config.layers[0].moe = false;
  read_mlp_layer_types(reader, config);
  for (int i = 0; reader.gguf() && i < config.n_layers; ++i)
    config.layers[static_cast<size_t>(i)].moe =
        reader.has_tensor(fmt::format("blk.{}.ffn_gate_inp.weight", i));
  read_sigmoid_routing(reader, config);
  if (!reader.gguf()) return read_shared_experts(reader, config);
  config.experts.shared_dim =
      reader.integer({"expert_shared_feed_forward_length", ""}, 0, 1 << 20, 0);
}

void hy_v3_names(NameTable& names, const ModelConfig& config) {
  hunyuan_moe_names(names, config);
  names[tensor::kQNorm] = "self_attn.q_norm", names[tensor::kKNorm] = "self_attn.k_norm";
  names[tensor::kRouter] = "mlp.router.gate", names[tensor::kSelectionBias] = "mlp.expert_bias";
}

void hy_v3_gguf_names(NameTable& names, const ModelConfig&) {
  names[tensor::kSelectionBias] = "exp_probs_b";
}

void describe_hy_v3(ConfigWriter& writer, const ModelConfig& config) {
  describe_sigmoid_routing(writer, config);
  describe_mlp_layer_types(writer, config);
  writer.set({"expert_shared_feed_forward_length", ""}, config.experts.shared_dim);
  writer.set({"", "num_shared_experts"}, config.experts.shared_dim / config.experts.ffn_dim);
  writer.set({"", "router_scaling_factor"}, config.experts.routing.scale);
  writer.set({"", "attention_bias"}, writer.has_tensor("blk.0.attn_q.bias"));
  for (const std::string_view key :
       {"n_group", "topk_group", "routed_scaling_factor", "norm_topk_prob"})
    writer.erase({"", key});
}

constexpr std::string_view kHunyuanDefaults = R"({"rms_norm_eps": 1e-5})";

}  // namespace

extern constinit const Architecture kHunyuan = {
    .name = "hunyuan-dense",
    .title = "Hunyuan (dense)",
    .hf_types = {"hunyuan_v1_dense", "HunYuanDenseV1ForCausalLM"},
    .configure = configure_hunyuan,
    .hf_names = hunyuan_names,
    .forward = decoder_forward,
    .hf_defaults = kHunyuanDefaults,
    .describe = describe_hunyuan,
};

extern constinit const Architecture kHunyuanMoe = {
    .name = "hunyuan-moe",
    .title = "Hunyuan (experts)",
    .hf_types = {"hunyuan_v1_moe", "HunYuanMoEV1ForCausalLM"},
    .configure = configure_hunyuan_moe,
    .hf_names = hunyuan_moe_names,
    .forward = decoder_forward,
    .hf_defaults = kHunyuanDefaults,
    .describe = describe_hunyuan_moe,
};

extern constinit const Architecture kHyV3 = {
    .name = "hy_v3",
    .title = "Hy3",
    .hf_types = {"hy_v3", "HYV3ForCausalLM"},
    .configure = configure_hy_v3,
    .hf_names = hy_v3_names,
    .forward = decoder_forward,
    .hf_defaults = R"({"head_dim": 128, "num_key_value_heads": 8,
    "rms_norm_eps": 1e-5, "rope_theta": 11158840.0, "num_experts": 192, "num_experts_per_tok": 8, "n_shared_experts": 1,
    "moe_intermediate_size": 1536, "routed_scaling_factor": 2.826})",
    .hf_aliases =
        R"({"num_shared_experts": "n_shared_experts", "router_scaling_factor": "routed_scaling_factor"})",
    .describe = describe_hy_v3,
    .gguf_names = hy_v3_gguf_names,
};

}  // namespace penstock
