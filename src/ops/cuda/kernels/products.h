// Products with weights, and rows of them.
#pragma once
#include "ops/cuda/kernels/rows.h"
#include "ops/cuda/kernels/weight.h"

namespace penstock::cuda {

// out[t] = row ids[t] of the table * scale, or out[t] += it. A thread per element.
struct EmbedRows {
  static constexpr int kThreads = 256;
  enum class Ids : uint8_t { kTokens, kPositions, kTypes };
  WeightOnDevice table;
  const BatchOnDevice* batch;
  Ids ids;
  int first;  // of the ids that the table has
  // others: zeros, otherwise the table's first row
  bool is_share;
  bool add;
  float scale;
  Rows out;
  PENSTOCK_BODY void operator()(const Thread& t) const;
};

// x rounded to whole numbers of 8 bits: out = round(x / s), s = token_scales[row] = fixed, or
// max(|row|, 1e-5) / 127. A block per row.
struct RoundForProduct {
  static constexpr int kThreads = 256;
  Rows x, out;
  float fixed;  // 0: each row its own
  float* token_scales;
  PENSTOCK_BODY void operator()(const Thread& t) const;
};

// out = x w^T * token_scales + bias. By the kernels of this file what a row of x gives does not
// depend on the others.
struct Product {
  WeightOnDevice w;
  Rows x, out;
  const float* bias;          // [w.rows] or null
  const float* token_scales;  // [x.rows] or null
};

// By mma, weights as codes or BF16: x is split into two BF16, sums are F32. Grid::x = tiles of 16
// outputs, Grid::y = parts of kTokens rows of x; the warps share the units of k, their sums are
// added in their order.
template <int TokenTiles>
struct MmaProduct : Product {
  static constexpr int kThreads = 128, kTokens = 8 * TokenTiles;
  static constexpr int kSharedBytes = 256 * 2 + kThreads / 32 * TokenTiles * 128 * 4;
  PENSTOCK_BODY void prefetch(const Thread& t) const;
  PENSTOCK_BODY void operator()(const Thread& t) const;
};

// By sums of products of F32. Grid::x = parts of kThreads / 32 outputs, Grid::y = parts of kTokens
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

// Rows sorted by expert (kernels/moe.h): each tile of kTokens times its expert's weight. Grid::x =
// tiles of 16 outputs, Grid::y = tiles of rows; those without an expert, and outputs that an
// expert's weight does not have, are left as they are.
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
