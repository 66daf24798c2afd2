// Plans of the matrix products with vdpbf16ps: for BF16 weights only.
#pragma once
#include "kernels/gemm_plan.h"

namespace penstock {
namespace avx512bf16 {

constexpr GemmPlan kPlans[] = {
    // path, panels, where, from rows, strategy, block, panels, prefetch
    {GemmPath::kBf16Tiles,
     panels_of(PanelKind::kBf16),
     GemmWhere::kAll,
     3,
     GemmStrategy::kPairs,
     6,
     4,
     {1152}},
};

}  // namespace avx512bf16
}  // namespace penstock
