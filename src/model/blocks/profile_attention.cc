#include "model/blocks/profile_attention.h"

#include <algorithm>
#include <cmath>

#include "model/blocks/cuts.h"
#include "model/blocks/weights.h"

namespace penstock {
namespace {

const LayerConfig& kind_of(const ModelConfig& config, int layer) {
  return config.layers[static_cast<size_t>(layer)];
}

int distances_of(const ModelConfig& config, int layer) {
  const int window = kind_of(config, layer).window;
  return window > 0 ? window : config.profiles.extent;
}

// Whether tokens have taps of their own.
bool has_own_taps(const ModelConfig& config, int layer) {
  return config.profiles.bounded && kind_of(config, layer).window == 0;
}

// What a convolution's output and input are divided by together (Inkling 2).
float taps_factor(const ModelConfig& config, bool own_taps) {
  if (!config.profiles.bounded) return 1.0f;
  return 1.0f / std::sqrt(static_cast<float>((own_taps ? 2 : 1) * config.profiles.taps + 1));
}

void visit_conv(TensorVisitor& v, const TensorName& name, Shard::Range own, int channels,
                std::unique_ptr<Vector>& w) {
  const ModelConfig& c = v.config();
  v.conv({.name = &name,
          .channels = {channels},
          .letters = "",
          .taps = c.profiles.taps,
          .own = {own},
          .identity = 1.0f,
          .factor = taps_factor(c, false)},
         w, nullptr);
}

void visit_own_taps(TensorVisitor& v, const TensorName& fixed, const TensorName& own,
                    std::unique_ptr<Vector>& conv, LinearWeights& taps) {
  const ModelConfig& c = v.config();
  const int i = v.layer(), kv = c.kv_dim_of(i);
  const Shard::Range heads = v.cuts().kv_heads(i);
  v.conv({.name = &fixed,
          .channels = {kv},
          .letters = "",
          .taps = c.profiles.taps,
          .own = {times(heads, c.head_dim_of(i))},
          .identity = 1.0f,
          .factor = taps_factor(c, true),
          .by_lag = true},
         conv, nullptr);
  v.linear({.name = &own,
            .role = WeightRole::kRouter,
            .rows = c.n_kv_heads_of(i) * c.profiles.taps,
            .cols = c.model_dim,
            .cut = rows_of(times(heads, c.profiles.taps)),
            .site = Site::kAttention,
            .bare = true},
           taps);
}

void visit_bounded(TensorVisitor& v, ProfileWeights& w, NormWeights& ffn_norm) {
  const ModelConfig& c = v.config();
  const int i = v.layer(), n = c.n_heads_of(i), head = c.head_dim_of(i), width = c.profiles.width;
  const Shard::Range own = v.cuts().heads(i);
  const auto scale = [&](const TensorName& name, int each, std::unique_ptr<Vector>& to) {
    v.vector({.name = &name,
              .size = n * each,
              .part = times(own, each),
              .shape = VectorSpec::Shape::kMatrix,
              .per_row = each},
             to);
  };
  scale(tensor::kProfileQScale, head, w.q_scale);
  scale(tensor::kProfileMixScale, width, w.mix_scale);
  v.linear({&tensor::kProfileGates, WeightRole::kLatent, n * head, c.model_dim,
            rows_of(times(own, head)), Site::kAttention},
           w.gates);
  v.linear(
      {&tensor::kProfileSinks, WeightRole::kRouter, n, c.model_dim, rows_of(own), Site::kAttention},
      w.sinks);
  v.norm({&tensor::kFfnNorm, c.model_dim}, ffn_norm);
  w.input_norms.resize(has_own_taps(c, i) ? 3 : 1);
  if (!has_own_taps(c, i)) return v.norm({&tensor::kAttnNorm, c.model_dim}, w.input_norms[0]);
  const TensorName* const norms[] = {&tensor::kQueryInputNorm, &tensor::kKeyInputNorm,
                                     &tensor::kValueInputNorm};
  for (size_t part = 0; part < 3; ++part) v.norm({norms[part], c.model_dim}, w.input_norms[part]);
  visit_own_taps(v, tensor::kKeyStaticTaps, tensor::kKeyTaps, w.key_conv, w.key_taps);
  visit_own_taps(v, tensor::kValueStaticTaps, tensor::kValueTaps, w.value_conv, w.value_taps);
}

// Columns of distances: one for each below n, and one for all others.
std::vector<float> columns_of_distances(int n) {
  std::vector<float> columns(static_cast<size_t>(2 * n + 1), static_cast<float>(n));
  for (int distance = 0; distance < n; ++distance)
    columns[static_cast<size_t>(n - distance)] = static_cast<float>(distance);
  return columns;
}

}  // namespace

std::string_view difference(const ProfileConfig& a, const ProfileConfig& b) {
  return a == b ? "" : "profiles over distances";
}

int64_t profile_state_values(const ModelConfig& config, int layer) {
  const LayerConfig& kind = kind_of(config, layer);
  if (config.profiles.width == 0 || !kind.attention) return 0;
  return (config.profiles.taps - int64_t{1}) * 2 * (config.kv_dim_of(layer) + config.model_dim);
}

void visit(TensorVisitor& v, ProfileWeights& w, NormWeights& ffn_norm) {
  const ModelConfig& c = v.config();
  const int i = v.layer(), dim = c.model_dim, head = c.head_dim_of(i), n = c.n_heads_of(i),
            kv = c.kv_dim_of(i), width = c.profiles.width, distances = distances_of(c, i);
  const Shard::Range own = v.cuts().heads(i), own_kv = times(v.cuts().kv_heads(i), head);
  v.linear({&tensor::kProfileQ, WeightRole::kQ, n * head, dim, rows_of(times(own, head)),
            Site::kAttention},
           w.q);
  v.linear({&tensor::kProfileK, WeightRole::kK, kv, dim, rows_of(own_kv), Site::kAttention}, w.k);
  v.linear({&tensor::kProfileV, WeightRole::kV, kv, dim, rows_of(own_kv), Site::kAttention}, w.v);
  v.linear({&tensor::kProfileMix, WeightRole::kLatent, n * width, dim, rows_of(times(own, width)),
            Site::kAttention},
           w.mix);
  v.linear({.name = &tensor::kProfiles,
            .role = WeightRole::kRouter,
            .rows = distances + 1,
            .cols = width,
            .bare = true,
            .turned = true,
            .zeros = 1},
           w.profiles);
  v.constants(columns_of_distances(distances), w.columns);
  if (c.profiles.bounded) {
    visit_bounded(v, w, ffn_norm);
  } else {
    v.norm({&tensor::kProfileQNorm, head}, w.q_norm);
    v.norm({&tensor::kProfileKNorm, head}, w.k_norm);
  }
  if (!has_own_taps(c, i)) {
    visit_conv(v, tensor::kKeyConv, own_kv, kv, w.key_conv);
    visit_conv(v, tensor::kValueConv, own_kv, kv, w.value_conv);
  }
  visit_conv(v, tensor::kAttnConv, {0, dim}, dim, w.attention_conv);
  visit_conv(v, tensor::kFfnConv, {0, dim}, dim, w.feed_forward_conv);
  v.linear({&tensor::kProfileO, WeightRole::kO, dim, n * head, columns_of(times(own, head)),
            Site::kAttentionOut},
           w.o);
}

ProfileAttentionBlock::ProfileAttentionBlock(Sublayer& sublayer) : s_(sublayer) {
  const ModelConfig& c = s_.config;
  const auto make = [&](int cols) { return s_.ops.new_tensor(s_.n, cols); };
  q_ = make(c.q_dim()), attended_ = make(c.q_dim());
  k_ = make(c.kv_dim()), v_ = make(c.kv_dim()), k_in_ = make(c.kv_dim()), v_in_ = make(c.kv_dim());
  mix_ = make(c.most_heads() * c.profiles.width);
  convolved_ = make(c.model_dim);
  int terms = 0, taps = 0;
  for (int i = 0; i < c.n_layers; ++i) {
    terms = std::max(terms, c.n_heads_of(i) * (distances_of(c, i) + 1));
    taps = std::max(taps, c.n_kv_heads_of(i) * c.profiles.taps);
  }
  terms_ = make(terms);
  if (!c.profiles.bounded) return;
  gates_ = make(c.q_dim()), sinks_ = make(c.most_heads());
  key_taps_ = make(taps), value_taps_ = make(taps);
}

void ProfileAttentionBlock::project(int i, const NormedInput& query, const NormedInput& key,
                                    const NormedInput& value) {
  const ModelConfig& c = s_.config;
  const ProfileWeights& w = s_.weights.layers[static_cast<size_t>(i)].profiles;
  const int kv = c.kv_dim_of(i), n = c.n_heads_of(i);
  const LinearTarget of_query[] = {
      w.q.into(q_.narrowed(c.q_dim_of(i))), w.mix.into(mix_.narrowed(n * c.profiles.width)),
      w.gates.into(gates_.narrowed(c.q_dim_of(i))), w.sinks.into(sinks_.narrowed(n))};
  s_.ops.norm_linear(query, std::span(of_query).first(c.profiles.bounded ? 4 : 2));
  const bool own = has_own_taps(c, i);
  const int taps = c.n_kv_heads_of(i) * c.profiles.taps;
  const LinearTarget of_key[] = {w.k.into(k_in_.narrowed(kv)),
                                 w.key_taps.into(key_taps_.narrowed(taps))},
                     of_value[] = {w.v.into(v_in_.narrowed(kv)),
                                   w.value_taps.into(value_taps_.narrowed(taps))};
  s_.ops.norm_linear(key, std::span(of_key).first(own ? 2 : 1));
  s_.ops.norm_linear(value, std::span(of_value).first(own ? 2 : 1));
}

ConvParams ProfileAttentionBlock::conv(int i, const Vector* weight, int64_t offset) const {
  ConvParams params;
  params.weight = weight, params.taps = s_.config.profiles.taps, params.layer = i;
  params.state_offset = (params.taps - 1) * offset;
  return params;
}

void ProfileAttentionBlock::convolve(int i) {
  const ModelConfig& c = s_.config;
  const ProfileWeights& w = s_.weights.layers[static_cast<size_t>(i)].profiles;
  const int kv = c.kv_dim_of(i), taps = c.n_kv_heads_of(i) * c.profiles.taps;
  ConvParams of_key = conv(i, w.key_conv.get(), 0), of_value = conv(i, w.value_conv.get(), kv);
  if (has_own_taps(c, i)) {
    of_key.of_token = key_taps_.narrowed(taps), of_value.of_token = value_taps_.narrowed(taps);
    s_.ops.scale(of_key.of_token, taps_factor(c, true), 0.0f);
    s_.ops.scale(of_value.of_token, taps_factor(c, true), 0.0f);
  }
  s_.ops.causal_conv(k_in_.narrowed(kv), of_key, s_.cache, k_.narrowed(kv));
  s_.ops.causal_conv(v_in_.narrowed(kv), of_value, s_.cache, v_.narrowed(kv));
}

// Norms or bounds queries, keys, values and what mixes profiles.
void ProfileAttentionBlock::norm(int i) {
  const ModelConfig& c = s_.config;
  const ProfileWeights& w = s_.weights.layers[static_cast<size_t>(i)].profiles;
  const int head = c.head_dim_of(i), width = c.profiles.width;
  const Tensor q = q_.narrowed(c.q_dim_of(i)), mix = mix_.narrowed(c.n_heads_of(i) * width),
               keys = k_.narrowed(c.kv_dim_of(i)).reshaped(head),
               values = v_.narrowed(c.kv_dim_of(i)).reshaped(head);
  if (c.profiles.bounded) {
    s_.ops.scale_columns(q, *w.q_scale);
    s_.ops.bound_rows(q.reshaped(head), c.profiles.bound);
    s_.ops.scale_columns(mix, *w.mix_scale);
    s_.ops.bound_rows(mix.reshaped(width), c.profiles.mix_bound);
    s_.ops.bound_rows(keys, c.profiles.bound);
    s_.ops.norm(values, {nullptr, nullptr, c.norm.eps}, values);
  } else {
    s_.ops.norm(q.reshaped(head), norm_params(c, w.q_norm), q.reshaped(head));
    s_.ops.norm(keys, norm_params(c, w.k_norm), keys);
  }
  if (!kind_of(c, i).query_scale) return;
  s_.ops.scale_by_position(q, c.attention.query_scale);
  s_.ops.scale_by_position(mix, c.attention.query_scale);
}

void ProfileAttentionBlock::forward(int i, const NormedInput& query, const NormedInput& key,
                                    const NormedInput& value, Tensor x) {
  const ModelConfig& c = s_.config;
  const LayerConfig& kind = kind_of(c, i);
  const LayerWeights& layer = s_.weights.layers[static_cast<size_t>(i)];
  const ProfileWeights& w = layer.profiles;
  project(i, query, key, value);
  convolve(i);
  norm(i);
  const int n = c.n_heads_of(i), kv = c.kv_dim_of(i), columns = distances_of(c, i) + 1;
  const Tensor terms = terms_.narrowed(n * columns), attended = attended_.narrowed(c.q_dim_of(i));
  const LinearTarget mixed = w.profiles.into(terms.reshaped(columns));
  s_.ops.linear(mix_.narrowed(n * c.profiles.width).reshaped(c.profiles.width), {&mixed, 1});
  AttentionParams params;
  params.layer = i, params.n_heads = n;
  params.scale = c.attention.scale * kind.score_factor;
  params.relative = {w.columns.get(), columns, nullptr, terms, {}};
  if (c.profiles.bounded) params.token_sinks = sinks_.narrowed(n);
  s_.ops.store_and_attend(q_.narrowed(c.q_dim_of(i)), k_.narrowed(kv), v_.narrowed(kv), nullptr,
                          s_.cache, params, attended);
  if (c.profiles.bounded)
    s_.ops.activate_mul(gates_.narrowed(c.q_dim_of(i)), attended, Activation::kSigmoid, attended);
  s_.add_product(attended, w.o, x, layer.attn_post_norm, nullptr);
}

void ProfileAttentionBlock::add_convolved(int i, bool behind_attention, Tensor y, Tensor x) {
  const ModelConfig& c = s_.config;
  const ProfileWeights& w = s_.weights.layers[static_cast<size_t>(i)].profiles;
  const int64_t keys = 2 * int64_t{c.kv_dim_of(i)};
  const ConvParams params = behind_attention
                                ? conv(i, w.attention_conv.get(), keys)
                                : conv(i, w.feed_forward_conv.get(), keys + c.model_dim);
  s_.ops.causal_conv(y, params, s_.cache, convolved_);
  s_.ops.add(x, convolved_, 1.0f);
}

}  // namespace penstock
