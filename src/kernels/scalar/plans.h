// Plans of the portable matrix products.
#pragma once
#include "kernels/gemm_plan.h"

namespace penstock {
namespace scalar {

constexpr GemmPlan kPlans[] = {
    // path, panels, where, from rows, strategy, block, panels
    {GemmPath::kInt8, kIntegerPanels, GemmWhere::kAll, 1, GemmStrategy::kBlocks, 16, 1},
    {GemmPath::kF32, kFloatPanels, GemmWhere::kAll, 1, GemmStrategy::kBlocks, 16, 1},
};

}  // namespace scalar
}  // namespace penstock
