#include "model/blocks/sphere.h"

#include <cmath>

#include "model/blocks/cuts.h"
#include "model/blocks/weights.h"

namespace penstock {
namespace {

constexpr float kUnitEps = 1e-6f;  // under the root, beside the sum

// A norm that divides by the length of rows of n numbers. weight: [n] of 1 / sqrt(n).
NormParams to_unit(const std::unique_ptr<Vector>& weight) {
  return {weight.get(), nullptr, kUnitEps / static_cast<float>(weight->size())};
}

void visit_unit(TensorVisitor& v, int n, std::unique_ptr<Vector>& w) {
  v.constants(std::vector<float>(static_cast<size_t>(n), 1.0f / std::sqrt(static_cast<float>(n))),
              w);
}

struct ScaleSpec {
  const TensorName* name;
  int size;
  float factor;
  VectorSpec::Form form;
};

void visit_scale(TensorVisitor& v, const ScaleSpec& spec, std::unique_ptr<Vector>& w) {
  v.vector({.name = spec.name,
            .size = spec.size,
            .part = {0, spec.size},
            .form = spec.form,
            .divisor = 1.0f / spec.factor},
           w);
}

}  // namespace

std::string_view difference(const SphereConfig& a, const SphereConfig& b) {
  return a == b ? "" : "layers on the unit sphere";
}

// Norms read whole rows: every rank has all of it.
void visit(TensorVisitor& v, SphereWeights& w) {
  const ModelConfig& c = v.config();
  const int i = v.layer(), dim = c.model_dim, q = c.q_dim_of(i), kv = c.kv_dim_of(i),
            ffn = c.ffn_dim_of(i);
  const auto linear = [&](const TensorName& name, WeightRole role, int rows, int cols, Site site,
                          LinearWeights& to) { v.linear({&name, role, rows, cols, {}, site}, to); };
  linear(tensor::kSphereQ, WeightRole::kQ, q, dim, Site::kAttention, w.q);
  linear(tensor::kSphereK, WeightRole::kK, kv, dim, Site::kAttention, w.k);
  linear(tensor::kSphereV, WeightRole::kV, kv, dim, Site::kAttention, w.v);
  linear(tensor::kSphereGates, WeightRole::kLatent, q, dim, Site::kAttention, w.gates);
  linear(tensor::kSphereO, WeightRole::kO, dim, q, Site::kAttentionOut, w.o);
  linear(tensor::kSphereGate, WeightRole::kGateUp, ffn, dim, Site::kFeedForward, w.gate);
  linear(tensor::kSphereUp, WeightRole::kGateUp, ffn, dim, Site::kFeedForward, w.up);
  linear(tensor::kSphereDown, WeightRole::kDown, dim, ffn, Site::kDown, w.down);
  using Form = VectorSpec::Form;
  const auto width = static_cast<float>(dim), head = static_cast<float>(c.head_dim_of(i));
  const float stored = c.sphere.stored;
  visit_scale(v, {&tensor::kSphereQScale, q, std::sqrt(head) / stored, Form::kSquares}, w.q_scale);
  visit_scale(v, {&tensor::kSphereGatesScale, q, std::pow(width, 0.25f) / stored, Form::kSquares},
              w.gates_scale);
  visit_scale(v, {&tensor::kSphereGateScale, ffn, std::sqrt(width), Form::kPlain}, w.gate_scale);
  visit_scale(v, {&tensor::kSphereUpScale, ffn, std::sqrt(width), Form::kPlain}, w.up_scale);
  const float rate = c.sphere.rate / stored;
  visit_scale(v, {&tensor::kSphereAttnRate, dim, rate, Form::kMagnitudes}, w.attention_rate);
  visit_scale(v, {&tensor::kSphereFfnRate, dim, rate, Form::kMagnitudes}, w.feed_forward_rate);
  visit_unit(v, dim, w.unit), visit_unit(v, c.head_dim_of(i), w.head_unit);
  visit_unit(v, q, w.attended_unit), visit_unit(v, ffn, w.hidden_unit);
}

SphereLayer::SphereLayer(Sublayer& sublayer) : s_(sublayer) {
  const ModelConfig& c = s_.config;
  const auto make = [&](int cols) { return s_.ops.new_tensor(s_.n, cols); };
  q_ = make(c.q_dim()), k_ = make(c.kv_dim()), v_ = make(c.kv_dim());
  gates_ = make(c.q_dim()), attended_ = make(c.q_dim());
  gate_ = make(c.widest_ffn()), up_ = make(c.widest_ffn());
  h_ = make(c.model_dim), y_ = make(c.model_dim);
}

void SphereLayer::unit(int i, Tensor x, Tensor out) {
  s_.ops.norm(x, to_unit(s_.weights.layers[static_cast<size_t>(i)].sphere.unit), out);
}

void SphereLayer::forward(int i, Tensor x) {
  const SphereWeights& w = s_.weights.layers[static_cast<size_t>(i)].sphere;
  unit(i, x, h_);
  attend(i, h_, y_);
  draw(i, y_, *w.attention_rate, x);
  unit(i, x, h_);
  feed_forward(i, h_, y_);
  draw(i, y_, *w.feed_forward_rate, x);
}

void SphereLayer::draw(int i, Tensor y, const Vector& rate, Tensor x) {
  unit(i, y, y);
  s_.ops.add(y, h_, -1.0f);
  s_.ops.scale_columns(y, rate);
  s_.ops.copy(h_, x);
  s_.ops.add(x, y, 1.0f);
}

void SphereLayer::attend(int i, Tensor h, Tensor out) {
  const ModelConfig& c = s_.config;
  const SphereWeights& w = s_.weights.layers[static_cast<size_t>(i)].sphere;
  const int head = c.head_dim_of(i), index = c.layers[static_cast<size_t>(i)].rope;
  const LinearTarget targets[] = {w.q.into(q_), w.k.into(k_), w.v.into(v_), w.gates.into(gates_)};
  s_.ops.linear(h, targets);
  for (const Tensor& x : {q_, k_})
    s_.ops.norm(x.reshaped(head), to_unit(w.head_unit), x.reshaped(head));
  const RopeParams* rope = index < 0 ? nullptr : &s_.weights.ropes[static_cast<size_t>(index)];
  s_.ops.rope_and_store(q_, k_, v_, rope, s_.cache, i);
  s_.ops.scale_columns(q_, *w.q_scale);
  AttentionParams params;
  params.layer = i, params.n_heads = c.n_heads_of(i), params.scale = c.attention.scale;
  s_.ops.attend(q_, s_.cache, params, attended_);
  s_.ops.scale_columns(gates_, *w.gates_scale);
  s_.ops.activate_mul(gates_, attended_, Activation::kSigmoid, attended_);
  s_.ops.norm(attended_, to_unit(w.attended_unit), attended_);
  const LinearTarget o = w.o.into(out);
  s_.ops.linear(attended_, {&o, 1});
}

void SphereLayer::feed_forward(int i, Tensor h, Tensor out) {
  const LayerWeights& layer = s_.weights.layers[static_cast<size_t>(i)];
  const SphereWeights& w = layer.sphere;
  const LinearTarget both[] = {w.gate.into(gate_), w.up.into(up_)};
  s_.ops.linear(h, both);
  s_.ops.scale_columns(gate_, *w.gate_scale);
  s_.ops.scale_columns(up_, *w.up_scale);
  s_.ops.activate_mul(gate_, up_, s_.config.ffn.activation, gate_);
  s_.ops.norm(gate_, to_unit(w.hidden_unit), gate_);
  const LinearTarget down = w.down.into(out);
  s_.ops.linear(gate_, {&down, 1});
}

}  // namespace penstock
