// Plans of the matrix products with AMX. Fewer rows than they begin with are left to the vectors.
#pragma once
#include "kernels/gemm_plan.h"

namespace penstock {
namespace amx {

using enum GemmPath;
using enum GemmStrategy;
using enum GemmWhere;

constexpr PanelKinds kF16 = panels_of(PanelKind::kF16), kBf16 = panels_of(PanelKind::kBf16),
                     kWholeBytes = panels_of(PanelKind::kWholeBytes),
                     kWholeCodes = panels_of(PanelKind::kWholeCodes),
                     // of bits
    kPlanes = panels_of(PanelKind::kNibbles, PanelKind::kBytes, PanelKind::kCodes);
// Rows of a block. Where weights are unpacked, they are few enough that 2,048 columns of them stay
// in the second-level cache while all weights pass, which saves more than unpacking twice as often
// costs.
constexpr int kBlockRows = 512, kUnpackedBlockRows = 288;

constexpr GemmPlan kPlans[] = {
    // path, panels, where, from rows, strategy, block, panels
    {kInt8Tiles, kScaledPanels, kAll, 9, kScaledTiles, 16, 1},

    {kInt8RowTiles, kWholePanels, kAll, 5, kFewTiles, 16, 2},
    {kInt8RowTiles, kWholePanels, kAll, 17, kFewTiles, 32, 2},
    {kInt8RowTiles, kWholeBytes, kAll, 33, kTiles, kBlockRows, 2},
    {kInt8RowTiles, kWholeCodes, kAll, 33, kTiles, kUnpackedBlockRows, 2},
    {kInt8RowTiles, kWholeCodes, kUnpackBetween, 33, kTilesBetween, kUnpackedBlockRows, 2},

    // Vectors compute panels of floats in F32, where every few rows cost as much as reading the
    // weights.
    {kBf16Tiles, kF16 | kBf16, kAll, 3, kFewTiles, 16, 2},
    {kBf16Tiles, kScaledPanels, kAll, 9, kFewTiles, 16, 2},
    {kBf16Tiles, kF16 | kBf16 | kScaledPanels, kAll, 17, kFewTiles, 32, 2},
    {kBf16Tiles, kBf16, kAll, 33, kTiles, kBlockRows, 2},
    {kBf16Tiles, kF16 | kScaledPanels, kAll, 33, kTiles, kUnpackedBlockRows, 2},
    {kBf16Tiles, kPlanes, kUnpackBetween, 33, kTilesBetween, kUnpackedBlockRows, 2},
};

}  // namespace amx
}  // namespace penstock
