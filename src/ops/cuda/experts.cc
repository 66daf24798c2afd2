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

static_assert(static_cast<int>(RouterScore::kSparseMixer) ==
                  static_cast<int>(Routing::Score::kSparseMixer) &&
              static_cast<int>(RouterScore::kSqrtSoftplus) ==
                  static_cast<int>(Routing::Score::kSqrtSoftplus));
static_assert(kMaxExpertGroups == ChooseExperts::kMaxGroups);

Routing routing_of(const ExpertRouting& r) {
  return {r.n_active,  static_cast<Routing::Score>(r.score),
          r.n_groups,  r.n_active_groups,
          r.group_top, r.normalize,
          r.by_logit,  r.sum_eps,
          r.sum_min,   r.jitter,
          r.scale,     r.per_matrix};
}

// Table of experts without weights. Its padding is zeroed, too, since tables are compared by
// memcmp.
std::vector<ExpertWeight> empty_table(size_t n) {
  std::vector<ExpertWeight> table(n);
  std::memset(static_cast<void*>(table.data()), 0, n * sizeof(ExpertWeight));
  return table;
}

Grid tiles_of(Tensor out) {
  return {(out.cols + 15) / 16, out.rows / ExpertProduct::kTokens, ExpertProduct::kSharedBytes};
}

std::vector<int32_t> slots_of(std::span<const int32_t> adapters) {
  std::vector<int32_t> slots(adapters.begin(), adapters.end());
  std::ranges::sort(slots);
  slots.erase(slots.begin(), std::ranges::lower_bound(slots, 0));
  slots.erase(std::ranges::unique(slots).begin(), slots.end());
  return slots;
}

}  // namespace

// Tables are compared by content, since new weights may lie at the address of released ones.
const ExpertWeight* Experts::on_device(const TableKey& key, std::vector<ExpertWeight> table) {
  Table& kept = tables_[key];
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

Experts::Matrices Experts::matrices_of(std::span<const std::unique_ptr<Weight>> weights,
                                       std::span<const std::unique_ptr<Vector>> biases,
                                       std::span<const AdapterTerms> adapters) {
  Matrices made{.table = empty_table(weights.size()), .key = weights.data(), .adapters = adapters};
  if (!weights.empty()) made.rounding = static_cast<const CudaWeight&>(*weights[0]).rounding();
  for (size_t e = 0; e < weights.size(); ++e) {
    made.table[e].weight = static_cast<const CudaWeight&>(*weights[e]).on_device();
    made.table[e].bias = biases.empty() ? nullptr : device_data(biases[e].get());
  }
  return made;
}

int Experts::rows_of_expert(std::span<const Matrices* const> all, int n_tokens,
                            int n_choices) const {
  int rows = 0;
  for (const Matrices* matrices : all) {
    if (matrices->table.empty()) continue;
    rows = matrices->rounding.to_int8 ? 0
                                      : wide_.rows_of_experts(matrices->table, n_tokens, n_choices);
    if (rows == 0) return 0;
  }
  return rows;
}

Experts::Layout Experts::lay_out(std::span<const Matrices* const> all, Tensor x, int n_active,
                                 bool adapts) const {
  const int n_choices = x.rows * n_active;
  Layout layout{.rows_of_expert = rows_of_expert(all, x.rows, n_choices)};
  const bool streams = std::ranges::all_of(all, [&](const Matrices* matrices) {
    return matrices->table.empty() ||
           (!matrices->rounding.to_int8 && streams_.suits(matrices->table, rows_of(x)));
  });
  if (layout.rows_of_expert != 0 || !streams) return layout;
  // Choices that are likely of different experts need no sorting. Terms of adapters want whole tiles.
  const auto n_experts = static_cast<int>(all.back()->table.size());
  const bool differ = x.rows == 1 || n_choices * 8 <= n_experts;
  int rows = adapts ? layout.rows_of_tile : differ ? 1 : n_choices <= n_experts ? 4 : 8;
  for (const Matrices* matrices : all)
    if (!matrices->table.empty())
      rows = std::min(rows, streams_.rows_of_group(matrices->table[0].weight, rows));
  layout.rows_of_group = rows;
  if (!adapts) layout.rows_of_tile = rows, layout.sorts = rows > 1;
  return layout;
}

Experts::Sorted Experts::sort(const Choices& choices, int n_choices, int n_experts,
                              const Layout& layout) {
  Sorted sorted{.n_rows = n_choices, .layout = layout, .choices = choices, .n_experts = n_experts};
  if (!layout.sorts) {
    sorted.tile_experts = choices.experts, sorted.choices.places = nullptr;
    return sorted;
  }
  // The rows of every expert begin at a multiple of `align`.
  const int tile = layout.rows_of_tile, align = std::max(layout.rows_of_expert, tile);
  const int n_rows =
      (n_choices + (align - 1) * std::min(n_experts, n_choices) + align - 1) / align * align;
  auto* const sources = scratch<int32_t>(static_cast<size_t>(n_rows));
  auto* const tile_experts = scratch<int32_t>(static_cast<size_t>(n_rows / tile));
  auto* const n_tiles = scratch<int32_t>(1);
  const SortByExpert kernel{choices, n_choices, n_experts, sources, tile_experts,
                            n_tiles, n_rows,    align,     tile};
  device_.launch(kernel, Grid{n_experts, 1, kernel.shared_bytes()});
  sorted.n_rows = n_rows, sorted.sources = sources;
  sorted.tile_experts = tile_experts, sorted.n_tiles = n_tiles;
  return sorted;
}

const ExpertWeight* Experts::table_of(const Matrices& matrices) {
  return matrices.on_device != nullptr ? matrices.on_device
                                       : on_device({matrices.key}, matrices.table);
}

void Experts::stream(const Input& x, const Matrices& matrices, const Matrices* ups,
                     const Sorted& sorted, const ActivationFunction& f, Tensor out) {
  const int rows = sorted.layout.rows_of_group;
  const ExpertGroups groups = {sorted.tile_experts,
                               sorted.sources,
                               sorted.n_tiles,
                               sorted.n_rows / rows,
                               sorted.layout.rows_of_tile / rows,
                               sorted.n_experts,
                               sorted.n_active};
  streams_.multiply({table_of(matrices), ups != nullptr ? table_of(*ups) : nullptr,
                     matrices.table[0].weight, groups, rows, rows_of(x.rows), rows_of(out),
                     x.by_token, f});
}

void Experts::multiply(const Input& x, const Matrices& matrices, const Sorted& sorted, Tensor out) {
  const WeightOnDevice& first = matrices.table[0].weight;
  PENSTOCK_CHECK(first.rows == out.cols && out.rows == sorted.n_rows);
  if (sorted.layout.rows_of_expert != 0) {
    wide_.multiply_experts(table_of(matrices), first, x.wide, sorted.layout.rows_of_expert,
                           rows_of(out));
  } else if (sorted.layout.rows_of_group != 0) {
    stream(x, matrices, nullptr, sorted, {}, out);
  } else {
    PENSTOCK_CHECK(first.cols == x.rows.cols && x.rows.rows == out.rows);
    ExpertProduct product{table_of(matrices), sorted.tile_experts, rows_of(x.rows), rows_of(out),
                          nullptr};
    if (matrices.rounding.to_int8) {
      const Tensor rounded = ops_.new_tensor(x.rows.rows, x.rows.cols, TensorRole::kActivation);
      auto* const scales = scratch<float>(static_cast<size_t>(x.rows.rows));
      device_.launch(
          RoundForProduct{rows_of(x.rows), rows_of(rounded), matrices.rounding.fixed_scale, scales},
          a_block_per_row(x.rows));
      product.x = rows_of(rounded), product.token_scales = scales;
    }
    device_.launch(product, tiles_of(out));
  }
  for (const int32_t slot : sorted.slots) add_adapter(x.rows, matrices.adapters, slot, sorted, out);
}

// Computes the adapter's term for all rows, and adds it to rows whose sequences have the adapter.
void Experts::add_adapter(Tensor x, std::span<const AdapterTerms> adapters, int slot,
                          const Sorted& sorted, Tensor out) {
  std::vector<ExpertWeight> a = empty_table(adapters.size()), b = empty_table(adapters.size());
  int rank = 0;
  for (size_t e = 0; e < adapters.size(); ++e) {
    if (static_cast<size_t>(slot) >= adapters[e].size()) continue;
    if (sorted.turns != nullptr && !sorted.turns->has(static_cast<int>(e))) continue;
    const AdapterTerm& term = adapters[e][static_cast<size_t>(slot)];
    if (term.a == nullptr) continue;
    a[e].weight = static_cast<const CudaWeight&>(*term.a).on_device();
    b[e].weight = static_cast<const CudaWeight&>(*term.b).on_device();
    rank = std::max(rank, term.a->rows());
  }
  if (rank == 0) return;
  const Tensor low = ops_.new_tensor(x.rows, rank, TensorRole::kActivation);
  const Tensor delta = ops_.new_tensor(x.rows, out.cols, TensorRole::kActivation);
  // Rows of experts without a term of the adapter stay zero.
  ops_.clear(low), ops_.clear(delta);
  device_.launch(ExpertProduct{on_device({adapters.data(), slot, false}, std::move(a)),
                               sorted.tile_experts, rows_of(x), rows_of(low), nullptr},
                 tiles_of(low));
  device_.launch(ExpertProduct{on_device({adapters.data(), slot, true}, std::move(b)),
                               sorted.tile_experts, rows_of(low), rows_of(delta), nullptr},
                 tiles_of(delta));
  device_.launch(AddOfAdapter{rows_of(delta), rows_of(out), slot, sorted.batch, sorted.sources,
                              sorted.n_active},
                 a_thread_per_element<AddOfAdapter>(delta));
}

Choices Experts::choose(Tensor router_logits, int n_rows, const ExpertRouting& routing,
                        const RouterVectors& vectors, const BatchOnDevice* batch) {
  const int n_active = routing.n_active;
  PENSTOCK_CHECK(n_active >= 1 && n_active <= router_logits.cols &&
                 router_logits.cols % routing.n_groups == 0);
  const auto count = static_cast<size_t>(n_rows) * static_cast<size_t>(n_active);
  const Choices choices{scratch<int32_t>(count), scratch<float>(count), scratch<int32_t>(count)};
  const ChooseExperts choose{rows_of(router_logits),
                             routing_of(routing),
                             vectors.selection_bias,
                             vectors.expert_scale,
                             vectors.token_experts,
                             vectors.n_known_tokens,
                             choices,
                             batch};
  device_.launch(choose, Grid{n_rows, 1, choose.shared_bytes()});
  return choices;
}

void Experts::run(Tensor x, Tensor router_logits, const MoeParams& params,
                  const BatchOnDevice* batch, std::span<const int32_t> adapters, Tensor out) {
  PENSTOCK_CHECK(static_cast<int>(params.up.size()) <= router_logits.cols);
  const RouterVectors vectors{
      device_data(params.selection_bias), device_data(params.expert_scale),
      device_data(params.token_experts),
      params.token_experts != nullptr ? params.token_experts->size() / params.routing.n_active : 0};
  const Choices choices = choose(router_logits, x.rows, params.routing, vectors, batch);
  compute({x,
           choices,
           params,
           {matrices_of(params.gate, params.gate_bias, params.gate_adapters),
            matrices_of(params.up, params.up_bias, params.up_adapters),
            matrices_of(params.down, params.down_bias, params.down_adapters)},
           batch,
           adapters,
           nullptr,
           out});
}

void Experts::compute(const Work& work) {
  const auto& [x, choices, params, layer, batch, adapters, turns, out] = work;
  // Experts behind the last with weights give their input.
  const auto n_experts = static_cast<int>(layer.ups.table.size());
  const int n_active = params.routing.n_active, n_choices = x.rows * n_active;
  const Matrices* const all[] = {&layer.gates, &layer.ups, &layer.downs};
  std::vector<int32_t> slots = slots_of(adapters);
  const bool adapts = !slots.empty();
  Sorted sorted = sort(choices, n_choices, n_experts, lay_out(all, x, n_active, adapts));
  sorted.n_active = n_active, sorted.batch = batch, sorted.slots = std::move(slots);
  sorted.turns = turns;

  const int n_rows = sorted.n_rows;
  const bool streams = sorted.layout.rows_of_group != 0, weigh = params.routing.weigh_input;
  const bool is_wide = sorted.layout.rows_of_expert != 0, gated = !layer.gates.table.empty();
  const auto tensor = [&](int cols) {
    return ops_.new_tensor(n_rows, cols, TensorRole::kActivation);
  };
  const Tensor hidden = tensor(layer.downs.table[0].weight.cols), results = tensor(out.cols);
  const bool gathers = adapts || (!is_wide && (!streams || weigh));
  Input of_x = {x, {}, true};
  if (gathers) {
    of_x = {tensor(x.cols), {}, false};
    device_.launch(
        GatherByExpert{rows_of(x), rows_of(of_x.rows), sorted.sources, choices, n_active, weigh},
        a_thread_per_element<GatherByExpert>(of_x.rows));
  }
  of_x.wide = {rows_of(x), sorted.sources,      weigh ? choices.weights : nullptr,
               n_active,   sorted.tile_experts, n_rows};
  const Input of_hidden = {
      hidden, {rows_of(hidden), nullptr, nullptr, 1, sorted.tile_experts, n_rows}, false};
  const int width = layer.ups.table[0].weight.rows;
  const Tensor own = hidden.columns(params.down_lead, width);
  const bool at_once = streams && gated && !adapts &&
                       ExpertStreams::alike(layer.gates.table[0].weight, layer.ups.table[0].weight);
  // In turns the rows of all experts become activations in each, from what stays as it is.
  const Tensor up = turns != nullptr && !at_once ? tensor(width) : own;
  const Tensor gate = gated && !at_once ? tensor(width) : Tensor{};
  // Tiles without an expert are not written here, but products without streams read them.
  if (!streams || adapts || hidden.cols != width) ops_.clear(hidden);
  if (turns != nullptr && !at_once) ops_.clear(up);
  if (gated && !at_once) ops_.clear(gate);
  while (turns == nullptr || turns->next()) {
    wide_.begin_inputs();
    if (at_once) {
      stream(of_x, layer.gates, &layer.ups, sorted, params.activation, own);
    } else {
      multiply(of_x, layer.ups, sorted, up);
      if (gated) {
        multiply(of_x, layer.gates, sorted, gate);
        ops_.activate_mul(gate, up, params.activation, own);
      } else {
        if (turns != nullptr) ops_.copy(up, own);
        ops_.activate(own, params.activation);
      }
    }
    wide_.begin_inputs();
    multiply(of_hidden, layer.downs, sorted, results);
    if (turns == nullptr) break;
  }
  device_.launch(CombineExperts{rows_of(results), rows_of(x), rows_of(out), n_experts,
                                sorted.choices, n_active, !weigh},
                 a_thread_per_element<CombineExperts>(out));
}

}  // namespace penstock::cuda
