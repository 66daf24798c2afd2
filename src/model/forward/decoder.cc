// The decoder that most architectures share. Rows of all tensors are the n tokens of all sequences.
#include "model/forward/decoder.h"

#include <algorithm>

#include "base/check.h"

namespace penstock {

DecoderParts::DecoderParts(const ModelConfig& config, const ModelWeights& weights, StepShape shape,
                           KvCache& cache, Ops& ops)
    : sublayer_(config, weights, shape, cache, ops), shape_(shape) {
  const bool attends = std::ranges::any_of(config.layers, &LayerConfig::attention);
  if (attends && config.profiles.width > 0) {
    profiles_.emplace(sublayer_);
  } else if (attends && config.compressed.query_rank > 0) {
    compressed_.emplace(sublayer_);
  } else if (attends && config.convolved.taps > 0) {
    convolved_.emplace(sublayer_);
  } else if (attends && config.latent.kv_rank > 0) {
    latent_.emplace(sublayer_);
  } else if (attends && config.attention.differential) {
    differential_.emplace(sublayer_);
  } else if (attends) {
    attention_.emplace(sublayer_);
  }
  const bool beside = std::ranges::any_of(config.layers, [](const LayerConfig& layer) {
    return layer.attention && layer.mixer != nullptr && !layer.mixer->follows_attention();
  });
  if (beside) mixer_in_ = ops.new_tensor(shape.tokens, config.model_dim);
  size_t n_mixers = 0;
  for (const LayerConfig& layer : config.layers) {
    const auto known = std::span(mixers_).first(n_mixers);
    if (layer.mixer == nullptr ||
        std::ranges::find(known, layer.mixer.get(), &MixerOfStep::mixer) != known.end())
      continue;
    PENSTOCK_CHECK(n_mixers < kMostMixers);
    mixers_[n_mixers++] = {layer.mixer.get(), layer.mixer->scratch(sublayer_)};
  }
  if (config.widest_ffn() > 0) dense_.emplace(sublayer_);
  if (config.experts.count > 0) experts_.emplace(sublayer_);
}

const MixerScratch& DecoderParts::scratch_of(const Mixer& mixer) const {
  return std::ranges::find(mixers_, &mixer, &MixerOfStep::mixer)->scratch;
}

void DecoderParts::attend(int i, const NormedInput& h, Tensor x, const NormedInput* next) {
  if (compressed_) return compressed_->forward(i, h, x, next);
  if (convolved_) return convolved_->forward(i, h, x, next);
  if (latent_) return latent_->forward(i, h, x, next);
  if (differential_) return differential_->forward(i, h, x, next);
  attention_->forward(i, h, x, next);
}

void DecoderParts::attention(int i, const NormedInput& h, Tensor x, const NormedInput* next) {
  const LayerConfig& kind = sublayer_.config.layers[static_cast<size_t>(i)];
  if (kind.mixer == nullptr) return attend(i, h, x, next);
  if (kind.attention && kind.mixer->follows_attention()) {
    attend(i, h, x, nullptr);
    return kind.mixer->forward(sublayer_, scratch_of(*kind.mixer), i, {x, {}, x}, x, next);
  }
  if (kind.attention) return attend_beside_mixer(i, h, x, next);
  kind.mixer->forward(sublayer_, scratch_of(*kind.mixer), i, h, x, next);
}

// x += attention(h) + mixer(h), where each input has its own factor.
void DecoderParts::attend_beside_mixer(int i, const NormedInput& h, Tensor x,
                                       const NormedInput* next) {
  const Mixer& mixer = *sublayer_.config.layers[static_cast<size_t>(i)].mixer;
  const Tensor attention_in = sublayer_.ops.materialize(h);
  sublayer_.ops.copy(attention_in, mixer_in_);
  sublayer_.multiply(attention_in, sublayer_.config.attention.in_factor);
  sublayer_.multiply(mixer_in_, mixer.input_factor());
  attend(i, {attention_in, {}, attention_in}, x, nullptr);
  mixer.forward(sublayer_, scratch_of(mixer), i, {mixer_in_, {}, mixer_in_}, x, next);
}

void DecoderParts::feed_forward(int i, const NormedInput& h, Tensor x, const NormedInput* next) {
  if (sublayer_.config.layers[static_cast<size_t>(i)].moe) return experts_->forward(i, h, x, next);
  dense_->forward(i, h, x, next);
}

void DecoderParts::dense_beside_experts(int i, const NormedInput& h, Tensor x) {
  experts_->beside_dense(i, h, *dense_, x);
}

namespace {

void embed(const ModelConfig& config, const ModelWeights& weights, StepShape shape, Tensor x,
           Ops& ops) {
  if (weights.shares_vocabulary) {
    ops.embed_share(*weights.embedding, weights.first_token, config.embedding.scale, x);
    ops.all_reduce(x);
  } else {
    ops.embed_tokens(*weights.embedding, config.embedding.scale, x);
  }
  if (config.embedding.bare_norm) ops.norm(x, {nullptr, nullptr, config.norm.eps}, x);
  if (shape.given) ops.put_given(x);
  if (weights.positions != nullptr) ops.embed_positions(*weights.positions, x);
  if (weights.token_types != nullptr) ops.embed_token_types(*weights.token_types, x);
  if (weights.embedding_norm) ops.norm(x, norm_params(config, weights.embedding_norm), x);
}

}  // namespace

void embed_input(const ModelConfig& config, const ModelWeights& weights, StepShape shape, Tensor x,
                 Ops& ops) {
  if (config.embedding.width == 0) return embed(config, weights, shape, x, ops);
  const Tensor narrow = ops.new_tensor(shape.tokens, config.embedding.width);
  embed(config, weights, shape, narrow, ops);
  const LinearTarget target = weights.embedding_projection.into(x);
  ops.linear(narrow, {&target, 1});
}

LayerRange layers_of(const ModelConfig& config, const ModelWeights& weights,
                     const ForwardOptions& options) {
  const Shard::Range own = weights.layers_of(config);
  const int end = own.first + own.count;
  if (options.stream != nullptr)
    return {options.first_layer, options.n_layers > 0 ? options.n_layers : end};
  return {own.first, options.n_layers > 0 ? std::clamp(options.n_layers, own.first, end) : end};
}

void begin_stream(const ModelConfig& config, const ModelWeights& weights, StepShape shape, Tensor x,
                  Ops& ops, const ForwardOptions& options) {
  if (options.stream != nullptr) return;
  if (weights.layers_of(config).first == 0) return embed_input(config, weights, shape, x, ops);
  ops.write_rows(options.stage_input, x);
}

Tensor stage_input(const ModelConfig& config, const ModelWeights& weights, StepShape shape,
                   Ops& ops, const ForwardOptions& options) {
  const Tensor all = ops.new_tensor(shape.tokens, config.stage_dim(weights.layers_of(config).first),
                                    TensorRole::kStream);
  ops.write_rows(options.stage_input, all);
  return all;
}

StepOutputs end_stage(std::span<const Tensor> parts, Ops& ops) {
  StepOutputs result;
  int cols = 0;
  for (const Tensor& part : parts) cols += part.cols;
  result.stream = ops.new_tensor(parts[0].rows, cols, TensorRole::kStream);
  cols = 0;
  for (const Tensor& part : parts) {
    if (part.cols > 0) ops.copy(part, result.stream.columns(cols, part.cols));
    cols += part.cols;
  }
  return result;
}

void DecoderParts::begin(Tensor x, const ForwardOptions& options) {
  const ModelConfig& config = sublayer_.config;
  const ModelWeights& weights = sublayer_.weights;
  Ops& ops = sublayer_.ops;
  if (config.carried_dim == 0 || weights.layers_of(config).first == 0)
    return begin_stream(config, weights, shape_, x, ops, options);
  const Tensor all = stage_input(config, weights, shape_, ops, options);
  ops.copy(all.columns(0, x.cols), x);
  ops.copy(all.columns(x.cols, config.carried_dim), sublayer_.carried);
}

StepOutputs DecoderParts::end(Tensor x, const ForwardOptions& options) {
  const ModelConfig& config = sublayer_.config;
  if (config.carried_dim > 0 && goes_on(config, sublayer_.weights))
    return end_stage(std::array{x, sublayer_.carried}, sublayer_.ops);
  return output_head(config, sublayer_.weights, x, shape_, sublayer_.ops, options);
}

StepOutputs decoder_forward(const ModelConfig& config, const ModelWeights& weights, StepShape shape,
                            KvCache& cache, Ops& ops, const ForwardOptions& options) {
  const auto [first_layer, end_layer] = layers_of(config, weights, options);
  // [n, model_dim], the residual stream
  const Tensor x = options.stream != nullptr
                       ? *options.stream
                       : ops.new_tensor(shape.tokens, config.model_dim, TensorRole::kStream);
  const Tensor normed = ops.new_tensor(shape.tokens, config.model_dim);
  DecoderParts decoder(config, weights, shape, cache, ops);

  // Input of a sub-layer: the stream, or its norm.
  const auto input = [&](const NormWeights& norm) {
    return norm ? NormedInput{x, norm_params(config, norm), normed} : NormedInput{x, {}, x};
  };

  // In models that add to the norm, the normed stream replaces the residual stream.
  const auto read = [&](const NormedInput& h) {
    if (!config.residual.adds_to_norm || !h.norm) return h;
    const Tensor values = ops.materialize(h);
    ops.copy(values, x);
    if (config.residual.norm_factor != 1.0f) ops.scale(x, config.residual.norm_factor, 0.0f);
    return NormedInput{values, {}, values};
  };

  begin_stream(config, weights, shape, x, ops, options);
  NormedInput h = input(weights.layers[first_layer].attn_norm);
  ops.prepare(h);
  const auto n_taps = static_cast<int>(options.taps.size());
  const Tensor tapped =
      n_taps > 0 ? ops.new_tensor(shape.tokens, n_taps * config.model_dim) : Tensor();
  const auto tap = [&](int layer) {
    for (int k = 0; k < n_taps; ++k)
      if (options.taps[static_cast<size_t>(k)] == layer)
        ops.copy(x, tapped.columns(k * config.model_dim, config.model_dim));
  };
  for (int i = first_layer; i < end_layer; ++i) {
    tap(i);
    const NormedInput between = input(weights.layers[i].ffn_norm);
    decoder.attention(i, read(h), x, &between);
    const bool last = i + 1 == end_layer, adds = shape.given && i < config.embedding.deep_levels;
    if (!last) h = input(weights.layers[i + 1].attn_norm);
    decoder.feed_forward(i, read(between), x, last || adds ? nullptr : &h);
    if (!adds) continue;
    ops.add_given(i + 1, x);
    if (!last) ops.prepare(h);
  }
  if (options.stream != nullptr) return {};
  tap(end_layer);
  if (n_taps == 0) return output_head(config, weights, x, shape, ops, options);
  ForwardOptions of_head = options;
  of_head.states = false;
  StepOutputs result = output_head(config, weights, x, shape, ops, of_head);
  result.states = tapped;
  return result;
}

StepOutputs output_head(const ModelConfig& config, const ModelWeights& weights, Tensor x,
                        StepShape shape, Ops& ops, const ForwardOptions& options) {
  StepOutputs result;
  if (goes_on(config, weights)) {
    result.stream = x;
    return result;
  }
  if (options.states) {
    result.states = ops.new_tensor(shape.tokens, config.model_dim);
    ops.norm(x, norm_params(config, weights.final_norm), result.states);
  }
  result.hidden = ops.new_tensor(shape.outputs, config.model_dim);
  if (shape.outputs == 0) return result;
  ops.gather_outputs(x, result.hidden);
  if (weights.final_norm)
    ops.norm(result.hidden, norm_params(config, weights.final_norm), result.hidden);
  if (!options.logits || !config.output.has_head) return result;
  result.logits = ops.new_tensor(shape.outputs, config.vocab_size, TensorRole::kLogits);
  project_output(config, weights, result.hidden, result.logits, ops);
  return result;
}

void project_output(const ModelConfig& config, const ModelWeights& weights, Tensor states,
                    Tensor logits, Ops& ops) {
  const Tensor own = logits.columns(weights.first_token, weights.output().rows());
  const LinearTarget target{&weights.output(), weights.output_bias.get(), own};
  ops.linear(states, {&target, 1});
  if (config.output.scale != 1.0f || config.output.softcap > 0)
    ops.scale(own, config.output.scale, config.output.softcap);
  if (weights.output_scale) ops.scale_columns(own, *weights.output_scale);
  if (const int rows = config.output.rows; rows > 0) {
    constexpr float kImpossible = -1e30f;
    const Tensor others = logits.columns(rows, logits.cols - rows);
    ops.clear(others);
    ops.activate(others, Activation::kSigmoid);  // 1/2
    ops.scale(others, 2 * kImpossible, 0.0f);
  }
  if (weights.shares_vocabulary) ops.gather_logits(logits);
}

}  // namespace penstock
