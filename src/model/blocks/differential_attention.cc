#include "model/blocks/differential_attention.h"

#include <cmath>
#include <numeric>

#include "model/blocks/weights.h"

namespace penstock {
namespace {

// Initial strength of a layer's second attention.
float start_of(int layer) { return 0.8f - 0.6f * std::exp(-0.3f * static_cast<float>(layer)); }

}  // namespace

void visit(TensorVisitor& v, DifferentialWeights& w) {
  const ModelConfig& c = v.config();
  const int i = v.layer(), dim = c.model_dim, each = c.head_dim_of(i) / 2,
            q = c.n_heads_of(i) * each, kv = c.n_kv_heads_of(i) * each;
  const auto rows = [&](const TensorName* name, WeightRole role, int count) {
    return LinearSpec{name, role, count, dim, {}, Site::kAttention};
  };
  v.linear(rows(&tensor::kQ, WeightRole::kQ, q), w.q);
  v.linear(rows(&tensor::kK, WeightRole::kK, kv), w.k);
  v.linear(rows(&tensor::kV, WeightRole::kV, kv), w.v);
  v.linear({&tensor::kO, WeightRole::kO, dim, q, {}, Site::kAttentionOut}, w.o);
  std::vector<float> q1, k1, q2, k2;
  const auto read = [&](const TensorName* name, std::vector<float>& values) {
    v.values({.name = name, .size = each, .part = {0, each}}, values);
  };
  read(&tensor::kDiffQ1, q1), read(&tensor::kDiffK1, k1);
  read(&tensor::kDiffQ2, q2), read(&tensor::kDiffK2, k2);
  if (k2.empty()) return;
  const auto power = [](const std::vector<float>& a, const std::vector<float>& b) {
    return std::exp(std::inner_product(a.begin(), a.end(), b.begin(), 0.0f));
  };
  w.strength = power(q1, k1) - power(q2, k2) + start_of(i);
}

DifferentialAttention::DifferentialAttention(Sublayer& sublayer)
    : s_(sublayer), key_dim_(sublayer.config.head_dim / 2) {
  const ModelConfig& config = s_.config;
  const int q = config.q_dim(), kv = config.kv_dim();
  for (Tensor* each : {&q_, &first_, &second_}) *each = s_.ops.new_tensor(s_.n, q / 2);
  for (Tensor* each : {&k_, &v_, &pairs_}) *each = s_.ops.new_tensor(s_.n, kv / 2);
  for (Tensor* each : {&wide_q_, &attended_}) *each = s_.ops.new_tensor(s_.n, q);
  for (Tensor* each : {&wide_k_, &wide_v_}) *each = s_.ops.new_tensor(s_.n, kv);
  half_ = s_.ops.new_tensor(s_.n, kv / 4);
}

// Zeros behind the features of every head.
void DifferentialAttention::spread(Tensor heads, Tensor to) {
  s_.ops.clear(to);
  s_.ops.copy(heads.reshaped(key_dim_), to.reshaped(2 * key_dim_).columns(0, key_dim_));
}

// The first half of the heads of values, each with its counterpart of the second half behind; twice.
void DifferentialAttention::pair_values() {
  for (const int part : {0, 1}) {
    s_.ops.copy(v_.columns(part * half_.cols, half_.cols), half_);
    s_.ops.copy(half_.reshaped(key_dim_),
                pairs_.reshaped(2 * key_dim_).columns(part * key_dim_, key_dim_));
  }
  for (const int part : {0, 1})
    s_.ops.copy(pairs_, wide_v_.columns(part * pairs_.cols, pairs_.cols));
}

void DifferentialAttention::forward(int i, const NormedInput& h, Tensor x,
                                    const NormedInput* next) {
  const LayerWeights& layer = s_.weights.layers[static_cast<size_t>(i)];
  const DifferentialWeights& w = layer.differential;
  const LinearTarget all[] = {w.q.into(q_), w.k.into(k_), w.v.into(v_)};
  s_.ops.norm_linear(s_.rounded(h), all);
  spread(q_, wide_q_);
  spread(k_, wide_k_);
  pair_values();
  const AttentionParams params{
      .layer = i, .n_heads = s_.config.n_heads_of(i), .scale = s_.config.attention.scale};
  s_.ops.store_and_attend(wide_q_, wide_k_, wide_v_, &s_.weights.ropes[0], s_.cache, params,
                          attended_);
  s_.ops.copy(attended_.columns(0, first_.cols), first_);
  s_.ops.copy(attended_.columns(first_.cols, first_.cols), second_);
  s_.ops.add(first_, second_, -w.strength);
  const Tensor heads = first_.reshaped(2 * key_dim_);
  s_.ops.norm(heads, {nullptr, nullptr, s_.config.norm.eps}, heads);
  s_.ops.scale(first_, 1.0f - start_of(i), 0.0f);
  s_.add_product(first_, w.o, x, layer.attn_post_norm, next);
}

}  // namespace penstock
