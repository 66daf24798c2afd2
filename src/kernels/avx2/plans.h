// Plans of the matrix products with AVX2, also used with 256-bit VNNI (avxvnni/). Measurements:
// bench/notes/2026-11-kernels.md.
#pragma once
#include "kernels/gemm_plan.h"

namespace penstock {
namespace avx2 {

using enum GemmPath;
using enum GemmStrategy;
using enum GemmWhere;

constexpr PanelKinds kEightBits = panels_of(PanelKind::kBytes, PanelKind::kWholeBytes),
                     kNibbles = panels_of(PanelKind::kNibbles),
                     kOthers = panels_of(PanelKind::kBytes, PanelKind::kCodes, PanelKind::kGrid);
constexpr Prefetch kNear = {Prefetch::kUnits, 2}, kNextStep = {Prefetch::kStep, 2}, kFar = {9216},
                   kFarBytes = {6784}, kFloats = {1152}, kFarFloats = {4736},
                   kFloatColumns = {2304};

constexpr GemmPlan kPlans[] = {
    // path, panels, where, from rows, strategy, block, panels, prefetch
    {kInt8, kIntegerPanels, kAll, 1, kStreams, 1, 2, kNear},
    {kInt8, kEightBits, kAll, 1, kStreams, 1, 2, kNextStep},
    {kInt8, kIntegerPanels, kOneStream, 1, kStreams, 1, 1, kFar},
    {kInt8, kEightBits, kOneStream, 1, kStreams, 1, 1, kFarBytes},
    {kInt8, kIntegerPanels, kAll, 2, kStreams, 2, 2, kNear},
    {kInt8, kEightBits, kAll, 2, kStreams, 2, 2, kNextStep},
    {kInt8, kIntegerPanels, kOneStream, 2, kStreams, 2, 1, kFar},
    {kInt8, kEightBits, kOneStream, 2, kStreams, 2, 1, kFarBytes},
    {kInt8, kIntegerPanels, kAll, 3, kStreams, 3, 1, kNear},
    {kInt8, kIntegerPanels, kOneStream, 3, kStreams, 3, 1, kFar},
    {kInt8, kEightBits, kOneStream, 3, kStreams, 3, 1, kFarBytes},
    {kInt8, kIntegerPanels, kAll, 4, kStreams, 4, 1, kNear},
    {kInt8, kIntegerPanels, kOneStream, 4, kStreams, 4, 1, kFar},
    {kInt8, kEightBits, kOneStream, 4, kStreams, 4, 1, kFarBytes},
    {kInt8, kWholePanels | kOthers, kAll, 5, kBlocks, 3, 1},
    {kInt8, kNibbles, kAll, 5, kPanel, 3, 1, kNear},  // unpacking nibbles again is fast
    {kInt8, kWholePanels, kAll, 7, kBlocks, 4, 1},
    {kInt8, kNibbles, kAll, 7, kPanel, 4, 1, kNear},
    {kInt8, kOthers, kAll, 7, kUnpacked, 4, 1},
    {kInt8, kNibbles, kAll, 17, kUnpacked, 4, 1},

    {kF32, kFloatPanels, kAll, 1, kStreams, 1, 2, kFloats},
    // Two panels, since the accumulators of one would be bound by latency.
    {kF32, kFloatPanels, kOneStream, 1, kStreams, 1, 2, kFarFloats},
    {kF32, kFloatPanels, kAll, 2, kStreams, 2, 2, kFloats},
    {kF32, kFloatPanels, kOneStream, 2, kStreams, 2, 2, kFarFloats},
    {kF32, kFloatPanels, kAll, 3, kColumns, 5, 1, kFloatColumns},
};

}  // namespace avx2
}  // namespace penstock
