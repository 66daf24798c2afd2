#include "ops/cpu/gemm_choice.h"

#include <algorithm>
#include <string>
#include <vector>

#include "base/check.h"
#include "kernels/cpu_features.h"
#include "kernels/gemm_kernels.h"
#include "kernels/tile_unpacking.h"
#include "ops/product_plans.h"

namespace penstock {

GemmPlans GemmPlans::of(const KernelTable& kernels) {
  return {kernels.gemm->plans,
          kernels.tiles == nullptr ? std::span<const GemmPlan>() : kernels.tiles->plans};
}

namespace {

// Without block_rows; no plan where there is none.
GemmChoice find_choice(const GemmPlans& plans, PanelKind kind, int n_rows,
                       const GemmTraits& traits) {
  for (const std::span<const GemmPlan> list : {plans.tiles, plans.vectors}) {
    const GemmPlan* plan = find_plan(list, kind, n_rows, traits);
    if (plan != nullptr) return {plan, static_cast<size_t>(plan - list.data())};
  }
  return {};
}

std::string prefetch_name(const Prefetch& prefetch) {
  switch (prefetch.ahead) {
    case Prefetch::kNone: return "none";
    case Prefetch::kStep: return "step";
    case Prefetch::kUnits: return "units";
    default: return std::to_string(prefetch.ahead);
  }
}

}  // namespace

GemmChoice choose_gemm(const GemmPlans& plans, PanelType type, bool one_scale, int n_rows,
                       const GemmTraits& traits) {
  GemmChoice choice = find_choice(plans, panel_kind(type, one_scale), n_rows, traits);
  PENSTOCK_CHECK(choice.plan != nullptr);
  if (choice.path() == GemmPath::kInt8) choice.block_rows = int8_block_rows(n_rows, !one_scale);
  if (choice.path() == GemmPath::kInt8Tiles) choice.block_rows = int8_block_rows(n_rows);
  return choice;
}

GemmTraits gemm_traits(const KernelTable& kernels, bool batch_invariant) {
  const TileUnpacking unpacking = tile_unpacking(kernels).value_or(TileUnpacking{});
  return {cpu_features().one_stream, unpacking.time == UnpackTime::kBetween, batch_invariant};
}

std::vector<ProductPlan> product_plans() {
  const auto kernels = select_kernels();
  if (!kernels) return {};
  const GemmPlans plans = GemmPlans::of(**kernels);
  const GemmTraits traits = gemm_traits(**kernels, false);
  int most_rows = 1;  // from which on nothing changes
  for (const std::span<const GemmPlan> list : {plans.vectors, plans.tiles})
    for (const GemmPlan& plan : list) most_rows = std::max(most_rows, plan.rows);
  std::vector<ProductPlan> all;
  for (int kind = 1; kind < kNumPanelKinds; ++kind) {
    const GemmPlan* last = nullptr;
    for (int n_rows = 1; n_rows <= most_rows; ++n_rows) {
      const GemmPlan* plan = find_choice(plans, static_cast<PanelKind>(kind), n_rows, traits).plan;
      if (plan != nullptr && plan != last) {
        all.push_back({panel_kind_name(static_cast<PanelKind>(kind)), n_rows,
                       gemm_path_name(plan->path), gemm_strategy_name(plan->strategy), plan->block,
                       plan->panels, prefetch_name(plan->prefetch)});
      }
      last = plan;
    }
  }
  return all;
}

}  // namespace penstock
