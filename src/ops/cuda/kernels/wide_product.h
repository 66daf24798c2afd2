// Products of many rows: by wgmma on devices that have it (kernels/warpgroup.h).
#pragma once
#include "ops/cuda/kernels/products.h"

namespace penstock::cuda {

// Rounds rows of x for WideProduct: columns in the order of the weight, padded with zeros, rounded
// to BF16. With two parts, also the rounding errors as BF16, and sums of 32 inputs each. out:
// [padded_cols / 64][1 or 2 parts][padded_tokens] rows of a tile (kernels/warpgroup.h); sums:
// [padded_cols / 32][padded_tokens]. Grid::x = padded_tokens, Grid::y = groups of kThreads pieces.
struct RoundToTiles {
  static constexpr int kThreads = 256, kPieceInputs = 8;
  Rows x;
  const int32_t* input_order;  // [cols] or null
  std::byte* out;
  int n_parts;
  float* sums;  // with two parts, otherwise null
  int padded_cols, padded_tokens;
  // Rows sorted by expert (kernels/moe.h): sources [padded_tokens] has the choice of each row
  // (n_active per token), and choice_weights the factors of choices, or null. sources is null: rows
  // are those of x.
  const int32_t* sources = nullptr;
  const float* choice_weights = nullptr;
  int n_active = 1;
  PENSTOCK_BODY void operator()(const Thread& t) const;
};

// As RoundToTiles, to FP16: each row is divided by a power of two, its row_scales [padded_tokens],
// so that its largest value is in [2^14, 2^15). Two parts keep all the bits that two BF16 keep.
// Grid::x = padded_tokens.
struct RoundToHalfTiles {
  static constexpr int kThreads = 256, kSharedBytes = 4 * kThreads / 32;
  RoundToTiles to;  // sums: unused
  float* row_scales;
  PENSTOCK_BODY void operator()(const Thread& t) const;
};

// Product by wgmma with F32 accumulators. With one part, x and dequantized codes are rounded to
// BF16; with two parts nothing is rounded that MmaProduct does not round. FP16 weights take FP16
// inputs, whose scales are token_scales. Grid::x = groups of kTokens rows of x, Grid::y = groups of
// kOutputs outputs times splits, so that blocks with the same weights run together. Of:
// stream_coding() of w; kNone: any codes.
template <int Tokens, StreamCoding Of, int Parts>
struct WideProduct : Product {
  static constexpr int kThreads = 256, kTokens = Tokens, kOutputs = 128, kWeights = 1;
  static constexpr bool kFloats = Of == StreamCoding::kBF16 || Of == StreamCoding::kF16;
  static constexpr bool kFolds = Parts == 2 && !kFloats && Of != StreamCoding::kNone;
  // Units in flight while one is multiplied; and stages, one more of which wgmma may still be
  // reading unless it is waited for.
  static constexpr int kAhead = kFolds ? 4 : 2, kStages = kFolds ? 5 : 4;
  // Bytes of a tile of 16 rows and 64 inputs, with its factors.
  static constexpr int kTileBytes = kFloats                       ? 2048
                                    : Of == StreamCoding::kNone   ? 1536
                                    : Of == StreamCoding::kHalf8  ? 1088
                                    : Of == StreamCoding::kSuper6 ? 864
                                    : Of == StreamCoding::kSuper5 ? 768
                                                                  : 640;
  static constexpr bool kHasSums =
      kFolds && (Of == StreamCoding::kWide4Zeros || Of == StreamCoding::kSuper4 ||
                 Of == StreamCoding::kSuper5);
  // Offsets in a stage: tiles of inputs, tiles of weights, sums of inputs.
  static constexpr int kWeightsAt = Parts * Tokens * 128,
                       kSumsAt = kWeightsAt + kOutputs / 16 * kTileBytes;
  static constexpr int kStageBytes = (kSumsAt + (kHasSums ? Tokens * 8 : 0) + 1023) / 1024 * 1024;
  static constexpr int kLevelsAt = kStages * kStageBytes;
  static constexpr int kSharedBytes = 1024 + kLevelsAt + (Of == StreamCoding::kNone ? 512 : 0);
  const std::byte* inputs;  // from RoundToTiles
  const float* input_sums;
  int padded_tokens;
  // Partial sums [n_splits][x.rows][w.rows] for JoinSplits, if the inputs are split among blocks;
  // null: they are not split.
  float* split_sums;
  int n_splits;
  PENSTOCK_DEVICE const WeightOnDevice& weight_of(int) const { return w; }  // for a warp
  PENSTOCK_BODY void operator()(const Thread& t) const;
};

// out = f(product with w) * (product with up), each with its bias; also rounded to tiles like
// RoundToTiles, for the product that reads it. Half of the warps have w, half have up. REQUIRES: w
// and up have one layout, outputs are a multiple of 64, inputs have one part. Grid::x as in
// WideProduct, Grid::y = groups of kOutputs outputs.
template <int Tokens, StreamCoding Of>
struct WideGatedProduct : WideProduct<Tokens, Of, 1> {
  static constexpr int kOutputs = 64, kWeights = 2;  // kOutputs: of each weight
  WeightOnDevice up;
  const float* up_bias;
  ActivationFunction f;
  std::byte* tiles;  // [w.rows / 64][padded_tokens] rows of a tile
  PENSTOCK_DEVICE const WeightOnDevice& weight_of(int warp) const {
    return warp < 4 ? this->w : up;
  }
  PENSTOCK_BODY void operator()(const Thread& t) const;
};

// Products of rows sorted by expert, rounded in one part, with the weights of their experts, which
// have this coding. REQUIRES: each expert's rows begin at a multiple of Tokens. Grid::x = groups of
// Tokens rows, Grid::y = groups of kOutputs outputs. Groups without an expert are not written.
template <int Tokens, StreamCoding Of>
struct WideExpertProduct {
  using One = WideProduct<Tokens, Of, 1>;
  static constexpr int kThreads = One::kThreads, kTokens = Tokens, kSharedBytes = One::kSharedBytes;
  const ExpertWeight* experts;
  const int32_t* tile_experts;  // per ExpertProduct::kTokens rows
  const std::byte* inputs;      // from RoundToTiles
  const float* row_scales;      // from RoundToHalfTiles, or null
  Rows out;
  PENSTOCK_BODY void operator()(const Thread& t) const;
};

// out = the sum of the splits + bias. One thread per element: Grid::x = rows, Grid::y = groups of
// kThreads outputs.
struct JoinSplits : Product {
  static constexpr int kThreads = 256;
  const float* split_sums;
  int n_splits;
  PENSTOCK_BODY void operator()(const Thread& t) const;
};

}  // namespace penstock::cuda
