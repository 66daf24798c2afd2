// Grok 1 and 2: norms around each sub-layer, soft bounds of scores and logits, experts whose weights
// are shares of a softmax over all of them.
//
// Sources differ, and the owner of the weights counts. Grok 1 is as xAI's own code computes it: the
// router has no soft bound, and weights are not divided by their sum (llama.cpp bounds and divides).
// Grok 2 is as SGLang computes it, which xAI names to serve it: a soft bound of the router, no division,
// and a dense feed-forward beside the experts. Its rope_type "original" is the plain rotation there
// (llama.cpp takes it for YaRN).
#include <cmath>
#include <nlohmann/json.hpp>

#include "model/arch/archs.h"

namespace penstock {

namespace {

constexpr float kGrokCap = 30.0f;

// Behind this many tokens Grok 2's bounded scores grow with the position.
constexpr Key kGrokTemperature{"attention.temperature_length", "attn_temperature_len"};

void check_grok(ConfigReader& reader, const ModelConfig& config) {
  if (config.ropes[0].scaling != RopeScaling::kNone)
    reader.fail(ErrorCode::kUnsupported, "rope_scaling: expected none");
  const std::string rope = reader.text({"", "rope_type"}, "original");
  if (rope != "original")
    reader.fail(ErrorCode::kUnsupported, fmt::format("rope_type: expected original, got {}", rope));
  reader.expect_text("attn_logit_softcapping_method", "tanh");
  if (reader.find({"", "sliding_window_size"}) != nullptr &&
      reader.integer({"", "sliding_window_size"}, -1, 1 << 30, -1) != -1)
    reader.fail(ErrorCode::kUnsupported, "sliding_window_size: expected -1");
  if (reader.integer({"", "global_attn_every_n"}, 1, 1 << 20, 1) != 1)
    reader.fail(ErrorCode::kUnsupported, "global_attn_every_n: expected 1");
}

void configure_grok(ConfigReader& reader, ModelConfig& config) {
  if (!reader.gguf()) check_grok(reader, config);
  config.ffn.activation = Activation::kGeluTanh;
  config.residual.norms = NormPlacement::kBoth;
  RopeConfig& rope = config.ropes[0];
  rope.scaling = RopeScaling::kNone, rope.factor = 1.0f, rope.attention_factor = 0.0f;
  config.embedding.scale =
      reader.number({"embedding_scale", "embedding_multiplier_scale"}, -1e6f, 1e6f, 78.38367f);
  config.output.scale =
      reader.number({"logit_scale", "output_multiplier_scale"}, -1e6f, 1e6f, 0.57735027f);
  config.attention.scale =
      reader.number({"attention.output_scale", "attn_output_multiplier"}, 0.0f, 1e6f,
                    1.0f / std::sqrt(static_cast<float>(config.head_dim)));
  config.attention.softcap =
      reader.number({"attn_logit_softcapping", "attn_logit_softcapping"}, 0.0f, 1e6f, kGrokCap);
  config.output.softcap =
      reader.number({"final_logit_softcapping", "final_logit_softcapping"}, 0.0f, 1e6f, 0.0f);
  const int dense = config.ffn_dim;
  read_experts(reader, config);
  config.experts.routing.normalize = false;
  const float cap =
      reader.number({"router_logit_softcapping", "router_logit_softcapping"}, 0.0f, 1e6f, kGrokCap);
  const bool both = reader.gguf() ? reader.has_tensor("blk.0.ffn_up.weight")
                                  : reader.flag({"", "residual_moe"}, false);
  const int length = reader.integer(kGrokTemperature, -1, kMaxContextLength, -1);
  if (length > 0) config.max_seq_len = std::min(config.max_seq_len, length);
  if (!both) return;
  config.experts.router_softcap = cap;
  config.experts.shared_dim = dense;
  config.experts.routing.scale = config.experts.shared_factor = 1.0f / std::sqrt(2.0f);
}

void describe_grok(ConfigWriter& writer, const ModelConfig& config) {
  const bool both = config.experts.shared_dim > 0;
  if (both) writer.set({"feed_forward_length", "intermediate_size"}, config.experts.shared_dim);
  writer.set({"", "num_local_experts"}, config.experts.count);
  writer.set({"embedding_scale", "embedding_multiplier_scale"}, config.embedding.scale);
  writer.set({"logit_scale", "output_multiplier_scale"}, config.output.scale);
  writer.set({"attention.output_scale", "attn_output_multiplier"}, config.attention.scale);
  writer.set({"attn_logit_softcapping", "attn_logit_softcapping"}, config.attention.softcap);
  writer.set({"final_logit_softcapping", "final_logit_softcapping"}, config.output.softcap);
  writer.set({"router_logit_softcapping", "router_logit_softcapping"},
             config.experts.router_softcap);
  writer.set({"", "residual_moe"}, both);
  writer.erase({"expert_weights_norm", "norm_topk_prob"});
  writer.erase({"", "num_experts"});
}

void grok_names(NameTable& names, const ModelConfig& config) {
  mixtral_names(names, config);
  names[tensor::kAttnNorm] = "pre_attn_norm", names[tensor::kAttnPostNorm] = "post_attn_norm";
  names[tensor::kFfnNorm] = "pre_moe_norm", names[tensor::kFfnPostNorm] = "post_moe_norm";
  names[tensor::kSharedGate] = "mlp.gate_proj", names[tensor::kSharedUp] = "mlp.up_proj";
  names[tensor::kSharedDown] = "mlp.down_proj";
}

void grok_gguf_names(NameTable& names, const ModelConfig& config) {
  names[tensor::kAttnPostNorm] = "attn_output_norm";
  if (config.experts.shared_dim == 0) names[tensor::kFfnPostNorm] = "layer_output_norm";
  names[tensor::kSharedGate] = "ffn_gate", names[tensor::kSharedUp] = "ffn_up";
  names[tensor::kSharedDown] = "ffn_down";
}

}  // namespace

extern constinit const Architecture kGrok = {
    .name = "grok",
    .title = "Grok 1, 2 (Grok 2: 1,024 tokens)",
    .hf_types = {"grok-1", "Grok1ForCausalLM", "Grok1ModelForCausalLM", "git", "grok"},
    .configure = configure_grok,
    .hf_names = grok_names,
    .forward = decoder_forward,
    .hf_defaults = R"({"rms_norm_eps": 1e-5, "rope_theta": 1e4, "num_experts_per_tok": 2,
    "num_local_experts": 8, "tie_word_embeddings": false})",
    .hf_aliases = R"({"max_attn_value": "attn_logit_softcapping"})",
    .describe = describe_grok,
    .gguf_names = grok_gguf_names,
};

}  // namespace penstock
