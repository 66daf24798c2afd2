// Mixture of experts: each chosen expert runs once, over all the tokens that chose it.
#include <algorithm>

#include "base/check.h"
#include "kernels/vector_kernels.h"
#include "ops/cpu/host_tensor.h"
#include "ops/cpu/linear.h"
#include "ops/cpu/routing.h"

namespace penstock {
namespace {

Tensor arena_tensor(Arena& arena, int rows, int cols) {
  return {arena.allocate_array<float>(static_cast<size_t>(rows) * cols), DType::kF32, rows, cols, cols};
}

LinearTarget target_of(std::span<const std::unique_ptr<Weight>> weights,
                       std::span<const std::unique_ptr<Vector>> biases, int expert, Tensor out) {
  return {weights[expert].get(), biases.empty() ? nullptr : biases[expert].get(), out};
}

// f(gate(x)) * up(x) of one expert, or f(up(x)) without a gate, for rows of x.
void hidden_of_expert(const LinearContext& context, Tensor x, const MoeParams& params, int expert,
                      Tensor hidden, Tensor up) {
  const VectorKernels& vector = *context.kernels.vector;
  const bool gated = !params.gate.empty();
  const LinearTarget both[] = {
      target_of(params.up, params.up_bias, expert, gated ? up : hidden),
      gated ? target_of(params.gate, params.gate_bias, expert, hidden) : LinearTarget{}};
  cpu_linear(context, x, std::span(both).first(gated ? 2 : 1));
  context.pool.for_ranges(x.rows, 1, [&](int64_t begin, int64_t end, int) {
    for (int64_t t = begin; t < end; ++t) {
      float* row = f32(hidden, static_cast<int>(t));
      if (gated) {
        vector.activate_mul(row, f32(up, static_cast<int>(t)), params.activation, hidden.cols, row);
      } else {
        vector.activate(row, params.activation, hidden.cols);
      }
    }
  });
}

// down of it.
void expert_forward(const LinearContext& context, Tensor x, const MoeParams& params, int expert,
                    Tensor hidden, Tensor up, Tensor out) {
  hidden_of_expert(context, x, params, expert, hidden.columns(params.down_lead, up.cols), up);
  const LinearTarget down[] = {target_of(params.down, params.down_bias, expert, out)};
  cpu_linear(context, hidden, down);
}

}  // namespace

void cpu_moe(const LinearContext& context, Tensor x, Tensor router_logits, const MoeParams& params,
             Tensor out) {
  const ExpertRouting& routing = params.routing;
  const int n_tokens = x.rows, n_experts = router_logits.cols, top_k = routing.n_active;
  PENSTOCK_CHECK(top_k >= 1 && top_k <= n_experts && static_cast<int>(params.up.size()) == n_experts &&
                 n_experts % routing.n_groups == 0);
  Arena& arena = context.scratch.moe;
  arena.reset();
  const float *bias = data_of(params.selection_bias), *scale = data_of(params.expert_scale);
  auto* choices = arena.allocate_array<ExpertChoice>(static_cast<size_t>(n_tokens) * top_k);
  int* counts = arena.allocate_array<int>(n_experts);
  std::fill(counts, counts + n_experts, 0);
  for (int t = 0; t < n_tokens; ++t) {
    choose_experts(f32(router_logits, t), n_experts, routing, bias,
                   choices + static_cast<ptrdiff_t>(t) * top_k);
    for (int k = 0; k < top_k; ++k) {
      ExpertChoice& choice = choices[t * top_k + k];
      if (scale != nullptr) choice.weight *= scale[choice.expert];
      ++counts[choice.expert];
    }
    std::fill_n(f32(out, t), out.cols, 0.0f);
  }
  const int most = *std::max_element(counts, counts + n_experts);
  const int hidden_dim = params.up[0]->rows();
  const Tensor rows = arena_tensor(arena, most, x.cols),
               hidden = arena_tensor(arena, most, params.down[0]->cols());
  const Tensor up = arena_tensor(arena, most, hidden_dim), result = arena_tensor(arena, most, out.cols);
  if (hidden.cols > hidden_dim) {
    for (int row = 0; row < most; ++row) std::fill_n(f32(hidden, row), hidden.cols, 0.0f);
  }
  for (int e = 0; e < n_experts; ++e) {
    if (counts[e] == 0) continue;
    const auto for_each_token = [&](auto&& f) {
      for (int t = 0, row = 0; t < n_tokens; ++t) {
        for (int k = 0; k < top_k; ++k) {
          if (choices[t * top_k + k].expert == e) f(t, row++, choices[t * top_k + k].weight);
        }
      }
    };
    for_each_token([&](int t, int row, float weight) {
      const float factor = routing.weigh_input ? weight : 1.0f;
      for (int i = 0; i < x.cols; ++i) f32(rows, row)[i] = f32(x, t)[i] * factor;
    });
    expert_forward(context, rows.row_range(0, counts[e]), params, e, hidden.row_range(0, counts[e]),
                   up.row_range(0, counts[e]), result.row_range(0, counts[e]));
    for_each_token([&](int t, int row, float weight) {
      const float* from = f32(result, row);
      float* to = f32(out, t);
      const float factor = routing.weigh_input ? 1.0f : weight;
      for (int i = 0; i < out.cols; ++i) to[i] += factor * from[i];
    });
  }
}

}  // namespace penstock
