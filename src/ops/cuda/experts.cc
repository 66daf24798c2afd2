#include "ops/cuda/experts.h"

#include <algorithm>
#include <cstring>

#include "base/check.h"
#include "ops/cuda/cuda_vector.h"
#include "ops/cuda/kernels/moe.h"
#include "ops/cuda/packed_weight.h"
#include "ops/cuda/tensors.h"

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

// The table is compared, not believed: others may lie where the ones before did.
const ExpertWeight* Experts::table_of(std::span<const std::unique_ptr<Weight>> weights,
                                      std::span<const std::unique_ptr<Vector>> biases) {
  std::vector<ExpertWeight> table(weights.size());
  std::memset(static_cast<void*>(table.data()), 0, table.size() * sizeof(ExpertWeight));
  for (size_t e = 0; e < weights.size(); ++e) {
    table[e].weight = static_cast<const CudaWeight&>(*weights[e]).on_device();
    table[e].bias = biases.empty() ? nullptr : device_data(biases[e].get());
  }
  Table& kept = tables_[weights.data()];
  const size_t bytes = table.size() * sizeof(ExpertWeight);
  const bool same =
      kept.host.size() == table.size() && std::memcmp(kept.host.data(), table.data(), bytes) == 0;
  if (same) return kept.memory.as<const ExpertWeight>();
  Result<Memory> memory = Memory::make(device_, bytes);
  if (!memory) {
    device_.give_up(memory.error());
    return nullptr;
  }
  kept.memory = std::move(*memory);
  device_.copy_in(kept.memory.data(), table.data(), bytes);
  kept.host = std::move(table);
  return kept.memory.as<const ExpertWeight>();
}

template <class T>
T* Experts::scratch(size_t n) {
  Result<void*> taken = memory_.take(n * sizeof(T));
  if (!taken) device_.give_up(taken.error());
  return static_cast<T*>(taken.value_or(nullptr));
}

void Experts::multiply(Tensor x, std::span<const std::unique_ptr<Weight>> weights,
                       std::span<const std::unique_ptr<Vector>> biases, const int32_t* tile_experts,
                       Tensor out) {
  const auto& first = static_cast<const CudaWeight&>(*weights[0]);
  PENSTOCK_CHECK(first.cols() == x.cols && first.rows() == out.cols && x.rows == out.rows);
  ExpertProduct product{table_of(weights, biases), tile_experts, rows_of(x), rows_of(out), nullptr};
  if (first.rounding().to_int8) {
    const Tensor rounded = ops_.new_tensor(x.rows, x.cols, TensorRole::kActivation);
    auto* const scales = scratch<float>(static_cast<size_t>(x.rows));
    device_.launch(RoundForProduct{rows_of(x), rows_of(rounded), first.rounding().fixed_scale, scales},
                   a_block_per_row(x));
    product.x = rows_of(rounded), product.token_scales = scales;
  }
  device_.launch(product,
                 Grid{(out.cols + 15) / 16, x.rows / ExpertProduct::kTokens, ExpertProduct::kSharedBytes});
}

void Experts::run(Tensor x, Tensor router_logits, const MoeParams& params, const BatchOnDevice* batch,
                  Tensor out) {
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
                             batch};
  device_.launch(choose, Grid{x.rows, 1, choose.shared_bytes()});
  auto* const sources = scratch<int32_t>(static_cast<size_t>(n_rows));
  auto* const tile_experts = scratch<int32_t>(static_cast<size_t>(n_rows / kTile));
  const SortByExpert sort{choices, n_choices, n_experts, sources, tile_experts, n_rows};
  device_.launch(sort, Grid{1, 1, sort.shared_bytes()});

  const auto tensor = [&](int cols) { return ops_.new_tensor(n_rows, cols, TensorRole::kActivation); };
  const Tensor rows = tensor(x.cols), hidden = tensor(params.down[0]->cols()), results = tensor(out.cols);
  device_.launch(
      GatherByExpert{rows_of(x), rows_of(rows), sources, choices, n_active, params.routing.weigh_input},
      a_thread_per_element<GatherByExpert>(rows));
  const int width = params.up[0]->rows();
  const Tensor own = hidden.columns(params.down_lead, width);
  // Of tiles without an expert nothing is read, but they are multiplied.
  ops_.clear(hidden);
  multiply(rows, params.up, params.up_bias, tile_experts, own);
  if (params.gate.empty()) {
    ops_.activate(own, params.activation);
  } else {
    const Tensor gate = tensor(width);
    ops_.clear(gate);
    multiply(rows, params.gate, params.gate_bias, tile_experts, gate);
    ops_.activate_mul(gate, own, params.activation, own);
  }
  multiply(hidden, params.down, params.down_bias, tile_experts, results);
  device_.launch(
      CombineExperts{rows_of(results), rows_of(out), choices, n_active, !params.routing.weigh_input},
      a_thread_per_element<CombineExperts>(out));
}

}  // namespace penstock::cuda
