// Plans of matrix products: the fastest method for a number of rows of activations.
//
// Every instruction set lists its plans in <isa>/plans.h. ops/cpu chooses one for each product
// (choose_gemm() of ops/cpu/gemm_choice.h), and the kernel of that plan computes it. Plans change
// the speed of a product and none of its bits, except those of GemmPath::kBf16Tiles, which round
// activations to BF16.
#pragma once
#include <array>
#include <cstdint>
#include <iterator>
#include <span>
#include <type_traits>

#include "kernels/panel_layout.h"

namespace penstock {

// Kinds of packed weights that plans distinguish. "Whole": neither weights nor activations have
// scales inside a row, so sums are integers from end to end.
enum class PanelKind : uint8_t {
  kNone,  // not multiplied in this encoding
  kF32,
  kF16,  // FP16 and F8
  kBf16,
  kNibbles,  // codes of 4 bits that equal their levels
  kBytes,    // codes of 8 bits
  kGrid,     // indices of points of a grid
  kCodes,    // codes of other widths, and codes of a codebook
  kWholeBytes,
  kWholeCodes,
};
inline constexpr int kNumPanelKinds = 10;

constexpr const char* panel_kind_name(PanelKind kind) {
  constexpr const char* kNames[] = {"none",  "f32",  "f16",   "bf16",        "nibbles",
                                    "bytes", "grid", "codes", "whole-bytes", "whole-codes"};
  static_assert(std::size(kNames) == kNumPanelKinds);
  return kNames[static_cast<int>(kind)];
}

// A set of kinds, one bit each.
using PanelKinds = uint16_t;
template <class... Kind>
constexpr PanelKinds panels_of(Kind... kind) {
  return static_cast<PanelKinds>(((1u << static_cast<unsigned>(kind)) | ...));
}
inline constexpr PanelKinds kWholePanels =
    panels_of(PanelKind::kWholeBytes, PanelKind::kWholeCodes);
inline constexpr PanelKinds kScaledPanels =  // integer codes with scales inside a row
    panels_of(PanelKind::kNibbles, PanelKind::kBytes, PanelKind::kGrid, PanelKind::kCodes);
inline constexpr PanelKinds kIntegerPanels = kWholePanels | kScaledPanels;
inline constexpr PanelKinds kFloatPanels =
    panels_of(PanelKind::kF32, PanelKind::kF16, PanelKind::kBf16);

// Returns the kind of an encoding. one_scale: activations have one scale per row.
template <class Q>
constexpr PanelKind panel_kind_of(bool one_scale) {
  if constexpr (panel::Codes<Q>) {
    using L = PanelLayout<Q>;
    if (L::kWholeRow && one_scale)
      return Q::kBits == 8 ? PanelKind::kWholeBytes : PanelKind::kWholeCodes;
    if (L::kGrid) return PanelKind::kGrid;
    if (Q::kIsCodebook) return PanelKind::kCodes;
    return Q::kBits == 8   ? PanelKind::kBytes
           : Q::kBits == 4 ? PanelKind::kNibbles
                           : PanelKind::kCodes;
  } else if constexpr (std::is_same_v<Q, quant::F32>) {
    return PanelKind::kF32;
  } else if constexpr (std::is_same_v<Q, quant::BF16>) {
    return PanelKind::kBf16;
  } else if constexpr (std::is_same_v<Q, quant::F16> || std::is_same_v<Q, panel::F8Row> ||
                       std::is_same_v<Q, panel::F8Groups>) {
    return PanelKind::kF16;
  } else {
    return PanelKind::kNone;
  }
}
constexpr PanelKind panel_kind(PanelType type, bool one_scale) {
  constexpr auto kKinds = []<class... Q>(std::tuple<Q...>*) {
    return std::array{std::array{panel_kind_of<Q>(false), panel_kind_of<Q>(true)}...};
  }(static_cast<panel::All*>(nullptr));
  return kKinds[static_cast<size_t>(type)][one_scale ? 1 : 0];
}

// The kernels of a product, which also determine the form of its activations.
enum class GemmPath : uint8_t {
  kF32,           // GemmKernels::f32
  kInt8,          // GemmKernels::int8
  kInt8Tiles,     // TileKernels::int8: the activations of kInt8, in blocks of 16 rows
  kInt8RowTiles,  // TileKernels::tiles, with activations of pack_int8
  kBf16Tiles,     // TileKernels::tiles, with activations of pack_bf16
};

constexpr const char* gemm_path_name(GemmPath path) {
  constexpr const char* kNames[] = {"f32", "int8", "int8-tiles", "int8-row-tiles", "bf16-tiles"};
  return kNames[static_cast<int>(path)];
}

// Order in which a kernel processes panels and rows.
enum class GemmStrategy : uint8_t {
  // Vectors. `panels` panels advance together, each as a stream from memory, with all rows.
  kStreams,
  // One panel at a time: all blocks of rows are multiplied while the first-level caches hold the
  // panel. The first block prefetches it.
  kPanel,
  // As kPanel, without prefetches, and with as many rows at once as the second-level cache
  // holds.
  kBlocks,
  // A slice of columns of `panels` panels is unpacked once and multiplied with all rows.
  kUnpacked,
  // One panel at a time, column by column of its 16 rows: each load of activations serves all
  // 16.
  kColumns,
  // Tiles. The accumulators of all rows stay in tiles over all columns.
  kFewTiles,
  // A slice of two panels is unpacked to tiles and multiplied with all rows of a block.
  kTiles,
  // As kTiles; the next slice is unpacked between the products of the current one.
  kTilesBetween,
  // Integer sums by tiles, to which vectors apply the scales of groups.
  kScaledTiles,
  // Pairs of columns by vdpbf16ps, with accumulators in registers.
  kPairs,
};
constexpr const char* gemm_strategy_name(GemmStrategy strategy) {
  constexpr const char* kNames[] = {"streams",      "panel",     "blocks", "unpacked",
                                    "columns",      "few-tiles", "tiles",  "tiles-between",
                                    "scaled-tiles", "pairs"};
  return kNames[static_cast<int>(strategy)];
}

// Distance at which weights are prefetched, and the level of cache.
struct Prefetch {
  static constexpr int kNone = 0, kUnits = -1, kStep = -2;
  // Bytes; or kUnits: 4 units of the layout, 2 if a unit has at least 1,024 bytes; or kStep: 32
  // columns.
  int ahead = kNone;
  int level = 1;  // 1 or 2

  // Returns the distance in bytes, for a layout with units of unit_bytes and steps of step_bytes.
  constexpr int bytes(int unit_bytes, int step_bytes) const {
    return ahead == kUnits  ? (unit_bytes >= 1024 ? 2 : 4) * unit_bytes
           : ahead == kStep ? step_bytes
                            : ahead;
  }
};

// Least rows at which kUnpacked uses blocks of four (AVX-512), which int8_block_rows() provides.
inline constexpr int kManyRows = 49;

// Returns the rows of a block of Int8Rows: one, two, the next even number up to eight, else
// sixteen. fours: many rows are in blocks of four, which are read as one stream: for
// GemmPath::kInt8 with a scale per group of activations.
constexpr int int8_block_rows(int n_rows, bool fours = false) {
  if (fours && n_rows >= kManyRows) return 4;
  return n_rows <= 2 ? (n_rows < 1 ? 1 : n_rows) : n_rows <= 8 ? (n_rows + 1) / 2 * 2 : 16;
}

// Properties of the processor and wishes of the caller that affect the choice.
struct GemmTraits {
  bool one_stream = false;      // CpuFeatures::one_stream
  bool unpack_between = false;  // UnpackTime::kBetween
  // Results of a row must be the same, bit for bit, whatever other rows are computed with it.
  bool batch_invariant = false;
};

// Conditions of a plan.
enum class GemmWhere : uint8_t { kAll, kOneStream, kUnpackBetween };

struct GemmPlan {
  GemmPath path;
  PanelKinds kinds;  // of panels
  GemmWhere where;
  int rows;  // least rows of activations
  GemmStrategy strategy;
  // most rows of activations multiplied together
  int block;
  int panels;  // panels multiplied together
  Prefetch prefetch = {};

  constexpr bool multiplies(PanelKind kind) const { return (kinds & panels_of(kind)) != 0; }
  constexpr bool fits(PanelKind kind, int n_rows, const GemmTraits& traits) const {
    return multiplies(kind) && n_rows >= rows &&
           !(traits.batch_invariant && path == GemmPath::kBf16Tiles) &&
           (where == GemmWhere::kAll || (where == GemmWhere::kOneStream && traits.one_stream) ||
            (where == GemmWhere::kUnpackBetween && traits.unpack_between));
  }
};

// Returns the last fitting plan, so that lists go from few rows to many and from rules to
// exceptions; null if none fits.
constexpr const GemmPlan* find_plan(std::span<const GemmPlan> plans, PanelKind kind, int n_rows,
                                    const GemmTraits& traits) {
  const GemmPlan* found = nullptr;
  for (const GemmPlan& plan : plans) {
    if (plan.fits(kind, n_rows, traits)) found = &plan;
  }
  return found;
}

}  // namespace penstock
