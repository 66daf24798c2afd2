// Decoders whose attention and feed-forward read the same stream: GPT-NeoX, Falcon, Phi-2,
// Command-R, StableLM.
#include "model/arch/archs.h"
#include "model/forward/decoder.h"

namespace penstock {

StepOutputs parallel_forward(const ModelConfig& config, const ModelWeights& weights,
                             StepShape shape, KvCache& cache, Ops& ops,
                             const ForwardOptions& options) {
  if (!config.residual.parallel)
    return decoder_forward(config, weights, shape, cache, ops, options);
  const int n = shape.tokens;
  const auto [first_layer, end_layer] = layers_of(config, weights, options);
  // [n, model_dim], the residual stream
  const Tensor x = options.stream != nullptr
                       ? *options.stream
                       : ops.new_tensor(n, config.model_dim, TensorRole::kStream);
  const Tensor attn_in = ops.new_tensor(n, config.model_dim);
  const Tensor ffn_in =
      config.residual.parallel_norms ? ops.new_tensor(n, config.model_dim) : attn_in;
  DecoderParts decoder(config, weights, shape, cache, ops);

  begin_stream(config, weights, shape, x, ops, options);
  for (int i = first_layer; i < end_layer; ++i) {
    const LayerWeights& layer = weights.layers[i];
    ops.norm(x, norm_params(config, layer.attn_norm), attn_in);
    if (config.residual.parallel_norms) ops.norm(x, norm_params(config, layer.ffn_norm), ffn_in);
    decoder.attention(i, {attn_in, {}, attn_in}, x, nullptr);
    decoder.feed_forward(i, {ffn_in, {}, ffn_in}, x, nullptr);
  }
  if (options.stream != nullptr) return {};
  return output_head(config, weights, x, shape, ops, options);
}

}  // namespace penstock
