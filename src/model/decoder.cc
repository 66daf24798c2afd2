// The decoder that most architectures share. n tokens of all sequences are the rows of every tensor.
#include "model/decoder.h"

#include <algorithm>

namespace penstock {

NormParams norm_params(const ModelConfig& config, const NormWeights& norm) {
  return {norm.weight.get(), norm.bias.get(), config.norm_eps, config.layer_norm};
}

DecoderParts::DecoderParts(const ModelConfig& config, const ModelWeights& weights, StepShape shape,
                           KvCache& cache, Ops& ops)
    : config_(config), weights_(weights), cache_(cache), ops_(ops) {
  const int n = shape.tokens;
  q_ = ops.new_tensor(n, config.q_dim());
  k_ = ops.new_tensor(n, config.kv_dim());
  if (config.latent.kv_rank > 0) {
    const LatentConfig& latent = config.latent;
    if (latent.query_rank > 0) query_latent_ = ops.new_tensor(n, latent.query_rank);
    queries_ = ops.new_tensor(n, config.n_heads * (latent.plain_dim + latent.rope_dim));
    values_ = ops.new_tensor(n, config.n_heads * latent.value_dim);
  } else {
    v_ = ops.new_tensor(n, config.kv_dim());
  }
  attended_ = ops.new_tensor(
      n, config.latent.kv_rank > 0 ? config.n_heads * config.cache_value_dim() : config.q_dim());
  if (config.attention_gate) gated_q_ = ops.new_tensor(n, 2 * config.q_dim());
  if (config.head_gates) gates_ = ops.new_tensor(n, config.n_heads);
  if (config.value_gates) gates_ = ops.new_tensor(n, config.q_dim());
  make_recurrent_tensors(n);
  out_ = ops.new_tensor(n, config.model_dim);
  if (weights.padding > 0) {
    const int values = config.n_heads * config.latent.value_dim;
    const int widest = std::max({config.q_dim(), values, config.widest_ffn(), config.shared_ffn_dim,
                                 config.delta.values(), config.short_conv_dim()});
    padded_ = ops.new_tensor(n, widest + weights.padding);
  }
  if (config.widest_ffn() > 0) {
    gate_ = ops.new_tensor(n, config.widest_ffn());
    up_ = ops.new_tensor(n, config.widest_ffn());
  }
  if (config.n_experts > 0) router_ = ops.new_tensor(n, config.n_experts, TensorRole::kLogits);
  if (config.expert_latent_dim > 0) {
    latent_in_ = ops.new_tensor(n, config.expert_latent_dim);
    latent_out_ = ops.new_tensor(n, config.expert_latent_dim);
  }
  if (config.shared_ffn_dim > 0) {
    shared_gate_ = ops.new_tensor(n, config.shared_ffn_dim);
    shared_up_ = ops.new_tensor(n, config.shared_ffn_dim);
  }
  if (config.shared_ffn_dim > 0 || config.experts_beside_dense)
    shared_out_ = ops.new_tensor(n, config.model_dim);
  if (config.experts_beside_dense) router_in_ = ops.new_tensor(n, config.model_dim);
  if (config.shared_expert_gate) shared_weight_ = ops.new_tensor(n, 1, TensorRole::kLogits);
}

void DecoderParts::make_recurrent_tensors(int n) {
  const auto has = [&](Recurrence kind) {
    return std::ranges::find(config_.layers, kind, &LayerConfig::recurrence) != config_.layers.end();
  };
  if (has(Recurrence::kShortConv)) {
    conv_in_ = ops_.new_tensor(n, 3 * config_.short_conv_dim());
    convolved_ = ops_.new_tensor(n, config_.short_conv_dim());
  }
  if (has(Recurrence::kDeltaNet) || has(Recurrence::kStateSpace)) {
    const DeltaConfig& delta = config_.delta;
    conv_in_ = ops_.new_tensor(n, delta.channels());
    convolved_ = ops_.new_tensor(n, delta.channels());
    delta_z_ = ops_.new_tensor(n, delta.values());
    delta_out_ = ops_.new_tensor(n, delta.values());
    delta_a_ = ops_.new_tensor(n, delta.decays(), TensorRole::kLogits);
    delta_b_ = ops_.new_tensor(n, delta.n_value_heads, TensorRole::kLogits);
    if (delta.decay_by_key) {
      delta_a_in_ = ops_.new_tensor(n, delta.key_dim);
      delta_z_in_ = ops_.new_tensor(n, delta.key_dim);
    }
    const bool beside = std::ranges::any_of(config_.layers, [](const LayerConfig& layer) {
      return layer.attention && layer.recurrence != Recurrence::kNone;
    });
    if (beside) scan_in_ = ops_.new_tensor(n, config_.model_dim);
  }
}

void DecoderParts::attention(int i, const NormedInput& h, Tensor x, const NormedInput* next) {
  const LayerConfig& kind = config_.layers[static_cast<size_t>(i)];
  if (kind.recurrence == Recurrence::kShortConv) return short_conv(i, h, x, next);
  if (kind.recurrence == Recurrence::kDeltaNet) return delta_net(i, h, x, next);
  if (kind.recurrence == Recurrence::kStateSpace && kind.attention)
    return attention_beside_scan(i, h, x, next);
  if (kind.recurrence == Recurrence::kStateSpace) return state_space(i, h, x, next);
  if (config_.latent.kv_rank > 0) return latent_attention(i, h, x, next);
  attention_of_heads(i, h, x, next);
}

void DecoderParts::attention_of_heads(int i, const NormedInput& h, Tensor x, const NormedInput* next) {
  const LayerConfig& kind = config_.layers[static_cast<size_t>(i)];
  const LayerWeights& layer = weights_.layers[i];
  const Heads heads = project_heads(i, h);
  const RopeParams* const rope = prepare_heads(i, heads);
  const Tensor attended = attended_.narrowed(config_.q_dim_of(i));
  const AttentionParams params{kind.kv_layer >= 0 ? kind.kv_layer : i,
                               config_.n_heads,
                               config_.attention_scale * kind.score_factor * config_.multipliers.key,
                               config_.attention_softcap,
                               layer.sinks.get(),
                               weights_.alibi_slopes.get()};
  if (kind.query_scale) {
    store(i, heads, rope);
    ops_.scale_by_position(heads.q, config_.query_scale);
    ops_.attend(heads.q, cache_, params, attended);
  } else {
    ops_.store_and_attend(heads.q, heads.k, heads.v, rope, cache_, params, attended);
  }
  if (config_.attention_gate) {
    const Tensor by_head = attended.reshaped(config_.head_dim);
    ops_.activate_mul(half_heads(gated_q_, 1), by_head, Activation::kSigmoid, by_head);
  }
  if (config_.head_gates) ops_.gate_rows(attended.reshaped(config_.head_dim), gates_.reshaped(1));
  if (config_.value_gates)
    ops_.activate_mul(gates_.narrowed(attended.cols), attended, Activation::kSigmoid, attended);
  if (layer.attn_sub_norm) ops_.norm(attended, norm_params(config_, layer.attn_sub_norm), attended);
  if (config_.int8_activations) ops_.round_int8(attended);
  add_product(attended, layer.o, x, layer.attn_post_norm, next, config_.multipliers.attention_out);
}

// Heads as rows, of each its first or its second half: the query, or the gate.
Tensor DecoderParts::half_heads(Tensor x, int half) const {
  const int dim = config_.head_dim;
  return x.reshaped(2 * dim).columns(half * dim, dim);
}

DecoderParts::Heads DecoderParts::project_heads(int i, const NormedInput& h) {
  const LayerConfig& kind = config_.layers[static_cast<size_t>(i)];
  const LayerWeights& layer = weights_.layers[i];
  const Tensor q = q_.narrowed(config_.q_dim_of(i));
  if (kind.kv_layer >= 0) {
    const LinearTarget target = layer.q.into(q);
    ops_.norm_linear(rounded(h), {&target, 1});
    return {q, {}, {}};
  }
  const int kv_dim = config_.kv_dim_of(i);
  const Heads heads{q, k_.narrowed(kv_dim), v_.narrowed(kv_dim)};
  const bool gated = config_.attention_gate;
  LinearTarget targets[4] = {layer.q.into(gated ? gated_q_ : heads.q), layer.k.into(heads.k)};
  size_t n_targets = 2;
  if (!kind.keys_as_values) targets[n_targets++] = layer.v.into(heads.v);
  if (const int n_gates = config_.n_gates_of(i); n_gates > 0)
    targets[n_targets++] = layer.gates.into(gates_.narrowed(n_gates));
  ops_.norm_linear(rounded(h), std::span(targets).first(n_targets));
  if (gated) ops_.copy(half_heads(gated_q_, 0), heads.q.reshaped(config_.head_dim));
  if (kind.keys_as_values) ops_.copy(heads.k, heads.v);
  return heads;
}

// Rotates q, and k into the cache with v.
void DecoderParts::store(int i, const Heads& heads, const RopeParams* rope) {
  if (config_.layers[static_cast<size_t>(i)].kv_layer < 0)
    return ops_.rope_and_store(heads.q, heads.k, heads.v, rope, cache_, i);
  if (rope != nullptr) ops_.rotate(heads.q, heads.k, *rope, config_.head_dim_of(i));
}

// Norms them; the rope that is still to be applied when they are stored.
const RopeParams* DecoderParts::prepare_heads(int i, const Heads& heads) {
  const int index = config_.layers[static_cast<size_t>(i)].rope;
  const RopeParams* rope = index < 0 ? nullptr : &weights_.ropes[static_cast<size_t>(index)];
  const bool rotate_first = rope != nullptr && config_.rope_before_norm && config_.qk_norm != QkNorm::kNone;
  if (rotate_first) ops_.rotate(heads.q, heads.k, *rope, config_.head_dim_of(i));
  norm_heads(i, heads);
  return rotate_first ? nullptr : rope;
}

void DecoderParts::norm_heads(int i, const Heads& heads) {
  const LayerWeights& layer = weights_.layers[i];
  const int head_dim = config_.head_dim_of(i);
  const auto norm = [&](Tensor x, const NormParams& params, bool row) {
    const Tensor rows = row ? x : x.reshaped(head_dim);
    if (x.cols > 0) ops_.norm(rows, params, rows);
  };
  if (config_.value_norm) norm(heads.v, {nullptr, nullptr, config_.norm_eps}, false);
  const bool plain_there = config_.layers[static_cast<size_t>(i)].rope >= 0;
  if (config_.qk_norm != QkNorm::kNone && (config_.qk_norm != QkNorm::kPlain || plain_there)) {
    const bool row = config_.qk_norm == QkNorm::kRow;
    norm(heads.q, norm_params(config_, layer.q_norm), row);
    norm(heads.k, norm_params(config_, layer.k_norm), row);
  }
  if (config_.clip_qkv == 0.0f) return;
  ActivationFunction clamp(Activation::kClamp);
  clamp.parameters[0] = config_.clip_qkv;
  for (const Tensor& x : {heads.q, heads.k, heads.v}) ops_.activate(x, clamp);
}

void DecoderParts::feed_forward(int i, const NormedInput& h, Tensor x, const NormedInput* next) {
  const LayerWeights& layer = weights_.layers[i];
  if (config_.layers[static_cast<size_t>(i)].moe) {
    experts(i, h, h);
    if (layer.shared_down.weight != nullptr) add_shared(layer, h, out_);
    return add(out_, layer.expert_down.partial, x, layer.ffn_post_norm, next);
  }
  const Tensor hidden = dense_hidden(i, h);
  add_product(hidden, layer.down, x, layer.ffn_post_norm, next, config_.multipliers.down);
}

Tensor DecoderParts::dense_hidden(int i, const NormedInput& h) {
  const LayerWeights& layer = weights_.layers[i];
  const int width = config_.ffn_dim_of(i);
  const Tensor hidden = gate_.narrowed(width);
  dense(rounded(h), layer.gate, layer.up, layer.activation, hidden, up_.narrowed(width),
        config_.layers[static_cast<size_t>(i)].gate_cutoff);
  if (layer.ffn_sub_norm) ops_.norm(hidden, norm_params(config_, layer.ffn_sub_norm), hidden);
  if (config_.int8_activations) ops_.round_int8(hidden);
  return hidden;
}

void DecoderParts::dense_beside_experts(int i, const NormedInput& h, Tensor x) {
  const LayerWeights& layer = weights_.layers[i];
  const BesideWeights& beside = layer.beside;
  const LinearTarget down = layer.down.into(shared_out_);
  ops_.linear(padded(dense_hidden(i, h), layer.down), {&down, 1});
  if (down.partial) ops_.all_reduce(shared_out_);
  ops_.norm(shared_out_, norm_params(config_, beside.dense_post_norm), shared_out_);
  // h is read: its tensor is free for what the experts read.
  const NormedInput router{x, norm_params(config_, beside.router_norm), router_in_};
  const NormedInput input{x, norm_params(config_, beside.expert_norm), h.values};
  ops_.prepare(router);
  ops_.prepare(input);
  experts(i, router, input);
  if (layer.expert_down.partial) ops_.all_reduce(out_);
  ops_.norm(out_, norm_params(config_, beside.expert_post_norm), out_);
  ops_.add(out_, shared_out_, 1.0f);
  ops_.norm(out_, norm_params(config_, layer.ffn_post_norm), out_);
  ops_.add_whole(x, out_, config_.residual_scale, nullptr);
}

// hidden = act(gate h) * up h, or act(up h) without a gate.
void DecoderParts::dense(const NormedInput& h, const LinearWeights& gate, const LinearWeights& up,
                         const ActivationFunction& f, Tensor hidden, Tensor other, float cutoff) {
  if (gate.weight != nullptr && (config_.multipliers.gate != 1.0f || cutoff != kNoCutoff)) {
    const LinearTarget both[] = {gate.into(hidden), up.into(other)};
    ops_.norm_linear(h, both);
    multiply(hidden, config_.multipliers.gate);
    if (cutoff != kNoCutoff) ops_.keep_above(hidden, cutoff);
    return ops_.activate_mul(hidden, other, f, hidden);
  }
  if (gate.weight != nullptr) return ops_.gated_linear(h, gate.into(hidden), up.into(other), f, hidden);
  const LinearTarget target = up.into(hidden);
  ops_.norm_linear(h, {&target, 1});
  ops_.activate(hidden, f);
}

// out_ = the chosen experts' mixture.
void DecoderParts::experts(int i, const NormedInput& router_input, const NormedInput& h) {
  const LayerWeights& layer = weights_.layers[i];
  const LinearTarget router = layer.router.into(router_);
  ops_.norm_linear(router_input, {&router, 1});
  MoeParams params;
  params.gate = layer.expert_gate.weights, params.gate_bias = layer.expert_gate.biases;
  params.up = layer.expert_up.weights, params.up_bias = layer.expert_up.biases;
  params.down = layer.expert_down.weights, params.down_bias = layer.expert_down.biases;
  params.gate_adapters = layer.expert_gate.adapters, params.up_adapters = layer.expert_up.adapters;
  params.down_adapters = layer.expert_down.adapters;
  params.routing = config_.routing;
  params.selection_bias = layer.selection_bias.get();
  params.expert_scale = layer.beside.expert_scale.get();
  params.activation = layer.activation;
  params.down_lead = layer.expert_down.lead;
  params.mapped = layer.expert_down.mapped;
  if (layer.experts_in.weight == nullptr) return ops_.moe(ops_.materialize(h), router_, params, out_);
  const LinearTarget in = layer.experts_in.into(latent_in_), out = layer.experts_out.into(out_);
  ops_.norm_linear(h, {&in, 1});
  ops_.moe(latent_in_, router_, params, latent_out_);
  ops_.linear(latent_out_, {&out, 1});
}

// to += the experts that every token takes.
void DecoderParts::add_shared(const LayerWeights& layer, const NormedInput& h, Tensor to) {
  dense(h, layer.shared_gate, layer.shared_up, layer.activation, shared_gate_, shared_up_);
  if (layer.shared_router.weight != nullptr) {
    const LinearTarget weight = layer.shared_router.into(shared_weight_);
    ops_.norm_linear(h, {&weight, 1});
    ops_.gate_rows(shared_gate_, shared_weight_);
  }
  const LinearTarget down = layer.shared_down.into(shared_out_);
  ops_.linear(padded(shared_gate_, layer.shared_down), {&down, 1});
  ops_.add(to, shared_out_, 1.0f);
}

// h as products read it where activations are rounded first.
NormedInput DecoderParts::rounded(const NormedInput& h) {
  if (!config_.int8_activations) return h;
  const Tensor values = ops_.materialize(h);
  ops_.round_int8(values);
  return {values, {}, values};
}

void DecoderParts::multiply(Tensor x, float factor) {
  if (factor != 1.0f) ops_.scale(x, factor, 0.0f);
}

// x += post(in weight^T); a model without a norm behind the sub-layer has it empty, and may have a multiplier in its place.
void DecoderParts::add_product(Tensor in, const LinearWeights& weights, Tensor x, const NormWeights& post,
                               const NormedInput* next, float multiplier) {
  const LinearTarget product = weights.into(out_);
  if (!post)
    return ops_.linear_add(padded(in, weights), product, x, config_.residual_scale * multiplier, next);
  ops_.linear(padded(in, weights), {&product, 1});
  add(out_, weights.partial, x, post, next);
}

// x between the zeros that the weights' other inputs are (LinearWeights::lead).
Tensor DecoderParts::padded(Tensor x, const LinearWeights& weights) {
  const int cols = weights.weight->cols();
  if (cols == x.cols) return x;
  const Tensor whole = padded_.narrowed(cols);
  ops_.clear(whole);
  ops_.copy(x, whole.columns(weights.lead, x.cols));
  return whole;
}

// x += post(delta).
void DecoderParts::add(Tensor delta, bool partial, Tensor x, const NormWeights& post,
                       const NormedInput* next) {
  if (!post && partial) return ops_.add_shares(x, delta, config_.residual_scale, next);
  if (!post) return ops_.add_whole(x, delta, config_.residual_scale, next);
  if (partial) ops_.all_reduce(delta);
  ops_.norm(delta, norm_params(config_, post), delta);
  ops_.add_whole(x, delta, config_.residual_scale, next);
}

void embed_input(const ModelConfig& config, const ModelWeights& weights, Tensor x, Ops& ops) {
  if (weights.shares_vocabulary) {
    ops.embed_share(*weights.embedding, weights.first_token, config.embedding_scale, x);
    ops.all_reduce(x);
  } else {
    ops.embed_tokens(*weights.embedding, config.embedding_scale, x);
  }
  if (weights.positions != nullptr) ops.embed_positions(*weights.positions, x);
  if (weights.token_types != nullptr) ops.embed_token_types(*weights.token_types, x);
  if (weights.embedding_norm) ops.norm(x, norm_params(config, weights.embedding_norm), x);
}

LayerRange layers_of(const ModelConfig& config, const ModelWeights& weights, const ForwardOptions& options) {
  const Shard::Range own = weights.layers_of(config);
  const int end = own.first + own.count;
  if (options.stream != nullptr) return {options.first_layer, options.n_layers > 0 ? options.n_layers : end};
  return {own.first, options.n_layers > 0 ? std::clamp(options.n_layers, own.first, end) : end};
}

void begin_stream(const ModelConfig& config, const ModelWeights& weights, Tensor x, Ops& ops,
                  const ForwardOptions& options) {
  if (options.stream != nullptr) return;
  if (weights.layers_of(config).first == 0) return embed_input(config, weights, x, ops);
  ops.write_rows(options.stage_input, x);
}

Tensor stage_input(const ModelConfig& config, const ModelWeights& weights, StepShape shape, Ops& ops,
                   const ForwardOptions& options) {
  const Tensor all =
      ops.new_tensor(shape.tokens, config.stage_dim(weights.layers_of(config).first), TensorRole::kStream);
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

StepOutputs decoder_forward(const ModelConfig& config, const ModelWeights& weights, StepShape shape,
                            KvCache& cache, Ops& ops, const ForwardOptions& options) {
  const auto [first_layer, end_layer] = layers_of(config, weights, options);
  // [n, model_dim], the residual stream
  const Tensor x = options.stream != nullptr
                       ? *options.stream
                       : ops.new_tensor(shape.tokens, config.model_dim, TensorRole::kStream);
  const Tensor normed = ops.new_tensor(shape.tokens, config.model_dim);
  DecoderParts decoder(config, weights, shape, cache, ops);

  // What a sub-layer reads: the stream, or its norm.
  const auto input = [&](const NormWeights& norm) {
    return norm ? NormedInput{x, norm_params(config, norm), normed} : NormedInput{x, {}, x};
  };

  // Where a sub-layer adds to what it reads, that is the stream from there on.
  const auto read = [&](const NormedInput& h) {
    if (!config.adds_to_norm || !h.norm) return h;
    const Tensor values = ops.materialize(h);
    ops.copy(values, x);
    return NormedInput{values, {}, values};
  };

  begin_stream(config, weights, x, ops, options);
  NormedInput h = input(weights.layers[first_layer].attn_norm);
  ops.prepare(h);
  const auto n_taps = static_cast<int>(options.taps.size());
  const Tensor tapped = n_taps > 0 ? ops.new_tensor(shape.tokens, n_taps * config.model_dim) : Tensor();
  for (int i = first_layer; i < end_layer; ++i) {
    for (int k = 0; k < n_taps; ++k)
      if (options.taps[static_cast<size_t>(k)] == i)
        ops.copy(x, tapped.columns(k * config.model_dim, config.model_dim));
    const NormedInput between = input(weights.layers[i].ffn_norm);
    decoder.attention(i, read(h), x, &between);
    const bool last = i + 1 == end_layer;
    if (!last) h = input(weights.layers[i + 1].attn_norm);
    decoder.feed_forward(i, read(between), x, last ? nullptr : &h);
  }
  if (options.stream != nullptr) return {};
  if (n_taps == 0) return output_head(config, weights, x, shape, ops, options);
  ForwardOptions of_head = options;
  of_head.states = false;
  StepOutputs result = output_head(config, weights, x, shape, ops, of_head);
  result.states = tapped;
  return result;
}

StepOutputs output_head(const ModelConfig& config, const ModelWeights& weights, Tensor x, StepShape shape,
                        Ops& ops, const ForwardOptions& options) {
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
  if (weights.final_norm) ops.norm(result.hidden, norm_params(config, weights.final_norm), result.hidden);
  if (!options.logits || !config.output_head) return result;
  result.logits = ops.new_tensor(shape.outputs, config.vocab_size, TensorRole::kLogits);
  project_output(config, weights, result.hidden, result.logits, ops);
  return result;
}

void project_output(const ModelConfig& config, const ModelWeights& weights, Tensor states, Tensor logits,
                    Ops& ops) {
  const Tensor own = logits.columns(weights.first_token, weights.output().rows());
  const LinearTarget target{&weights.output(), weights.output_bias.get(), own};
  ops.linear(states, {&target, 1});
  if (config.logit_scale != 1.0f || config.final_softcap > 0)
    ops.scale(own, config.logit_scale, config.final_softcap);
  if (weights.shares_vocabulary) ops.gather_logits(logits);
}

}  // namespace penstock
