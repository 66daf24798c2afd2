// LongCat-Flash: layers in pairs. The experts of a pair's first layer read what its dense feed-forward
// reads, and join the stream behind the second; some experts give their input. Latent attention with
// scaled latents.
#include <cmath>
#include <nlohmann/json.hpp>

#include "base/check.h"
#include "model/arch/archs.h"

namespace penstock {

namespace {

using nlohmann::json;

constexpr int kMostIdentities = 4096;

// The file counts pairs.
void usual_longcat(json& object) {
  const json pairs = object.value("num_layers", json(28));
  object.erase("num_layers");
  object.erase("head_dim");
  if (pairs.is_number_integer() && pairs > 0 && pairs < 1024)
    object["num_hidden_layers"] = 2 * pairs.get<int>();
}

// What the published file says and transformers assumes.
void check_longcat(ConfigReader& reader) {
  reader.expect_flag("router_bias", false);
  for (const char* key : {"mla_scale_q_lora", "mla_scale_kv_lora"}) reader.expect_flag(key, true);
  reader.expect_text("attention_method", "MLA");
  reader.expect_text("zero_expert_type", "identity");
}

void configure_longcat(ConfigReader& reader, ModelConfig& config) {
  if (reader.gguf())
    return reader.fail(ErrorCode::kUnsupported,
                       "GGUF files of this architecture are not known: expected a directory");
  if (config.ffn.activation.kind != Activation::kSilu)
    reader.fail(ErrorCode::kUnsupported, "hidden_act: expected silu");
  check_longcat(reader);
  read_latent(reader, config);
  LatentConfig& latent = config.latent;
  if (latent.query_rank == 0)
    return reader.fail(ErrorCode::kUnsupported, "q_lora_rank: expected a latent of queries");
  const auto dim = static_cast<float>(config.model_dim);
  latent.query_factor = std::sqrt(dim / static_cast<float>(latent.query_rank));
  latent.latent_factor = std::sqrt(dim / static_cast<float>(latent.kv_rank));
  read_experts(reader, config);
  ExpertsConfig& experts = config.experts;
  experts.shortcut = experts.selection_bias = true;
  experts.n_identities = reader.integer({"", "zero_expert_num"}, 0, kMostIdentities, 256);
  experts.routing.normalize = false;
  experts.routing.scale = reader.number({"", "routed_scaling_factor"}, -1e6f, 1e6f, 6.0f);
  for (size_t i = 0; i < config.layers.size(); ++i) {
    config.layers[i].moe = i % 2 == 0;
    config.layers[i].joining_layer = static_cast<int>(i / 2 * 2);
  }
}

void longcat_names(NameTable& names, const ModelConfig&) {
  names.layers_per_index = 2;
  names[tensor::kAttnNorm] = "input_layernorm.@";
  names[tensor::kFfnNorm] = "post_attention_layernorm.@";
  names[tensor::kQueryA] = "self_attn.@.q_a_proj", names[tensor::kQueryB] = "self_attn.@.q_b_proj";
  names[tensor::kQueryANorm] = "self_attn.@.q_a_layernorm";
  names[tensor::kLatentA] = "self_attn.@.kv_a_proj_with_mqa";
  names[tensor::kLatentANorm] = "self_attn.@.kv_a_layernorm";
  names[tensor::kLatentB] = "self_attn.@.kv_b_proj", names[tensor::kO] = "self_attn.@.o_proj";
  names[tensor::kGate] = "mlps.@.gate_proj", names[tensor::kUp] = "mlps.@.up_proj";
  names[tensor::kDown] = "mlps.@.down_proj", names[tensor::kGateUp] = "";
  names[tensor::kRouter] = "mlp.router.classifier";
  names[tensor::kSelectionBias] = "mlp.router.e_score_correction_bias";
}

}  // namespace

StepOutputs longcat_forward(const ModelConfig& config, const ModelWeights& weights, StepShape shape,
                            KvCache& cache, Ops& ops, const ForwardOptions& options) {
  PENSTOCK_CHECK(options.stream == nullptr);  // what joins is not of one layer
  const auto [first_layer, end_layer] = layers_of(config, weights, options);
  const Tensor x = ops.new_tensor(shape.tokens, config.model_dim, TensorRole::kStream),
               joining = ops.new_tensor(shape.tokens, config.model_dim, TensorRole::kStream),
               normed = ops.new_tensor(shape.tokens, config.model_dim);
  DecoderParts decoder(config, weights, shape, cache, ops);
  begin_stream(config, weights, shape, x, ops, options);
  for (int i = first_layer; i < end_layer; ++i) {
    const LayerWeights& layer = weights.layers[static_cast<size_t>(i)];
    const NormedInput h{x, norm_params(config, layer.attn_norm), normed},
        between{x, norm_params(config, layer.ffn_norm), normed};
    ops.prepare(h);
    decoder.attention(i, h, x, &between);
    if (config.layers[static_cast<size_t>(i)].moe) {
      ops.clear(joining);
      decoder.mixture(i, between, joining);
    }
    decoder.dense(i, between, x, nullptr);
    const bool joins = i % 2 == 1 || i + 1 == end_layer;
    if (joins) ops.add(x, joining, 1.0f);
  }
  return output_head(config, weights, x, shape, ops, options);
}

extern constinit const Architecture kLongcat = {
    .name = "longcat-flash",
    .title = "LongCat-Flash",
    .hf_types = {"longcat_flash", "LongcatFlashForCausalLM"},
    .directories_only = true,
    .configure = configure_longcat,
    .hf_names = longcat_names,
    .forward = longcat_forward,
    .hf_defaults = R"({"rms_norm_eps": 1e-5, "rope_theta": 1e7, "q_lora_rank": 1536,
    "kv_lora_rank": 512, "qk_rope_head_dim": 64, "qk_nope_head_dim": 128, "v_head_dim": 128, "n_routed_experts": 512,
    "moe_topk": 12, "expert_ffn_hidden_size": 2048, "ffn_hidden_size": 12288})",
    .hf_aliases = R"({"ffn_hidden_size": "intermediate_size", "moe_topk": "num_experts_per_tok",
    "expert_ffn_hidden_size": "moe_intermediate_size"})",
    .hf_usual = usual_longcat,
    .partial_rope = true,
};

}  // namespace penstock
