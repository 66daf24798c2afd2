// Plans of the matrix products with AVX-512 VNNI. Measurements: bench/notes/2026-11-kernels.md.
#pragma once
#include "kernels/gemm_plan.h"

namespace penstock {
namespace avx512 {

using enum GemmPath;
using enum GemmStrategy;
using enum GemmWhere;

constexpr PanelKinds kEightBits = panels_of(PanelKind::kBytes, PanelKind::kWholeBytes),
                     kPlanes = panels_of(PanelKind::kNibbles, PanelKind::kCodes),  // bit planes
    kGrids = panels_of(PanelKind::kGrid), kBytes = panels_of(PanelKind::kBytes);
constexpr Prefetch kNear = {Prefetch::kUnits, 2}, kFar = {9216}, kFarBytes = {6784},
                   kFloats = {1152}, kFarFloats = {4736};

constexpr GemmPlan kPlans[] = {
    // path, panels, where, from rows, strategy, block, panels, prefetch
    {kInt8, kIntegerPanels, kAll, 1, kStreams, 1, 4, kNear},
    {kInt8, kIntegerPanels, kOneStream, 1, kStreams, 1, 1, kFar},
    {kInt8, kEightBits, kOneStream, 1, kStreams, 1, 1, kFarBytes},
    {kInt8, kIntegerPanels, kAll, 2, kStreams, 2, 4, kNear},
    {kInt8, kIntegerPanels, kOneStream, 2, kStreams, 2, 1, kFar},
    {kInt8, kEightBits, kOneStream, 2, kStreams, 2, 1, kFarBytes},
    {kInt8, kIntegerPanels, kAll, 3, kStreams, 3, 2, kNear},
    {kInt8, kIntegerPanels, kOneStream, 3, kStreams, 3, 1, kFar},
    {kInt8, kEightBits, kOneStream, 3, kStreams, 3, 1, kFarBytes},
    {kInt8, kIntegerPanels, kAll, 4, kStreams, 4, 2, kNear},
    {kInt8, kIntegerPanels, kOneStream, 4, kStreams, 4, 1, kFar},
    {kInt8, kEightBits, kOneStream, 4, kStreams, 4, 1, kFarBytes},
    {kInt8, kIntegerPanels, kAll, 5, kStreams, 6, 1, kNear},
    {kInt8, kIntegerPanels, kOneStream, 5, kStreams, 6, 1, kFar},
    {kInt8, kIntegerPanels, kAll, 7, kStreams, 8, 1, kNear},
    {kInt8, kIntegerPanels, kOneStream, 7, kStreams, 8, 1, kFar},
    {kInt8, kWholePanels, kAll, 9, kStreams, 16, 1, kNear},
    {kInt8, kWholePanels, kOneStream, 9, kStreams, 16, 1, kFar},
    {kInt8, kPlanes | kGrids, kAll, 9, kStreams, 12, 1, kNear},
    {kInt8, kPlanes | kGrids, kOneStream, 9, kStreams, 12, 1, kFar},
    {kInt8, kBytes, kAll, 9, kUnpacked, 4, 2},
    {kInt8, kPlanes | kGrids, kAll, 13, kStreams, 16, 1, kNear},
    {kInt8, kPlanes | kGrids, kOneStream, 13, kStreams, 16, 1, kFar},
    {kInt8, kWholePanels, kAll, 17, kBlocks, 16, 1},
    {kInt8, kPlanes, kAll, 17, kPanel, 16, 1, kNear},
    {kInt8, kGrids, kAll, 17, kUnpacked, 4, 2},  // looking up points twice would be slow
    {kInt8, kPlanes, kAll, kManyRows, kUnpacked, 4, 2},

    {kF32, kFloatPanels, kAll, 1, kStreams, 1, 4, kFloats},
    // Two panels, since the accumulators of one would be bound by latency.
    {kF32, kFloatPanels, kOneStream, 1, kStreams, 1, 2, kFarFloats},
    {kF32, kFloatPanels, kAll, 2, kStreams, 2, 4, kFloats},
    {kF32, kFloatPanels, kOneStream, 2, kStreams, 2, 2, kFarFloats},
    {kF32, kFloatPanels, kAll, 3, kBlocks, 8, 2},
    {kF32, kFloatPanels, kAll, 4, kStreams, 4, 2, kFloats},
    {kF32, kFloatPanels, kAll, 5, kBlocks, 8, 2},
};

}  // namespace avx512
}  // namespace penstock
