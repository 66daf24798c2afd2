// Products of many rows: by wgmma where there is one (kernels/warpgroup.h).
#pragma once
#include "ops/cuda/kernels/products.h"

namespace penstock::cuda {

// Rows of x as WideProduct reads them, in the order of the weight's columns, zeros behind the ends:
// rounded to BF16, of two parts what that leaves, rounded too, and sums of 32 inputs each. out is
// [padded_cols / 64][1 or 2 parts][padded_tokens] rows of a tile (kernels/warpgroup.h), sums
// [padded_cols / 32][padded_tokens]. Grid::x = padded_tokens, Grid::y = parts of kThreads pieces.
struct RoundToTiles {
  static constexpr int kThreads = 256, kPieceInputs = 8;
  Rows x;
  const int32_t* input_order;  // or null
  std::byte* out;
  int n_parts;
  float* sums;  // of two parts, or null
  int padded_cols, padded_tokens;
  // Of rows by expert (kernels/moe.h), padded_tokens of them: the choice that a row is for, of
  // which each token has n_active, and what the token's row is multiplied by, or null. Null: rows
  // of x as they are.
  const int32_t* sources = nullptr;
  const float* choice_weights = nullptr;
  int n_active = 1;
  PENSTOCK_BODY void operator()(const Thread& t) const;
};

// The same of FP16: a row is divided by a power of two, kept in row_scales [padded_tokens], after
// which its largest value is from 2^14 to 2^15. Of two parts nothing is rounded that BF16 would not
// round. Grid::x = padded_tokens.
struct RoundToHalfTiles {
  static constexpr int kThreads = 256, kSharedBytes = 4 * kThreads / 32;
  RoundToTiles to;  // without sums
  float* row_scales;
  PENSTOCK_BODY void operator()(const Thread& t) const;
};

// By wgmma, sums are F32. Of one part x, and what codes stand for, are rounded to BF16; of two
// nothing is rounded that MmaProduct does not round. FP16 weights take inputs of FP16; token_scales
// are the rows'. Grid::x = parts of kTokens rows of x, Grid::y = splits of parts of kOutputs
// outputs, so that blocks which share weights run side by side. Of: what stream_coding() says of w;
// kNone: any codes.
template <int Tokens, StreamCoding Of, int Parts>
struct WideProduct : Product {
  static constexpr int kThreads = 256, kTokens = Tokens, kOutputs = 128, kWeights = 1;
  static constexpr bool kFloats = Of == StreamCoding::kBF16 || Of == StreamCoding::kF16;
  static constexpr bool kFolds = Parts == 2 && !kFloats && Of != StreamCoding::kNone;
  // Units on their way while one is multiplied; and one that wgmma may still read, but where it is
  // waited for.
  static constexpr int kAhead = kFolds ? 4 : 2, kStages = kFolds ? 5 : 4;
  // Of a tile of 16 rows and 64 inputs, with its factors.
  static constexpr int kTileBytes = kFloats                       ? 2048
                                    : Of == StreamCoding::kNone   ? 1536
                                    : Of == StreamCoding::kHalf8  ? 1088
                                    : Of == StreamCoding::kSuper6 ? 864
                                    : Of == StreamCoding::kSuper5 ? 768
                                                                  : 640;
  static constexpr bool kHasSums =
      kFolds && (Of == StreamCoding::kWide4Zeros || Of == StreamCoding::kSuper4 ||
                 Of == StreamCoding::kSuper5);
  // Of a stage: tiles of inputs, tiles of weights, sums of inputs.
  static constexpr int kWeightsAt = Parts * Tokens * 128,
                       kSumsAt = kWeightsAt + kOutputs / 16 * kTileBytes;
  static constexpr int kStageBytes = (kSumsAt + (kHasSums ? Tokens * 8 : 0) + 1023) / 1024 * 1024;
  static constexpr int kLevelsAt = kStages * kStageBytes;
  static constexpr int kSharedBytes = 1024 + kLevelsAt + (Of == StreamCoding::kNone ? 512 : 0);
  const std::byte* inputs;  // of RoundToTiles
  const float* input_sums;
  int padded_tokens;
  // Inputs may be split into parts, multiplied by blocks of their own: [n_splits][x.rows][w.rows],
  // what they give, for JoinSplits. Null: they are not.
  float* split_sums;
  int n_splits;
  PENSTOCK_DEVICE const WeightOnDevice& weight_of(int) const { return w; }  // of a warp
  PENSTOCK_BODY void operator()(const Thread& t) const;
};

// out = f(the product with w) * that with up, both with their biases, of two weights that are
// alike, whose outputs are a multiple of 64; and the same rounded as RoundToTiles would, for the
// product that reads it. Half of the warps have w, half have up. Inputs are of one part. Grid::x as
// above, Grid::y = parts of kOutputs outputs.
template <int Tokens, StreamCoding Of>
struct WideGatedProduct : WideProduct<Tokens, Of, 1> {
  static constexpr int kOutputs = 64, kWeights = 2;  // of each
  WeightOnDevice up;
  const float* up_bias;
  ActivationFunction f;
  std::byte* tiles;  // [w.rows / 64][padded_tokens] rows of a tile
  PENSTOCK_DEVICE const WeightOnDevice& weight_of(int warp) const {
    return warp < 4 ? this->w : up;
  }
  PENSTOCK_BODY void operator()(const Thread& t) const;
};

// Rows sorted by expert, each one's from a multiple of Tokens on, rounded in one part: each times
// its expert's weight, which has this coding. Grid::x = parts of Tokens rows, Grid::y = parts of
// kOutputs outputs. Parts without an expert are left as they are.
template <int Tokens, StreamCoding Of>
struct WideExpertProduct {
  using One = WideProduct<Tokens, Of, 1>;
  static constexpr int kThreads = One::kThreads, kTokens = Tokens, kSharedBytes = One::kSharedBytes;
  const ExpertWeight* experts;
  const int32_t* tile_experts;  // of ExpertProduct::kTokens rows each
  const std::byte* inputs;      // of RoundToTiles
  const float* row_scales;      // of RoundToHalfTiles, or null
  Rows out;
  PENSTOCK_BODY void operator()(const Thread& t) const;
};

// out = the sum of the splits + bias. A thread per element: Grid::x = rows, Grid::y = parts of
// kThreads outputs.
struct JoinSplits : Product {
  static constexpr int kThreads = 256;
  const float* split_sums;
  int n_splits;
  PENSTOCK_BODY void operator()(const Thread& t) const;
};

}  // namespace penstock::cuda
