// DBRX: layer norms without biases, clamped queries, keys and values, experts by softmax in every
// layer, whose matrices directories store as one.
#include <nlohmann/json.hpp>

#include "model/arch/archs.h"

namespace penstock {

namespace {

using nlohmann::json;

constexpr float kDbrxNormEps = 1e-5f;  // of torch's layer norms; no file of the first models has it

// The usual keys of what attn_config and ffn_config say.
void usual_dbrx(json& object) {
  const auto move = [&](const char* part, const char* theirs, const char* usual) {
    const auto found = object.find(part);
    if (found == object.end() || !found->is_object() || !found->contains(theirs)) return;
    object[usual] = json((*found)[theirs]);
  };
  move("attn_config", "kv_n_heads", "num_key_value_heads");
  move("attn_config", "clip_qkv", "clip_qkv");
  move("attn_config", "rope_theta", "rope_theta");
  move("ffn_config", "ffn_hidden_size", "intermediate_size");
  move("ffn_config", "moe_num_experts", "moe_num_experts");
  move("ffn_config", "moe_top_k", "num_experts_per_tok");
  move("ffn_config", "moe_normalize_expert_weights", "moe_normalize_expert_weights");
  move("ffn_config", "ffn_act_fn", "ffn_act_fn");
}

// Weights of the chosen experts are divided by their sum, or stay as they are.
void read_dbrx_weights(ConfigReader& reader, ModelConfig& config) {
  const Key key{"", "moe_normalize_expert_weights"};
  const json* found = reader.gguf() ? nullptr : reader.find(key);
  config.experts.routing.normalize =
      reader.gguf() ? reader.flag({"expert_weights_norm", ""}, true) : found != nullptr;
  if (found != nullptr && reader.number(key, 0.0f, 1e6f) != 1.0f)
    reader.fail(ErrorCode::kUnsupported,
                "moe_normalize_expert_weights: expected 1 (the sum of weights) or null");
}

void configure_dbrx(ConfigReader& reader, ModelConfig& config) {
  config.norm.layer_norm = true;
  config.norm.biases = false;
  config.norm.eps = reader.number({"attention.layer_norm_epsilon", ""}, 0.0f, 1.0f, kDbrxNormEps);
  if (const json* function = reader.find({"", "ffn_act_fn"});
      function != nullptr && (!function->is_object() || function->size() != 1 ||
                              function->value("name", json()) != "silu"))
    reader.fail(ErrorCode::kUnsupported, "ffn_act_fn: expected {\"name\": \"silu\"}");
  read_clip_qkv(reader, config);
  read_experts(reader, config);
  read_dbrx_weights(reader, config);
}

void dbrx_names(NameTable& names, const ModelConfig&) {
  names.prefixes = {"transformer."};
  names.embedding = "wte", names.final_norm = "norm_f", names.layer = "blocks.{}.";
  names[tensor::kAttnNorm] = "norm_attn_norm.norm_1";
  names[tensor::kFfnNorm] = "norm_attn_norm.norm_2";
  names[tensor::kQkv] = "norm_attn_norm.attn.Wqkv";
  names[tensor::kQ] = names[tensor::kK] = names[tensor::kV] = "";
  names[tensor::kO] = "norm_attn_norm.attn.out_proj";
  names[tensor::kRouter] = "ffn.router.layer";
  names.experts_flat = true;
  names[tensor::kExpertGate] = "ffn.experts.mlp.w1";
  names[tensor::kExpertUp] = "ffn.experts.mlp.v1";
  names[tensor::kExpertDown] = "ffn.experts.mlp.w2";
}

void dbrx_gguf_names(NameTable& names, const ModelConfig&) {
  names[tensor::kFfnNorm] = "attn_output_norm";
}

void describe_dbrx(ConfigWriter& writer, const ModelConfig& config) {
  describe_layer_norm(writer, config);
  describe_clip_qkv(writer, config);
  writer.set({"expert_weights_norm", ""}, config.experts.routing.normalize);
}

}  // namespace

extern constinit const Architecture kDbrx = {
    .name = "dbrx",
    .title = "DBRX",
    .hf_types = {"dbrx", "DbrxForCausalLM"},
    .configure = configure_dbrx,
    .hf_names = dbrx_names,
    .forward = decoder_forward,
    .hf_defaults = R"({"tie_word_embeddings": false, "num_key_value_heads": 1, "moe_num_experts": 4,
    "num_experts_per_tok": 1, "intermediate_size": 3584, "moe_normalize_expert_weights": 1.0})",
    .hf_aliases = R"({"d_model": "hidden_size", "n_heads": "num_attention_heads",
    "n_layers": "num_hidden_layers", "max_seq_len": "max_position_embeddings"})",
    .hf_usual = usual_dbrx,
    .describe = describe_dbrx,
    .gguf_names = dbrx_gguf_names,
};

}  // namespace penstock
