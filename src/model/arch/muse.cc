// Muse Glimmer (text): a normed embedding, norms without weights on the heads of queries and keys,
// factors of queries and of bounded logits, gates of attended values, norms around each sub-layer;
// layers without a window are not rotated. Muse Spark (text): experts that read a normed latent, and a
// stream that keeps a share of each column where a sub-layer joins it.
#include <cmath>
#include <nlohmann/json.hpp>

#include "base/check.h"
#include "model/arch/archs.h"

namespace penstock {

namespace {

using nlohmann::json;

// The usual word of which layers have a window, and no bias of attention.
void configure_muse(ConfigReader& reader, ModelConfig& config) {
  constexpr int kMuseFullEvery = 4, kMostMuseWindow = 1 << 30;
  set_rope_pairs(reader, config);
  config.residual.norms = NormPlacement::kBoth;
  config.embedding.bare_norm = true;
  config.norm.offset = reader.gguf() ? 0.0f : 1.0f;
  config.norm.plain_final = true;
  config.norm.post_eps = reader.number({"", "post_norm_eps"}, 0.0f, 1.0f, 1e-8f);
  if (config.norm.post_eps == 0.0f)
    reader.fail(ErrorCode::kUnsupported, "post_norm_eps: expected a positive number");
  config.attention.value_gates = true;
  // GGUF files have the factor of queries as weights of their norms.
  config.attention.qk_norm = reader.gguf() ? QkNorm::kHead : QkNorm::kBare;
  const float factor = reader.number({"", "qk_scale_factor"}, 1e-3f, 1e3f, 3.87f);
  config.attention.scale =
      (reader.gguf() ? 1.0f : factor) / std::sqrt(static_cast<float>(config.head_dim));
  config.output.scale = reader.number({"logit_scale", "output_multiplier"}, -1e6f, 1e6f,
                                      reader.gguf() ? 1.0f : 0.19611613513818404f);
  config.output.softcap = reader.number({"final_logit_softcapping", "final_logit_softcapping"},
                                        0.0f, 1e6f, reader.gguf() ? 0.0f : 20.0f);
  const bool listed = reader.has({"attention.sliding_window_pattern", "layer_types"});
  const int window =
      reader.integer({"attention.sliding_window", "sliding_window"}, 1, kMostMuseWindow, 2048);
  if (listed) read_windows(reader, config, 0, window);
  const std::vector<float> thetas = reader.numbers({"", "layer_rope_theta"}, config.layers.size());
  if (!thetas.empty() && thetas.size() != config.layers.size())
    return reader.fail(ErrorCode::kCorruptFile,
                       fmt::format("layer_rope_theta: expected {} numbers, got {}",
                                   config.layers.size(), thetas.size()));
  const size_t n = config.layers.size();
  for (size_t i = 0; i < n; ++i) {
    LayerConfig& layer = config.layers[i];
    const bool last_of_four = (n - 1 - i) % kMuseFullEvery == 0;
    if (!listed) layer.window = last_of_four ? 0 : window;
    const bool rotates = reader.gguf()    ? layer.window > 0
                         : thetas.empty() ? !last_of_four
                                          : thetas[i] != 0.0f;
    layer.rope = rotates ? 0 : -1;
    if (!thetas.empty() && rotates && thetas[i] != config.ropes[0].theta)
      reader.fail(ErrorCode::kUnsupported,
                  fmt::format("layer_rope_theta: expected 0 or rope_theta ({}), got {}",
                              config.ropes[0].theta, thetas[i]));
  }
}

void muse_names(NameTable& names, const ModelConfig&) {
  names[tensor::kGates] = "self_attn.gate_proj";
  names[tensor::kQNorm] = names[tensor::kKNorm] = "";
}

void configure_muse_spark(ConfigReader& reader, ModelConfig& config) {
  constexpr int kMostSparkLatent = 1 << 20;
  if (reader.gguf())
    return reader.fail(ErrorCode::kUnsupported,
                       "GGUF files of this architecture are not known: expected a directory");
  configure_muse(reader, config);
  config.residual.norms = NormPlacement::kPre;
  config.residual.weighing = ResidualWeighing::kShares;
  config.residual.share_temperature =
      reader.number({"", "residual_gate_temperature"}, 1e-3f, 1e3f, 0.3f);
  config.attention.attended_norm = true;
  read_experts(reader, config);
  read_mlp_layer_types(reader, config);
  ExpertsConfig& experts = config.experts;
  experts.latent_dim = reader.integer({"", "moe_hidden_size"}, 1, kMostSparkLatent, 4096);
  experts.normed_latent = experts.selection_bias = true;
  experts.router_factor = config.output.scale;
  experts.routing.score = RouterScore::kSigmoid;
  experts.routing.sum_eps = 1e-15f;
  experts.routing.scale = reader.number({"", "routed_scaling_factor"}, -1e6f, 1e6f, 1.0f);
}

void muse_spark_names(NameTable& names, const ModelConfig& config) {
  muse_names(names, config);
  names[tensor::kFfnNorm] = "pre_feedforward_layernorm";
  names[tensor::kExpertsIn] = "mlp.pre_expert_proj";
  names[tensor::kExpertsOut] = "mlp.post_expert_proj";
  names[tensor::kExpertGateUp] = "mlp.experts.gate_up_proj";
  names[tensor::kFusedExpertDown] = "mlp.experts.down_proj";
}

void describe_muse(ConfigWriter& writer, const ModelConfig& config) {
  writer.set({"logit_scale", "output_multiplier"}, config.output.scale);
  writer.set({"final_logit_softcapping", "final_logit_softcapping"}, config.output.softcap);
}

}  // namespace

extern constinit const Architecture kMuseGlimmer = {
    .name = "muse-glimmer",
    .title = "Muse Glimmer (text)",
    .hf_types = {"muse_glimmer_text", "MuseGlimmerForConditionalGeneration", "muse_glimmer"},
    .configure = configure_muse,
    .hf_names = muse_names,
    .forward = decoder_forward,
    .hf_defaults = R"({"tie_word_embeddings": false, "rms_norm_eps": 1e-5, "head_dim": 128,
    "num_key_value_heads": 2})",
    .describe = describe_muse,
    .hf_norms_less_one = true,
    .gguf_pairs = true,
};

StepOutputs weighted_forward(const ModelConfig& config, const ModelWeights& weights,
                             StepShape shape, KvCache& cache, Ops& ops,
                             const ForwardOptions& options) {
  PENSTOCK_CHECK(options.stream == nullptr);  // LayerRunner refuses such models
  const auto [first_layer, end_layer] = layers_of(config, weights, options);
  const Tensor x = ops.new_tensor(shape.tokens, config.model_dim, TensorRole::kStream),
               normed = ops.new_tensor(shape.tokens, config.model_dim);
  DecoderParts decoder(config, weights, shape, cache, ops);
  WeightedResidual stream(config, shape.tokens, ops);
  const bool by_shares = config.residual.weighing == ResidualWeighing::kShares;
  decoder.begin(x, options);
  if (first_layer == 0 && !by_shares) stream.begin(weights.input, x);
  const auto input = [&](const NormWeights& norm) {
    ops.norm(x, norm_params(config, norm), normed);
    return NormedInput{normed, {}, normed};
  };
  for (int i = first_layer; i < end_layer; ++i) {
    const LayerWeights& layer = weights.layers[static_cast<size_t>(i)];
    const WeightedResidualWeights& w = layer.weighted;
    const Tensor attended = stream.cleared();
    decoder.attention(i, input(layer.attn_norm), attended, nullptr);
    if (by_shares) stream.norm(nullptr, attended);
    stream.join(w.attention, attended, x);
    const Tensor fed = stream.cleared();
    decoder.feed_forward(i, input(layer.ffn_norm), fed, nullptr);
    if (by_shares) stream.norm(w.ffn_scale.weight.get(), fed);
    stream.join(w.feed_forward, fed, x);
  }
  return decoder.end(x, options);
}

extern constinit const Architecture kMuseSpark = {
    .name = "muse-spark",
    .title = "Muse Spark (text, also of `muse_spark`; CPU)",
    .hf_types = {"muse_spark_text", "MuseSparkForConditionalGeneration", "muse_spark"},
    .directories_only = true,
    .configure = configure_muse_spark,
    .hf_names = muse_spark_names,
    .forward = weighted_forward,
    .hf_defaults = R"({"tie_word_embeddings": false, "rms_norm_eps": 1e-5, "head_dim": 64,
    "num_key_value_heads": 16, "qk_scale_factor": 5.4730064863875, "output_multiplier": 0.1767766952966369,
    "moe_intermediate_size": 4096, "num_local_experts": 256, "num_experts_per_tok": 8, "rope_theta": 500000.0})",
    .hf_norms_less_one = true,
};

}  // namespace penstock
