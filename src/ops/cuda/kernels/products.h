// Products with weights, and embedding rows.
#pragma once
#include "ops/cuda/kernels/rows.h"
#include "ops/cuda/kernels/weight.h"

namespace penstock::cuda {

// out[t] = row ids[t] of the table * scale, or out[t] += that. One thread per element.
struct EmbedRows {
  static constexpr int kThreads = 256;
  enum class Ids : uint8_t { kTokens, kPositions, kTypes };
  WeightOnDevice table;
  const BatchOnDevice* batch;
  Ids ids;
  int first;  // id of the table's first row
  // ids outside the table give zeros; false: its first row
  bool is_share;
  bool add;
  float scale;
  Rows out;
  PENSTOCK_BODY void operator()(const Thread& t) const;
};

// Rounds x to INT8: out = round(x / s), s = token_scales[row] = fixed, or max(|row|, 1e-5) / 127.
// One block per row.
struct RoundForProduct {
  static constexpr int kThreads = 256;
  Rows x, out;
  float fixed;  // 0: one scale per row
  float* token_scales;
  PENSTOCK_BODY void operator()(const Thread& t) const;
};

// out = x w^T * token_scales + bias. In the kernels of this file, a row's result does not depend on
// other rows.
struct Product {
  WeightOnDevice w;
  Rows x, out;
  const float* bias;          // [w.rows] or null
  const float* token_scales;  // [x.rows] or null
};

// Product by mma, with weights as codes or BF16: x is split into two BF16, accumulators are F32.
// Grid::x = tiles of 16 outputs, Grid::y = groups of kTokens rows of x; the warps share the units
// of inputs, and their sums are added in order.
template <int TokenTiles>
struct MmaProduct : Product {
  static constexpr int kThreads = 128, kTokens = 8 * TokenTiles;
  static constexpr int kSharedBytes = 256 * 2 + kThreads / 32 * TokenTiles * 128 * 4;
  PENSTOCK_BODY void prefetch(const Thread& t) const;
  PENSTOCK_BODY void operator()(const Thread& t) const;
};

// Product by F32 arithmetic. Grid::x = groups of kThreads / 32 outputs, Grid::y = groups of kTokens
// rows of x.
struct DotProduct : Product {
  static constexpr int kThreads = 128, kTokens = 8;
  static constexpr int kSharedBytes = kThreads * kTokens * 4;
  PENSTOCK_BODY void operator()(const Thread& t) const;
};

struct ExpertWeight {
  WeightOnDevice weight;
  const float* bias;  // or null
};

// Products of rows sorted by expert (kernels/moe.h), each tile of kTokens rows with the weight of
// its expert. Grid::x = tiles of 16 outputs, Grid::y = tiles of rows. Tiles without an expert, and
// outputs that an expert's weight does not have, are not written.
struct ExpertProduct {
  static constexpr int kThreads = 128, kTokens = 8;
  static constexpr int kSharedBytes = MmaProduct<1>::kSharedBytes > DotProduct::kSharedBytes
                                          ? MmaProduct<1>::kSharedBytes
                                          : DotProduct::kSharedBytes;
  const ExpertWeight* experts;
  const int32_t* tile_experts;
  Rows x, out;
  const float* token_scales;  // [x.rows] or null
  PENSTOCK_BODY void operator()(const Thread& t) const;
};

}  // namespace penstock::cuda
