#include "quantize/methods/observing_ops.h"

#include <algorithm>
#include <vector>

#include "base/check.h"
#include "ops/cpu/host_tensor.h"
#include "ops/cpu/routing.h"

namespace penstock {

void ObservingOps::begin_pass(const Pass& pass) {
  pass_ = pass;
  step_ = -1;
}

StepShape ObservingOps::begin_step(const Batch* batch) {
  ++step_;
  product_ = 0;
  stopped_ = false;
  return inner_.begin_step(batch);
}

const ObservingOps::Recorded* ObservingOps::recorded(int product) const {
  const auto found = std::ranges::find_if(
      tape_, [&](const Recorded& one) { return one.step == step_ && one.product == product; });
  return found == tape_.end() ? nullptr : &*found;
}

// Whether the product need not be computed: its outputs are not read, or were recorded and are
// copied here.
bool ObservingOps::leave_out(int product, std::span<const Tensor> outputs) {
  if (stopped_ || product < pass_.first) return true;
  const Recorded* known = recorded(product);
  if (known == nullptr) return false;
  for (size_t i = 0; i < outputs.size(); ++i) {
    const Tensor& out = outputs[i];
    const auto width = static_cast<size_t>(out.cols);
    for (int t = 0; t < out.rows; ++t)
      std::copy_n(known->outputs[i].data() + static_cast<size_t>(t) * width, width, f32(out, t));
  }
  return true;
}

void ObservingOps::record(int product, std::span<const Tensor> outputs) {
  if (product < pass_.record_first || product > pass_.record_last) return;
  Recorded one{step_, product, {}};
  for (const Tensor& out : outputs) {
    std::vector<float>& values = one.outputs.emplace_back();
    values.reserve(static_cast<size_t>(out.rows) * static_cast<size_t>(out.cols));
    for (int t = 0; t < out.rows; ++t)
      values.insert(values.end(), f32(out, t), f32(out, t) + out.cols);
  }
  tape_.push_back(std::move(one));
}

void ObservingOps::linear(Tensor x, std::span<const LinearTarget> targets) {
  const int product = product_++;
  std::vector<Tensor> outputs;
  for (const LinearTarget& target : targets) outputs.push_back(target.out);
  if (leave_out(product, outputs)) return;
  stopped_ = product >= pass_.stop;
  if (!stopped_) inner_.linear(x, targets);
  if (listener_) {
    for (const LinearTarget& target : targets) listener_(*target.weight, x, target.out);
  }
  if (!stopped_) record(product, outputs);
}

// Computes one expert's product, which is a part of the mixture's.
void ObservingOps::observed(Tensor x, std::span<const LinearTarget> targets) {
  inner_.linear(x, targets);
  for (const LinearTarget& target : targets) listener_(*target.weight, x, target.out);
}

void ObservingOps::attend(Tensor q, const KvCache& cache, const AttentionParams& params,
                          Tensor out) {
  const int product = product_++;
  if (leave_out(product, {&out, 1})) return;
  stopped_ = product >= pass_.stop;
  if (stopped_) return;
  inner_.attend(q, cache, params, out);
  record(product, {&out, 1});
}

namespace {

struct Chosen {
  int32_t token;
  float weight;
};

// Returns the tokens of each expert.
std::vector<std::vector<Chosen>> route(Tensor logits, const MoeParams& params) {
  std::vector<std::vector<Chosen>> result(static_cast<size_t>(logits.cols));
  std::vector<ExpertChoice> choices(static_cast<size_t>(params.routing.n_active));
  const float* bias = data_of(params.selection_bias);
  for (int t = 0; t < logits.rows; ++t) {
    choose_experts(f32(logits, t), logits.cols, params.routing, bias, choices.data());
    for (const ExpertChoice& choice : choices)
      result[static_cast<size_t>(choice.expert)].push_back({t, choice.weight});
  }
  return result;
}

LinearTarget expert_target(std::span<const std::unique_ptr<Weight>> weights,
                           std::span<const std::unique_ptr<Vector>> biases, size_t expert,
                           Tensor out) {
  return {weights[expert].get(), biases.empty() ? nullptr : biases[expert].get(), out};
}

}  // namespace

void ObservingOps::moe(Tensor x, Tensor router_logits, const MoeParams& params, Tensor out) {
  PENSTOCK_CHECK(!params.gate.empty());  // LayerRunner refuses such models
  const int product = product_++;
  if (leave_out(product, {&out, 1})) return;
  stopped_ = product >= pass_.stop;
  if (stopped_) return;
  if (!listener_) return inner_.moe(x, router_logits, params, out);
  const auto experts = route(router_logits, params);
  for (int t = 0; t < out.rows; ++t) std::fill_n(f32(out, t), out.cols, 0.0f);
  for (size_t e = 0; e < experts.size(); ++e) {
    const int n = static_cast<int>(experts[e].size());
    if (n == 0) continue;
    const int width = params.gate[e]->rows();
    const Tensor in = inner_.new_tensor(n, x.cols), gate = inner_.new_tensor(n, width),
                 up = inner_.new_tensor(n, width), result = inner_.new_tensor(n, out.cols);
    const bool weigh_input = params.routing.weigh_input;
    for (int i = 0; i < n; ++i) {
      const Chosen& chosen = experts[e][static_cast<size_t>(i)];
      for (int c = 0; c < x.cols; ++c)
        f32(in, i)[c] = f32(x, chosen.token)[c] * (weigh_input ? chosen.weight : 1.0f);
    }
    const LinearTarget targets[] = {expert_target(params.gate, params.gate_bias, e, gate),
                                    expert_target(params.up, params.up_bias, e, up)};
    observed(in, targets);
    inner_.activate_mul(gate, up, params.activation, gate);
    const LinearTarget down = expert_target(params.down, params.down_bias, e, result);
    observed(gate, {&down, 1});
    for (int i = 0; i < n; ++i) {
      const Chosen& chosen = experts[e][static_cast<size_t>(i)];
      float* to = f32(out, chosen.token);
      for (int c = 0; c < out.cols; ++c)
        to[c] += (weigh_input ? 1.0f : chosen.weight) * f32(result, i)[c];
    }
  }
}

}  // namespace penstock
