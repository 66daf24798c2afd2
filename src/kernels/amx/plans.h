// Plans of the matrix products with AMX. Products of fewer rows are left to vector kernels.
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
                     // codes stored as bit planes
    kPlanes = panels_of(PanelKind::kNibbles, PanelKind::kBytes, PanelKind::kCodes);
// Rows per block. For unpacked weights they are fewer, so that 2,048 columns of activations
// stay in the second-level cache while all weights pass, which saves more than unpacking twice
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

    // Vector kernels compute float panels in F32, and every few rows read the weights
    // again.
    {kBf16Tiles, kF16 | kBf16, kAll, 3, kFewTiles, 16, 2},
    {kBf16Tiles, kScaledPanels, kAll, 9, kFewTiles, 16, 2},
    {kBf16Tiles, kF16 | kBf16 | kScaledPanels, kAll, 17, kFewTiles, 32, 2},
    {kBf16Tiles, kBf16, kAll, 33, kTiles, kBlockRows, 2},
    {kBf16Tiles, kF16 | kScaledPanels, kAll, 33, kTiles, kUnpackedBlockRows, 2},
    {kBf16Tiles, kPlanes, kUnpackBetween, 33, kTilesBetween, kUnpackedBlockRows, 2},
};

}  // namespace amx
}  // namespace penstock
