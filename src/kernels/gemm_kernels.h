// Matrix products on packed weights: the types that cross from the kernels to their callers.
//
// y[m][n] = sum over k of x[m][k] * w[n][k] (+ bias[n]). Weights lie in panels of 16 rows
// (panel_layout.h); a call covers panels [panel_begin, panel_end), so that workers share a matrix
// by panels. Kernels allocate nothing.
#pragma once
#include <cstddef>
#include <cstdint>

#include "kernels/gemm_plan.h"
#include "kernels/panel_codes.h"

namespace penstock {

inline constexpr int kPanelRows = 16;

// Quantization of activations to int8: a scale per 32 columns, per row (its absolute maximum /
// 127), or a given one; values beyond 127 scales saturate.
struct ActivationRounding {
  enum class Kind : uint8_t { kPerGroup, kPerRow, kFixed };
  Kind kind = Kind::kPerGroup;
  float fixed_scale = 0;

  bool one_scale() const { return kind != Kind::kPerGroup; }
  bool operator==(const ActivationRounding&) const = default;
};

// Packed weights. `type` says how the panels are laid out; it may differ from the type in the file.
struct PanelMatrix {
  const uint8_t* data = nullptr;  // 64-byte aligned
  size_t panel_bytes = 0;
  // [padded rows] factors of whole rows, or null for ones
  const float* row_scales = nullptr;
  int rows = 0;
  int cols = 0;
  // a multiple of the layout's unit; weights beyond cols are 0
  int padded_cols = 0;
  PanelType type = panel_type(QuantType::kF32);
  // level + 128 of each code, where the layout has levels of its own
  alignas(16) uint8_t levels[16] = {};

  int n_panels() const { return (rows + kPanelRows - 1) / kPanelRows; }
};

// 32 activations of one row as int8: x = scale * q. Sums are over q. Kept small, since many rows
// stream through the caches.
struct ActivationGroup {
  float scale;
  float scaled_sum;  // scale * sum
  int32_t negative_sum;
};
// Sums of the first and of the last 16 of them, for weights with scales of 16 columns.
struct ActivationHalves {
  int32_t negative_sums[2];
  float scaled_sums[2];
};

// Rows of activations in blocks of block_rows: [block][step of 32 columns][row of the block][32],
// so that the rows a kernel multiplies together lie together. groups and halves: [block][step][row
// of the block]. Columns beyond the matrix' and rows beyond the last, up to whole blocks, are 0.
struct Int8Rows {
  const int8_t* values;
  const ActivationGroup* groups;
  const ActivationHalves* halves;
  int block_rows;  // int8_block_rows()
  // padded columns / 32; at least those of every matrix multiplied
  int n_steps;
  bool one_scale;  // all groups of a row have equal scales
};

struct FloatRows {
  const float* values;
  ptrdiff_t stride;
};

struct GemmOutput {
  float* values;  // [n_rows, w.rows]
  ptrdiff_t stride;
  const float* bias;  // [w.rows] or null
};

struct GemmKernels {
  const char* name;
  // Quantizes one row of activations: x[0, cols) to columns [0, padded_cols) (a multiple of 32) of
  // a row of Int8Rows, whose first step is at values, groups and halves.
  void (*quantize_row)(const float* x, int cols, int padded_cols,
                       const ActivationRounding& rounding, int block_rows, int8_t* values,
                       ActivationGroup* groups, ActivationHalves* halves);
  std::span<const GemmPlan> plans;
  // [type of the matrix][plan]; null where the plan does not multiply such panels. REQUIRES of
  // every call: the plan fits n_rows. The sum of an output depends neither on n_rows nor on the
  // plan.
  using Int8Gemm = void (*)(const PanelMatrix& w, const Int8Rows& x, int n_rows, int panel_begin,
                            int panel_end, const GemmOutput& out);
  const Int8Gemm* int8[kPanelTypeCount];
  using FloatGemm = void (*)(const PanelMatrix& w, const FloatRows& x, int n_rows, int panel_begin,
                             int panel_end, const GemmOutput& out);
  const FloatGemm* f32[kPanelTypeCount];
  // As f32, for matrices of a few panels and long rows, for which a single accumulator would be
  // bound by latency: each output is the sum of several. For F32, F16 and BF16; null otherwise. The
  // sum of an output does not depend on n_rows.
  FloatGemm few_panels[kPanelTypeCount] = {};
};

// Products of many rows whose activations are packed in advance for a unit: tiles for AMX, pairs of
// columns for AVX-512 BF16, which supports only BF16 products of BF16 weights.
struct TileKernels {
  const char* name;
  std::span<const GemmPlan> plans;
  size_t scratch_bytes;  // per worker, 64-byte aligned

  // Packs rows [first_row, first_row + n_rows) of x as tiles, into the buffer of tile_bytes(all
  // rows, padded_cols), which all workers fill together.
  size_t (*bf16_tile_bytes)(int total_rows, int padded_cols);
  void (*pack_bf16)(const FloatRows& x, int total_rows, int first_row, int n_rows, int cols,
                    int padded_cols, uint8_t* tiles);
  // As above with one scale per row. REQUIRES: rounding is not kPerGroup.
  size_t (*int8_tile_bytes)(int total_rows, int padded_cols);
  void (*pack_int8)(const FloatRows& x, int total_rows, int first_row, int n_rows, int cols,
                    int padded_cols, const ActivationRounding& rounding, uint8_t* tiles);

  // [type of the matrix][plan]; null where the plan does not multiply such panels. REQUIRES of
  // every call: the plan fits n_rows; padded_cols of the activations was that of the matrix,
  // rounded up to 256; scratch has scratch_bytes.
  using TileGemm = void (*)(const PanelMatrix& w, const uint8_t* tiles, int n_rows, int panel_begin,
                            int panel_end, const GemmOutput& out, uint8_t* scratch);
  // For GemmPath::kBf16Tiles and kInt8RowTiles. The latter gives the bits of GemmKernels::int8 with
  // one scale per row. Both give the same bits whether weights are unpacked before the products of
  // tiles or between them.
  const TileGemm* tiles[kPanelTypeCount];
  // For GemmPath::kInt8Tiles, with Int8Rows in blocks of 16; gives the bits of
  // GemmKernels::int8.
  const GemmKernels::Int8Gemm* int8[kPanelTypeCount];
};

}  // namespace penstock
