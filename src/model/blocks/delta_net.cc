#include "model/blocks/delta_net.h"

#include "model/cuts.h"
#include "model/weights.h"

namespace penstock {

namespace {

// Projections, convolutions and rates of Kimi Delta Attention, each by itself.
void visit_delta_by_key(TensorVisitor& v, DeltaNetWeights& w) {
  const auto& c = v.config();
  const DeltaConfig& delta = c.delta;
  const int dim = c.model_dim, inner = delta.key_dim, keys = delta.keys(), values = delta.values();
  const Shard::Range heads = v.cuts().value_heads(), own_keys = times(v.cuts().key_heads(), delta.key_dim),
                     own_values = times(heads, delta.value_dim);
  const WeightRole role = WeightRole::kLatent;
  const Site site = Site::kAttention;
  v.linear({&tensor::kQ, WeightRole::kQ, keys, dim, rows_of(own_keys), site}, w.q);
  v.linear({&tensor::kK, WeightRole::kK, keys, dim, rows_of(own_keys), site}, w.k);
  v.linear({&tensor::kV, WeightRole::kV, values, dim, rows_of(own_values), site}, w.v);
  v.linear({&tensor::kDeltaAIn, role, inner, dim, {}, site}, w.a_in);
  v.linear({&tensor::kDeltaZIn, role, inner, dim, {}, site}, w.z_in);
  v.linear({&tensor::kDeltaB, role, delta.n_value_heads, dim, rows_of(heads), site}, w.b);
  v.linear({&tensor::kDeltaA, role, delta.decays(), inner, rows_of(times(heads, delta.key_dim))}, w.a);
  v.linear({&tensor::kDeltaZ, role, values, inner, rows_of(own_values)}, w.z);
}

void visit_delta_by_head(TensorVisitor& v, DeltaNetWeights& w) {
  const auto& c = v.config();
  const DeltaConfig& delta = c.delta;
  const int dim = c.model_dim, keys = delta.keys(), values = delta.values(), heads = delta.n_value_heads;
  const Shard::Range own_heads = v.cuts().value_heads();
  const Cut own_keys = rows_of(times(v.cuts().key_heads(), delta.key_dim)),
            own_values = rows_of(times(own_heads, delta.value_dim));
  const auto rows = [&](const TensorName* name, WeightRole role, int count, Cut cut,
                        ValueHeads value_heads = {}) {
    return LinearSpec{.name = name,
                      .role = role,
                      .rows = count,
                      .cols = dim,
                      .cut = cut,
                      .site = Site::kAttention,
                      .row_heads = value_heads};
  };
  const WeightRole role = WeightRole::kQkv, small = WeightRole::kLatent;
  const LinearSpec z = rows(&tensor::kDeltaZ, small, values, own_values, {0, delta.value_dim});
  JoinedSpec all{.name = &tensor::kDeltaQkvz, .role = role, .order = qkvz_rows(delta), .apart_across = true};
  if (v.cuts().cuts_recurrence()) {
    all.inner = &tensor::kDeltaQkv, all.n_inner = 3;
    v.joined(all, {{rows(kNoName, role, keys, own_keys), &w.q},
                   {rows(kNoName, role, keys, own_keys), &w.k},
                   {rows(kNoName, role, values, own_values), &w.v},
                   {z, &w.z}});
  } else {
    const ValueHeads of_values{2 * keys, delta.value_dim};
    v.joined(all, {{rows(&tensor::kDeltaQkv, role, delta.channels(), {}, of_values), &w.qkv}, {z, &w.z}});
  }
  v.joined({.name = &tensor::kDeltaBa, .role = small, .order = ba_rows(delta)},
           {{rows(&tensor::kDeltaB, small, heads, rows_of(own_heads), {0, 1}), &w.b},
            {rows(&tensor::kDeltaA, small, heads, rows_of(own_heads), {0, 1}), &w.a}});
}

}  // namespace

void visit_delta_net(TensorVisitor& v, DeltaNetWeights& w) {
  const auto& c = v.config();
  const DeltaConfig& delta = c.delta;
  const int keys = delta.keys(), values = delta.values();
  const Shard::Range heads = v.cuts().value_heads(), own_keys = times(v.cuts().key_heads(), delta.key_dim),
                     own_values = times(heads, delta.value_dim);
  const bool by_head = !delta.decay_by_key;
  const ValueHeads one = by_head ? ValueHeads{0, 1} : ValueHeads{};
  if (by_head) visit_delta_by_head(v, w);
  if (!by_head) visit_delta_by_key(v, w);
  ConvSpec conv{.name = &tensor::kDeltaConv, .channels = {delta.channels()}, .taps = c.conv_taps};
  if (by_head) conv.heads = {2 * keys, delta.value_dim};
  if (!by_head) conv.channels = {keys, keys, values}, conv.letters = "qkv";
  conv.own = {own_keys, behind(keys, own_keys), behind(2 * keys, own_values)};
  v.conv(conv, w.conv, nullptr);
  v.vector({.name = &tensor::kDeltaRate,
            .size = delta.n_value_heads,
            .part = heads,
            .shape = by_head ? VectorSpec::Shape::kLine : VectorSpec::Shape::kDeepColumn,
            .form = VectorSpec::Form::kRate,
            .heads = one},
           w.rate);
  v.vector({.name = &tensor::kDeltaBias,
            .size = delta.decays(),
            .part = times(heads, delta.decays() / delta.n_value_heads),
            .heads = one},
           w.bias);
  v.vector({.name = &tensor::kDeltaNorm,
            .size = delta.value_dim,
            .part = {0, delta.value_dim},
            .suffix = ".weight"},
           w.norm);
  v.linear({.name = &tensor::kDeltaOut,
            .role = WeightRole::kLatent,
            .rows = c.model_dim,
            .cols = values,
            .cut = columns_of(own_values),
            .site = Site::kAttentionOut,
            .col_heads = {0, delta.value_dim}},
           w.out);
}

std::vector<int> qkvz_rows(const DeltaConfig& delta) {
  const int shared = delta.n_value_heads / delta.n_key_heads * delta.value_dim;
  const int each = 2 * delta.key_dim + 2 * shared;
  std::vector<int> rows;
  const auto add = [&](int first, int count) {
    for (int h = 0; h < delta.n_key_heads; ++h) {
      for (int d = 0; d < count; ++d) rows.push_back(h * each + first + d);
    }
  };
  add(0, delta.key_dim);
  add(delta.key_dim, delta.key_dim);
  add(2 * delta.key_dim, shared);
  add(2 * delta.key_dim + shared, shared);
  return rows;
}

std::vector<int> ba_rows(const DeltaConfig& delta) {
  const int shared = delta.n_value_heads / delta.n_key_heads;
  std::vector<int> rows;
  for (const int part : {0, 1}) {
    for (int h = 0; h < delta.n_value_heads; ++h)
      rows.push_back((h / shared * 2 + part) * shared + h % shared);
  }
  return rows;
}

DeltaScratch::DeltaScratch(Sublayer& s) {
  const DeltaConfig& delta = s.config.delta;
  in = s.ops.new_tensor(s.n, delta.channels());
  convolved = s.ops.new_tensor(s.n, delta.channels());
  z = s.ops.new_tensor(s.n, delta.values());
  out = s.ops.new_tensor(s.n, delta.values());
  a = s.ops.new_tensor(s.n, delta.decays(), TensorRole::kLogits);
  b = s.ops.new_tensor(s.n, delta.n_value_heads, TensorRole::kLogits);
}

DeltaNetBlock::DeltaNetBlock(Sublayer& sublayer, const DeltaScratch& scratch)
    : s_(sublayer), scratch_(scratch) {
  if (!s_.config.delta.decay_by_key) return;
  a_in_ = s_.ops.new_tensor(s_.n, s_.config.delta.key_dim);
  z_in_ = s_.ops.new_tensor(s_.n, s_.config.delta.key_dim);
}

// What is convolved, decays, rates and gates of h.
void DeltaNetBlock::project(const DeltaNetWeights& net, const NormedInput& h) {
  const DeltaConfig& delta = s_.config.delta;
  const int keys = delta.keys();
  const Tensor q = scratch_.in.columns(0, keys), k = scratch_.in.columns(keys, keys),
               v = scratch_.in.columns(2 * keys, delta.values());
  if (!delta.decay_by_key) {
    const LinearTarget rest[] = {net.z.into(scratch_.z), net.a.into(scratch_.a), net.b.into(scratch_.b)};
    if (net.qkv.weight) {
      const LinearTarget all[] = {net.qkv.into(scratch_.in), rest[0], rest[1], rest[2]};
      return s_.ops.norm_linear(s_.rounded(h), all);
    }
    const LinearTarget all[] = {net.q.into(q), net.k.into(k), net.v.into(v), rest[0], rest[1], rest[2]};
    return s_.ops.norm_linear(s_.rounded(h), all);
  }
  const LinearTarget projections[] = {net.q.into(q),        net.k.into(k),        net.v.into(v),
                                      net.a_in.into(a_in_), net.z_in.into(z_in_), net.b.into(scratch_.b)};
  s_.ops.norm_linear(s_.rounded(h), projections);
  const LinearTarget decays = net.a.into(scratch_.a), gates = net.z.into(scratch_.z);
  s_.ops.linear(a_in_, {&decays, 1});
  s_.ops.linear(z_in_, {&gates, 1});
}

void DeltaNetBlock::forward(int i, const NormedInput& h, Tensor x, const NormedInput* next) {
  const DeltaNetWeights& net = s_.weights.layers[i].delta;
  const DeltaConfig& delta = s_.config.delta;
  project(net, h);
  s_.ops.causal_conv(scratch_.in, {net.conv.get(), nullptr, s_.config.conv_taps, i}, s_.cache,
                     scratch_.convolved);
  s_.ops.activate(scratch_.convolved, s_.config.ffn.activation);
  const DeltaParams params{net.rate.get(),
                           net.bias.get(),
                           delta.n_key_heads,
                           delta.n_value_heads,
                           delta.key_dim,
                           delta.value_dim,
                           delta.key_heads_in_turn,
                           delta.decay_by_key,
                           i,
                           delta.state_offset(s_.config.conv_taps)};
  s_.ops.gated_delta(scratch_.convolved, scratch_.a, scratch_.b, params, s_.cache, scratch_.out);
  const Tensor heads = scratch_.out.reshaped(delta.value_dim);
  s_.ops.norm(heads, {net.norm.get(), nullptr, s_.config.norm.eps}, heads);
  s_.ops.activate_mul(scratch_.z, scratch_.out, delta.decay_by_key ? Activation::kSigmoid : Activation::kSilu,
                      scratch_.out);
  s_.add_product(scratch_.out, net.out, x, s_.weights.layers[i].attn_post_norm, next);
}

}  // namespace penstock
