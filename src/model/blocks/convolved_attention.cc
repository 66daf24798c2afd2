#include "model/blocks/convolved_attention.h"

#include "model/blocks/cuts.h"
#include "model/blocks/weights.h"

namespace penstock {
namespace {

constexpr float kLeastHeadSquare = 1e-24f;  // beside the mean square of a head

// A convolution that gives the input of `delay` tokens ago.
std::vector<float> delay_taps(int delay, int channels) {
  std::vector<float> taps(static_cast<size_t>(delay + 1) * static_cast<size_t>(channels));
  std::fill_n(taps.begin(), channels, 1.0f);
  return taps;
}

}  // namespace

void visit(TensorVisitor& v, ConvolvedWeights& w) {
  const ModelConfig& c = v.config();
  const int dim = c.model_dim, q = c.q_dim_of(v.layer()), kv = c.kv_dim_of(v.layer());
  const int channels = q + kv, taps = c.convolved.head_taps;
  const auto project = [&](const TensorName& name, WeightRole role, int rows, LinearWeights& into) {
    v.linear({&name, role, rows, dim, {}, Site::kAttention}, into);
  };
  project(tensor::kConvolvedQ, WeightRole::kQ, q, w.q);
  project(tensor::kConvolvedK, WeightRole::kK, kv, w.k);
  project(tensor::kCurrentV, WeightRole::kV, kv / 2, w.current);
  project(tensor::kDelayedV, WeightRole::kV, kv / 2, w.delayed);
  v.conv({.name = &tensor::kChannelConv,
          .channels = {channels},
          .letters = "",
          .taps = c.convolved.taps,
          .own = {{0, channels}},
          .has_bias = true},
         w.conv, &w.conv_bias);
  v.diagonal({.name = &tensor::kHeadConv,
              .role = WeightRole::kRouter,
              .rows = channels,
              .cols = taps * c.head_dim,
              .taps = taps},
             channels / c.head_dim, w.head_conv);
  v.vector(
      {.name = &tensor::kHeadConvBias, .size = channels, .part = {0, channels}, .is_bias = true},
      w.head_bias);
  v.vector({.name = &tensor::kKeyFactors,
            .size = kv / c.head_dim,
            .part = {0, kv / c.head_dim},
            .repeats = c.head_dim},
           w.factors);
  v.linear({&tensor::kO, WeightRole::kO, dim, q, {}, Site::kAttentionOut, Part::kO}, w.o);
  w.delays.resize(static_cast<size_t>(taps));
  for (int delay = 0; delay < taps; ++delay)
    v.constants(delay_taps(delay, channels), w.delays[static_cast<size_t>(delay)]);
  v.constants(delay_taps(ConvolvedConfig::kDelay, kv / 2), w.value_delay);
}

ConvolvedAttentionBlock::ConvolvedAttentionBlock(Sublayer& sublayer) : s_(sublayer) {
  const ModelConfig& c = s_.config;
  const int q = c.q_dim(), kv = c.kv_dim();
  q_ = s_.ops.new_tensor(s_.n, q), attended_ = s_.ops.new_tensor(s_.n, q);
  k_ = s_.ops.new_tensor(s_.n, kv), v_ = s_.ops.new_tensor(s_.n, kv);
  delayed_ = s_.ops.new_tensor(s_.n, kv / 2);
  for (Tensor* each : {&both_, &conv_, &seen_}) *each = s_.ops.new_tensor(s_.n, q + kv);
  of_taps_ = s_.ops.new_tensor(s_.n, c.convolved.head_taps * (q + kv));
}

void ConvolvedAttentionBlock::project(int i, const NormedInput& h) {
  const ConvolvedWeights& w = s_.weights.layers[static_cast<size_t>(i)].convolved;
  const int half = v_.cols / 2;
  LinearTarget delayed = w.delayed.into(delayed_);
  delayed.bias = nullptr;  // it is added behind the delay, before a sequence too
  const LinearTarget targets[] = {w.q.into(both_.columns(0, q_.cols)),
                                  w.k.into(both_.columns(q_.cols, k_.cols)),
                                  w.current.into(v_.columns(0, half)), delayed};
  s_.ops.norm_linear(h, targets);
}

// conv_ = both convolutions of both_, without the second one's bias. What precedes a sequence is zero
// for the first convolution, whose bias the second one sees there. Returns the states' size.
int64_t ConvolvedAttentionBlock::convolve(int i) {
  const ConvolvedWeights& w = s_.weights.layers[static_cast<size_t>(i)].convolved;
  const int taps = s_.config.convolved.taps, n_seen = s_.config.convolved.head_taps,
            dim = s_.config.head_dim;
  const int64_t channels = both_.cols;
  s_.ops.causal_conv(both_, {w.conv.get(), nullptr, taps, i}, s_.cache, conv_);
  int64_t offset = (taps - 1) * channels;
  for (int delay = n_seen - 1; delay >= 0; --delay) {
    s_.ops.causal_conv(
        conv_,
        {w.delays[static_cast<size_t>(delay)].get(), w.conv_bias.get(), delay + 1, i, offset},
        s_.cache, seen_);
    offset += delay * channels;
    s_.ops.copy(seen_.reshaped(dim),
                of_taps_.reshaped(n_seen * dim).columns((n_seen - 1 - delay) * dim, dim));
  }
  s_.ops.linear_by_head(of_taps_.reshaped(n_seen * dim), w.head_conv, conv_.reshaped(dim));
  s_.ops.add_columns(conv_, *w.head_bias);
  return offset;
}

// Adds half the sum of a query and its key to the query, and the mean of these of a key to the key.
void ConvolvedAttentionBlock::add_means() {
  const int n_heads = s_.config.n_heads, n_kv = s_.config.n_kv_heads, group = n_heads / n_kv,
            all = n_heads + n_kv, dim = s_.config.head_dim;
  const Tensor from = both_.reshaped(dim), to = conv_.reshaped(dim);
  s_.ops.add(conv_, both_, 0.5f);
  for (int h = 0; h < n_heads; ++h) {
    const int key = n_heads + h / group;
    s_.ops.add(to.every(h, all), from.every(key, all), 0.5f);
    s_.ops.add(to.every(key, all), from.every(h, all), 0.5f / static_cast<float>(group));
  }
}

void ConvolvedAttentionBlock::forward(int i, const NormedInput& h, Tensor x,
                                      const NormedInput* next) {
  const LayerWeights& layer = s_.weights.layers[static_cast<size_t>(i)];
  const LayerConfig& kind = s_.config.layers[static_cast<size_t>(i)];
  const ConvolvedWeights& w = layer.convolved;
  const int dim = s_.config.head_dim, half = v_.cols / 2;
  project(i, h);
  const int64_t offset = convolve(i);
  s_.ops.causal_conv(
      delayed_, {w.value_delay.get(), w.delayed.bias.get(), ConvolvedConfig::kDelay + 1, i, offset},
      s_.cache, v_.columns(half, half));
  add_means();
  s_.ops.copy(conv_.columns(0, q_.cols), q_);
  s_.ops.copy(conv_.columns(q_.cols, k_.cols), k_);
  for (const Tensor& each : {q_, k_})
    s_.ops.norm(each.reshaped(dim), {nullptr, nullptr, kLeastHeadSquare}, each.reshaped(dim));
  s_.ops.scale_columns(k_, *w.factors);
  const RopeParams* const rope =
      kind.rope < 0 ? nullptr : &s_.weights.ropes[static_cast<size_t>(kind.rope)];
  s_.ops.store_and_attend(
      q_, k_, v_, rope, s_.cache,
      {.layer = i, .n_heads = s_.config.n_heads, .scale = s_.config.attention.scale}, attended_);
  s_.add_product(attended_, w.o, x, layer.attn_post_norm, next);
}

}  // namespace penstock
