// Which kernel computes a matrix product: chosen here for every product, from the plans of the
// instruction set.
#pragma once
#include <cstddef>
#include <span>

#include "kernels/gemm_plan.h"
#include "kernels/kernel_table.h"

namespace penstock {

// The plans of a KernelTable.
struct GemmPlans {
  std::span<const GemmPlan> vectors;  // GemmKernels::plans
  // TileKernels::plans; empty where there are none
  std::span<const GemmPlan> tiles;

  static GemmPlans of(const KernelTable& kernels);
};

struct GemmChoice {
  const GemmPlan* plan = nullptr;
  size_t index = 0;  // of the plan in its list, as kernels want it
  // of Int8Rows; 0 where the plan reads activations in another form
  int block_rows = 0;

  GemmPath path() const { return plan->path; }
  bool needs_tiles() const {
    return path() == GemmPath::kBf16Tiles || path() == GemmPath::kInt8RowTiles;
  }
};

// The plan of a product of n_rows >= 1 rows of activations, which have one scale for each row or
// one for every group. Tiles go before vectors wherever they have a plan for so many rows.
// REQUIRES: the type is one that weights are packed in.
GemmChoice choose_gemm(const GemmPlans& plans, PanelType type, bool one_scale, int n_rows,
                       const GemmTraits& traits);

// Traits of this processor, and of tiles as measured once (tile_unpacking()).
GemmTraits gemm_traits(const KernelTable& kernels, bool batch_invariant);

}  // namespace penstock
