#include "model/blocks/state_space.h"

#include "model/cuts.h"
#include "model/weights.h"

namespace penstock {

namespace {

// Of scans: z, x, B, C and a time step for each head are one projection.
void visit_scan_projections(TensorVisitor& v, DeltaNetWeights& w) {
  const auto& c = v.config();
  const DeltaConfig& ssm = c.delta;
  const int dim = c.model_dim, values = ssm.values(), groups = ssm.keys();
  const Shard::Range heads = v.cuts().value_heads();
  const Cut own_groups = rows_of(times(v.cuts().key_heads(), ssm.key_dim)),
            own_values = rows_of(times(heads, ssm.value_dim));
  const auto rows = [&](int count, Cut cut) {
    return LinearSpec{kNoName, WeightRole::kQkv, count, dim, cut, Site::kAttention, Part::kScanIn};
  };
  JoinedSpec all{&tensor::kSsmIn, WeightRole::kQkv};
  all.part = Part::kScanIn;
  if (v.cuts().cuts_recurrence())
    return v.joined(all, {{rows(values, own_values), &w.z},
                          {rows(values, own_values), &w.q},
                          {rows(groups, own_groups), &w.k},
                          {rows(groups, own_groups), &w.v},
                          {rows(ssm.n_value_heads, rows_of(heads)), &w.a}});
  v.joined(
      all,
      {{rows(values, {}), &w.z}, {rows(ssm.channels(), {}), &w.qkv}, {rows(ssm.n_value_heads, {}), &w.a}});
}

}  // namespace

void visit_state_space(TensorVisitor& v, DeltaNetWeights& w) {
  const auto& c = v.config();
  const DeltaConfig& ssm = c.delta;
  const int heads = ssm.n_value_heads, values = ssm.values(), in_group = values / ssm.n_key_heads;
  const Shard::Range own_heads = v.cuts().value_heads(),
                     own_groups = times(v.cuts().key_heads(), ssm.key_dim),
                     own_values = times(own_heads, ssm.value_dim);
  using Shape = VectorSpec::Shape;
  visit_scan_projections(v, w);
  v.conv({&tensor::kSsmConv,
          {ssm.channels()},
          "",
          c.conv_taps,
          {own_values, behind(values, own_groups), behind(values + ssm.keys(), own_groups)},
          true},
         w.conv, &w.conv_bias);
  v.vector({.name = &tensor::kSsmRate,
            .size = heads,
            .part = own_heads,
            .shape = Shape::kMatrix,
            .form = VectorSpec::Form::kRate},
           w.rate);
  v.vector({.name = &tensor::kSsmSkip, .size = heads, .part = own_heads, .shape = Shape::kMatrix}, w.skip);
  v.vector({.name = &tensor::kSsmBias, .size = heads, .part = own_heads}, w.bias);
  if (c.scan_norm)
    v.vector({.name = &tensor::kSsmNorm,
              .size = values,
              .part = own_values,
              .suffix = ".weight",
              .shape = Shape::kMatrix,
              .per_row = in_group},
             w.norm);
  v.linear({&tensor::kSsmOut, WeightRole::kLatent, c.model_dim, values, columns_of(own_values),
            Site::kAttentionOut, Part::kScanOut},
           w.out);
}

void StateSpaceBlock::forward(int i, const NormedInput& h, Tensor x, const NormedInput* next) {
  const DeltaNetWeights& net = s_.weights.layers[i].delta;
  const DeltaConfig& ssm = s_.config.delta;
  const Tensor scanned = scratch_.in.columns(0, ssm.values()),
               b = scratch_.in.columns(ssm.values(), ssm.keys()),
               c = scratch_.in.columns(ssm.values() + ssm.keys(), ssm.keys());
  const LinearTarget z = net.z.into(scratch_.z), step = net.a.into(scratch_.a);
  const LinearTarget together[] = {z, net.qkv.into(scratch_.in), step},
                     each[] = {z, net.q.into(scanned), net.k.into(b), net.v.into(c), step};
  s_.ops.norm_linear(s_.rounded(h), net.qkv.weight ? std::span<const LinearTarget>(together) : each);
  const Multipliers& by = s_.config.multipliers;
  s_.multiply(scratch_.z, by.z);
  s_.multiply(scanned, by.x);
  s_.multiply(b, by.b);
  s_.multiply(c, by.c);
  s_.multiply(scratch_.a, by.step);
  s_.ops.causal_conv(scratch_.in, {net.conv.get(), net.conv_bias.get(), s_.config.conv_taps, i}, s_.cache,
                     scratch_.convolved);
  s_.ops.activate(scratch_.convolved, Activation::kSilu);
  StateSpaceParams params;
  params.rate = net.rate.get(), params.bias = net.bias.get(), params.skip = net.skip.get();
  params.n_groups = ssm.n_key_heads, params.n_heads = ssm.n_value_heads;
  params.state_dim = ssm.key_dim, params.head_dim = ssm.value_dim;
  params.min_step = s_.config.min_time_step, params.max_step = s_.config.max_time_step;
  params.layer = i, params.state_offset = ssm.state_offset(s_.config.conv_taps);
  s_.ops.state_space(scratch_.convolved, scratch_.a, scratch_.b, params, s_.cache, scratch_.out);
  const auto norm = [&] {
    const Tensor groups = scratch_.out.reshaped(ssm.values() / ssm.n_key_heads);
    if (s_.config.scan_norm) s_.ops.norm(groups, {net.norm.get(), nullptr, s_.config.norm.eps}, groups);
  };
  if (s_.config.norm_before_gate) norm();
  s_.ops.activate_mul(scratch_.z, scratch_.out, Activation::kSilu, scratch_.out);
  if (!s_.config.norm_before_gate) norm();
  s_.add_product(scratch_.out, net.out, x, s_.weights.layers[i].attn_post_norm, next, by.scan_out);
}

}  // namespace penstock
