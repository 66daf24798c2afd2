// Arctic: in every layer a dense feed-forward as wide as the stream, and experts that read the stream
// before attention.
#include <nlohmann/json.hpp>

#include "base/check.h"
#include "model/arch/archs.h"

namespace penstock {

namespace {

void configure_arctic(ConfigReader& reader, ModelConfig& config) {
  set_rope_pairs(reader, config);
  for (const char* key : {"parallel_attn_mlp_res", "use_residual"}) reader.expect_flag(key, true);
  if (reader.integer({"", "moe_layer_frequency"}, 1, 1 << 20, 1) != 1)
    reader.fail(ErrorCode::kUnsupported, "moe_layer_frequency: expected 1, experts in every layer");
  // The file's width is that of experts.
  read_experts(reader, config);
  config.ffn_dim = config.model_dim;
  config.experts.reads_early = true;
  // Implementations differ in the weight of an expert that is alone.
  if (config.experts.routing.n_active < 2)
    reader.fail(ErrorCode::kUnsupported, "num_experts_per_tok: expected 2 or more");
}

void describe_arctic(ConfigWriter& writer, const ModelConfig& config) {
  writer.set({"feed_forward_length", "intermediate_size"}, config.experts.ffn_dim);
  writer.set({"", "num_local_experts"}, config.experts.count);
  writer.set({"", "moe_layer_frequency"}, 1);
  writer.set({"", "parallel_attn_mlp_res"}, true);
}

void arctic_names(NameTable& names, const ModelConfig& config) {
  mixtral_names(names, config);
  names[tensor::kFfnNorm] = "residual_layernorm";
  names[tensor::kExpertNorm] = "post_attention_layernorm";
  names[tensor::kGate] = "residual_mlp.w1", names[tensor::kUp] = "residual_mlp.w3";
  names[tensor::kDown] = "residual_mlp.w2", names[tensor::kGateUp] = "";
}

void arctic_gguf_names(NameTable& names, const ModelConfig&) {
  names[tensor::kExpertNorm] = "ffn_norm_exps";
}

}  // namespace

StepOutputs arctic_forward(const ModelConfig& config, const ModelWeights& weights, StepShape shape,
                           KvCache& cache, Ops& ops, const ForwardOptions& options) {
  PENSTOCK_CHECK(options.stream == nullptr);  // LayerRunner refuses such models
  const auto [first_layer, end_layer] = layers_of(config, weights, options);
  const Tensor x = ops.new_tensor(shape.tokens, config.model_dim, TensorRole::kStream),
               joining = ops.new_tensor(shape.tokens, config.model_dim, TensorRole::kStream),
               normed = ops.new_tensor(shape.tokens, config.model_dim);
  DecoderParts decoder(config, weights, shape, cache, ops);
  begin_stream(config, weights, shape, x, ops, options);
  for (int i = first_layer; i < end_layer; ++i) {
    const LayerWeights& layer = weights.layers[static_cast<size_t>(i)];
    const auto input = [&](const NormWeights& norm) {
      return NormedInput{x, norm_params(config, norm), normed};
    };
    const NormedInput early = input(layer.beside.expert_norm), between = input(layer.ffn_norm);
    ops.clear(joining);
    ops.prepare(early);
    decoder.mixture(i, early, joining);
    ops.prepare(input(layer.attn_norm));
    decoder.attention(i, input(layer.attn_norm), x, &between);
    decoder.dense(i, between, x, nullptr);
    ops.add(x, joining, 1.0f);
  }
  return output_head(config, weights, x, shape, ops, options);
}

extern constinit const Architecture kArctic = {
    .name = "arctic",
    .title = "Arctic",
    .hf_types = {"arctic", "ArcticForCausalLM"},
    .configure = configure_arctic,
    .hf_names = arctic_names,
    .forward = arctic_forward,
    .hf_defaults = R"({"rms_norm_eps": 1e-5, "rope_theta": 1e6, "num_local_experts": 8,
    "num_experts_per_tok": 1, "moe_layer_frequency": 2, "parallel_attn_mlp_res": false})",
    .describe = describe_arctic,
    .gguf_names = arctic_gguf_names,
    .gguf_pairs = true,
};

}  // namespace penstock
