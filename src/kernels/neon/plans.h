// Plans of the matrix products with NEON, also used with its int8 dot products (neondot/).
#pragma once
#include "kernels/gemm_plan.h"

namespace penstock {
namespace neon {

using enum GemmPath;
using enum GemmStrategy;
using enum GemmWhere;

constexpr Prefetch kNear = {Prefetch::kUnits, 2}, kFloats = {1152};

constexpr GemmPlan kPlans[] = {
    // path, panels, where, from rows, strategy, block, panels, prefetch
    {kInt8, kIntegerPanels, kAll, 1, kStreams, 1, 2, kNear},
    {kInt8, kIntegerPanels, kAll, 2, kStreams, 2, 2, kNear},
    {kInt8, kIntegerPanels, kAll, 3, kStreams, 3, 1, kNear},
    {kInt8, kIntegerPanels, kAll, 4, kStreams, 4, 1, kNear},
    {kInt8, kIntegerPanels, kAll, 5, kBlocks, 3, 1},
    {kInt8, kIntegerPanels, kAll, 7, kBlocks, 4, 1},

    {kF32, kFloatPanels, kAll, 1, kStreams, 1, 2, kFloats},
    {kF32, kFloatPanels, kAll, 2, kStreams, 2, 2, kFloats},
    {kF32, kFloatPanels, kAll, 3, kBlocks, 4, 1},
    {kF32, kFloatPanels, kAll, 4, kStreams, 4, 1, kFloats},
    {kF32, kFloatPanels, kAll, 5, kBlocks, 4, 1},
};

}  // namespace neon
}  // namespace penstock
