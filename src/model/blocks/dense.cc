#include "model/blocks/dense.h"

#include "model/blocks/cuts.h"
#include "model/blocks/difference.h"
#include "model/blocks/weights.h"

namespace penstock {

std::string_view difference(const FeedForwardConfig& a, const FeedForwardConfig& b) {
  const ActivationFunction &x = a.activation, &y = b.activation;
  const bool clamped = x.kind == Activation::kClampedSilu;
  return first_difference(
      {{"activation", x.kind == y.kind && (!clamped || (nearly(x.parameters[0], y.parameters[0]) &&
                                                        nearly(x.parameters[1], y.parameters[1])))},
       {"gates of feed-forwards", a.gated == b.gated},
       {"multipliers",
        a.gate_factor == b.gate_factor && a.down_factor == b.down_factor && a.scaled == b.scaled}});
}

void visit(TensorVisitor& v, DenseWeights& w) {
  const auto& c = v.config();
  const int i = v.layer(), dim = c.model_dim, width = c.ffn_dim_of(i);
  const Shard::Range own = v.cuts().ffn(i);
  const WeightRole wide = WeightRole::kGateUp;
  LinearSpec gate{&tensor::kGate, wide, width, dim, rows_of(own), Site::kFeedForward, Part::kGate},
      up{&tensor::kUp, wide, width, dim, rows_of(own), Site::kFeedForward, Part::kUp};
  gate.out_factors = {{width, c.ffn.gate_factor}};
  if (c.ffn.gated) {
    JoinedSpec both{&tensor::kGateUp, wide};
    both.part = Part::kGateUp, both.alone_first = true, both.reversed = &NameTable::up_before_gate;
    both.alternating = &NameTable::gate_and_up_alternate;
    v.joined(both, {{gate, &w.gate}, {up, &w.up}});
  } else {
    v.linear(up, w.up);
  }
  if (c.norm.sub_norms) v.norm({&tensor::kFfnSubNorm, width}, w.sub_norm);
  if (c.ffn.scaled) v.number(&tensor::kFfnFactor, w.factor);
  v.linear({&tensor::kDown,
            WeightRole::kDown,
            dim,
            width,
            columns_of(own),
            Site::kDown,
            Part::kDown,
            {},
            {},
            {},
            1.0f,
            {{dim, c.ffn.down_factor}}},
           w.down);
}

void gated_product(Sublayer& s, const NormedInput& h, const LinearWeights& gate,
                   const LinearWeights& up, const ActivationFunction& f, Tensor hidden,
                   Tensor other, float cutoff) {
  if (gate.weight != nullptr && (s.config.ffn.gate_factor != 1.0f || cutoff != kNoCutoff)) {
    const LinearTarget both[] = {gate.into(hidden), up.into(other)};
    s.ops.norm_linear(h, both);
    s.multiply(hidden, s.config.ffn.gate_factor);
    if (cutoff != kNoCutoff) s.ops.keep_above(hidden, cutoff);
    return s.ops.activate_mul(hidden, other, f, hidden);
  }
  if (gate.weight != nullptr)
    return s.ops.gated_linear(h, gate.into(hidden), up.into(other), f, hidden);
  const LinearTarget target = up.into(hidden);
  s.ops.norm_linear(h, {&target, 1});
  s.ops.activate(hidden, f);
}

DenseBlock::DenseBlock(Sublayer& sublayer) : s_(sublayer) {
  gate_ = s_.ops.new_tensor(s_.n, s_.config.widest_ffn());
  up_ = s_.ops.new_tensor(s_.n, s_.config.widest_ffn());
}

Tensor DenseBlock::hidden(int i, const NormedInput& h) {
  const LayerWeights& layer = s_.weights.layers[i];
  const int width = s_.config.ffn_dim_of(i);
  const Tensor out = gate_.narrowed(width);
  gated_product(s_, s_.rounded(h), layer.dense.gate, layer.dense.up, layer.activation, out,
                up_.narrowed(width), s_.config.layers[static_cast<size_t>(i)].gate_cutoff);
  if (layer.dense.sub_norm) s_.ops.norm(out, norm_params(s_.config, layer.dense.sub_norm), out);
  if (s_.config.rounding.activations) s_.ops.round_int8(out);
  return out;
}

void DenseBlock::forward(int i, const NormedInput& h, Tensor x, const NormedInput* next) {
  const LayerWeights& layer = s_.weights.layers[static_cast<size_t>(i)];
  s_.add_product(hidden(i, h), layer.dense.down, x, layer.ffn_post_norm, next,
                 s_.config.ffn.down_factor * layer.dense.factor);
}

}  // namespace penstock
