#include "quantize/observing_ops.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <vector>

namespace penstock {

void ObservingOps::linear(Tensor x, std::span<const LinearTarget> targets) {
  inner_.linear(x, targets);
  if (!listener_) return;
  for (const LinearTarget& target : targets) listener_(*target.weight, x, target.out);
}

namespace {

struct Chosen {
  int32_t token;
  float weight;
};

// Tokens of each expert, by softmax over all experts and the best top_k.
std::vector<std::vector<Chosen>> route(Tensor logits, const MoeParams& params) {
  std::vector<std::vector<Chosen>> result(static_cast<size_t>(logits.cols));
  std::vector<int> order(static_cast<size_t>(logits.cols));
  std::vector<float> p(static_cast<size_t>(logits.cols));
  for (int t = 0; t < logits.rows; ++t) {
    const float* row = logits.f32(t);
    const float most = *std::max_element(row, row + logits.cols);
    float sum = 0;
    for (int e = 0; e < logits.cols; ++e) sum += p[static_cast<size_t>(e)] = std::exp(row[e] - most);
    std::iota(order.begin(), order.end(), 0);
    std::stable_sort(order.begin(), order.end(),
                     [&](int a, int b) { return p[static_cast<size_t>(a)] > p[static_cast<size_t>(b)]; });
    float chosen = 0;
    for (int k = 0; k < params.top_k; ++k) chosen += p[static_cast<size_t>(order[static_cast<size_t>(k)])];
    for (int k = 0; k < params.top_k; ++k) {
      const auto e = static_cast<size_t>(order[static_cast<size_t>(k)]);
      result[e].push_back({t, p[e] / (params.normalize ? chosen : sum)});
    }
  }
  return result;
}

}  // namespace

void ObservingOps::moe(Tensor x, Tensor router_logits, const MoeParams& params, Tensor out) {
  if (!listener_) return inner_.moe(x, router_logits, params, out);
  const auto experts = route(router_logits, params);
  for (int t = 0; t < out.rows; ++t) std::fill_n(out.f32(t), out.cols, 0.0f);
  for (size_t e = 0; e < experts.size(); ++e) {
    const int n = static_cast<int>(experts[e].size());
    if (n == 0) continue;
    std::vector<int32_t> rows;
    for (const Chosen& chosen : experts[e]) rows.push_back(chosen.token);
    const int width = params.gate[e]->rows();
    const Tensor in = new_tensor(n, x.cols), gate = new_tensor(n, width), up = new_tensor(n, width),
                 result = new_tensor(n, out.cols);
    inner_.gather_rows(x, rows, in);
    const LinearTarget targets[] = {{params.gate[e].get(), nullptr, gate}, {params.up[e].get(), nullptr, up}};
    linear(in, targets);
    inner_.activate_mul(gate, up, params.activation, gate);
    const LinearTarget down{params.down[e].get(), nullptr, result};
    linear(gate, {&down, 1});
    for (int i = 0; i < n; ++i) {
      const Chosen& chosen = experts[e][static_cast<size_t>(i)];
      float* to = out.f32(chosen.token);
      for (int c = 0; c < out.cols; ++c) to[c] += chosen.weight * result.f32(i)[c];
    }
  }
}

}  // namespace penstock
