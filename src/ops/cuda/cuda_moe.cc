// Mixture of experts without a word to the host: kernels choose, sort and multiply (kernels/moe.h).
#include <algorithm>

#include "ops/cuda/cuda_ops.h"
#include "ops/cuda/kernels/moe.h"

namespace penstock::cuda {
namespace {

static_assert(static_cast<int>(RouterScore::kSparseMixer) == static_cast<int>(Routing::Score::kSparseMixer));
static_assert(kMaxExpertGroups == ChooseExperts::kMaxGroups);
static_assert(SortByExpert::kTileRows == ExpertProduct::kTokens);

Routing routing_of(const ExpertRouting& r) {
  return {r.n_active,  static_cast<Routing::Score>(r.score),
          r.n_groups,  r.n_active_groups,
          r.group_top, r.normalize,
          r.sum_eps,   r.sum_min,
          r.jitter,    r.scale};
}

}  // namespace

void CudaOps::multiply_by_experts(Tensor x, std::span<const std::unique_ptr<Weight>> weights,
                                  std::span<const std::unique_ptr<Vector>> biases,
                                  const int32_t* tile_experts, Tensor out) {
  const auto& first = static_cast<const CudaWeight&>(*weights[0]);
  PENSTOCK_CHECK(first.cols() == x.cols && first.rows() == out.cols && x.rows == out.rows);
  ExpertProduct product{expert_tables_.on_device(weights, biases), tile_experts, rows_of(x), rows_of(out),
                        nullptr};
  if (first.rounding().to_int8) {
    const Tensor rounded = new_tensor(x.rows, x.cols, TensorRole::kActivation);
    auto* const scales = scratch<float>(static_cast<size_t>(x.rows));
    launch(RoundForProduct{rows_of(x), rows_of(rounded), first.rounding().fixed_scale, scales},
           a_block_per_row(x));
    product.x = rows_of(rounded), product.token_scales = scales;
  }
  launch(product, Grid{(out.cols + 15) / 16, x.rows / ExpertProduct::kTokens, ExpertProduct::kSharedBytes});
}

void CudaOps::moe(Tensor x, Tensor router_logits, const MoeParams& params, Tensor out) {
  constexpr int kTile = SortByExpert::kTileRows;
  const int n_experts = router_logits.cols, n_active = params.routing.n_active, n_choices = x.rows * n_active;
  PENSTOCK_CHECK(n_active >= 1 && n_active <= n_experts && static_cast<int>(params.up.size()) == n_experts &&
                 n_experts % params.routing.n_groups == 0);
  // Every expert that has a row begins a tile.
  const int n_rows = (n_choices + (kTile - 1) * std::min(n_experts, n_choices) + kTile - 1) / kTile * kTile;
  const auto count = static_cast<size_t>(n_choices);
  const Choices choices{scratch<int32_t>(count), scratch<float>(count), scratch<int32_t>(count)};
  const ChooseExperts choose{rows_of(router_logits),
                             routing_of(params.routing),
                             device_data(params.selection_bias),
                             device_data(params.expert_scale),
                             choices,
                             host_batch_.tokens.empty() ? nullptr : batch()};
  launch(choose, Grid{x.rows, 1, choose.shared_bytes()});
  auto* const sources = scratch<int32_t>(static_cast<size_t>(n_rows));
  auto* const tile_experts = scratch<int32_t>(static_cast<size_t>(n_rows / kTile));
  const SortByExpert sort{choices, n_choices, n_experts, sources, tile_experts, n_rows};
  launch(sort, Grid{1, 1, sort.shared_bytes()});

  const auto tensor = [&](int cols) { return new_tensor(n_rows, cols, TensorRole::kActivation); };
  const Tensor rows = tensor(x.cols), hidden = tensor(params.down[0]->cols()), results = tensor(out.cols);
  launch(GatherByExpert{rows_of(x), rows_of(rows), sources, choices, n_active, params.routing.weigh_input},
         a_thread_per_element<GatherByExpert>(rows));
  const int width = params.up[0]->rows();
  const Tensor own = hidden.columns(params.down_lead, width);
  // Of tiles without an expert nothing is read, but they are multiplied.
  clear(hidden);
  multiply_by_experts(rows, params.up, params.up_bias, tile_experts, own);
  if (params.gate.empty()) {
    activate(own, params.activation);
  } else {
    const Tensor gate = tensor(width);
    clear(gate);
    multiply_by_experts(rows, params.gate, params.gate_bias, tile_experts, gate);
    activate_mul(gate, own, params.activation, own);
  }
  multiply_by_experts(hidden, params.down, params.down_bias, tile_experts, results);
  launch(CombineExperts{rows_of(results), rows_of(out), choices, n_active, !params.routing.weigh_input},
         a_thread_per_element<CombineExperts>(out));
}

void CudaOps::add_adapters(Tensor x, const LinearTarget& target) {
  const auto has_one = [](int32_t slot) { return slot >= 0; };
  if (target.adapters == nullptr || std::ranges::none_of(host_batch_.adapters, has_one)) return;
  for (size_t slot = 0; slot < target.adapters->size(); ++slot) {
    const AdapterTerm& term = (*target.adapters)[slot];
    if (term.a == nullptr) continue;
    const Tensor low = new_tensor(x.rows, term.a->rows(), TensorRole::kActivation);
    const Tensor delta = new_tensor(x.rows, target.out.cols, TensorRole::kActivation);
    const LinearTarget down[] = {{term.a, nullptr, low}}, up[] = {{term.b, nullptr, delta}};
    linear(x, down);
    linear(low, up);
    launch(AddOfAdapter{rows_of(delta), rows_of(target.out), static_cast<int>(slot), batch()},
           a_thread_per_element<AddOfAdapter>(delta));
  }
}

}  // namespace penstock::cuda
