// Attention over caches of 16, 8 and 4 bits by mma: many new tokens of a sequence by FlashTiles, few by
// FlashPieces. Codes are widened exactly (kernels/widen.h); scores are multiplied with the keys' scales,
// and weights with those of the values. Beside 4 bits queries are rotated before, and results after
// (TurnHeads, kernels/narrow_attention.h). A row's result depends on which of the two computes it, and on nothing else of the
// batch: tiles and pieces begin at the same positions of a sequence in every batch.
//
// Scores are in powers of two. Softmax references of FlashPieces are integers, so that rescaling of
// sums is exact.
#pragma once
#include "ops/cuda/kernels/attention.h"

namespace penstock::cuda {

// FlashTiles computes tokens without a mask of sequences with more than BatchOnDevice::kFewTokens
// new tokens; FlashPieces computes the others.

// A block computes query rows (one per token and head) of some tokens and heads of one kv head; a
// warp has 16 rows. Keys and values are copied to shared memory by tiles, double-buffered. Tokens
// of several sequences are computed one sequence after another. Grid::x = rows / tokens, Grid::y =
// kv heads * head_tiles. kDim: maximum features of a head: 64, 128, 256.
template <int kDim, KvCode kCode>
struct FlashTiles : AttentionOnDevice {
  static constexpr int kWarps = kDim == 128 ? 8 : 4, kThreads = kWarps * 32, kRows = kWarps * 16;
  static constexpr int kTokens = kDim > 128 ? 32 : 64;  // per tile
  static constexpr int kRowBytes = kDim * 2, kPartBytes = kTokens * kRowBytes,
                       kTileBytes = 2 * kPartBytes;
  static constexpr bool kSharedQueries = kDim > 128;  // otherwise in registers
  static constexpr bool kScaled = kCode >= KvCode::kI8;
  // scales of a tile's keys and values, behind all tiles and queries
  static constexpr int kScalesAt = 2 * kTileBytes + (kSharedQueries ? kRows * kRowBytes : 0);

  int heads, head_tiles, tokens;  // per block, per kv head, per block

  explicit FlashTiles(const AttentionOnDevice& of) : AttentionOnDevice(of) {
    heads = n_queries < kRows ? n_queries : kRows;
    head_tiles = (n_queries + heads - 1) / heads, tokens = kRows / heads;
  }
  static int shared_bytes() { return kScalesAt + (kScaled ? 2 * 2 * kTokens * 4 : 0); }
  PENSTOCK_BODY void operator()(const Thread& t) const;
};

// A block computes up to kHeads query heads of one kv head of a token: for one piece of its
// sequence, as the batch lists them, or (sums: null) for all pieces in order. Warps load parts of
// the piece directly to registers; keys are rows of the products, heads are columns. Queries and
// weights are split into two 16-bit numbers. Grid::x = pieces, or rows;
// Grid::y = kv heads * tiles().
//
// Stores: fuses StoreKv. Blocks rotate their queries, and rotate and round the visible keys and
// values of the sequence's new tokens instead of reading them from the cache; one block per token
// and kv head stores the token's own. REQUIRES: at most BatchOnDevice::kFewTokens new tokens per
// sequence; a cache of 16 bits.
template <int kDim, KvCode kCode, bool Stores = false>
struct FlashPieces : AttentionOnDevice {
  static constexpr int kWarps = 4, kThreads = kWarps * 32, kHeads = 8,
                       kPiece = BatchOnDevice::kPieceTokens;
  static constexpr int kTokens = kDim > 64 ? 16 : 32;  // of a warp at a time
  // parts in which a warp loads the values of 16 tokens
  static constexpr int kParts = kDim < 256 ? 1 : 2;
  static constexpr bool kAhead = kDim < 256;  // loads the next tokens early
  static constexpr bool kStores = Stores;
  static constexpr KvCode kOf = kCode;
  // [piece][query head][value_dim + 2]: sums of values, reference, sum of weights
  float* sums;
  NewTokens own = {};  // if kStores

  int tiles() const { return (n_queries + kHeads - 1) / kHeads; }
  static constexpr int kQueriesAt = ((kWarps + 1) * kHeads * (kDim + 2) + 2 * kHeads) * 4;
  static constexpr int kOwnAt = kQueriesAt + kDim / 16 * 32 * 16,
                       kMostOwn = BatchOnDevice::kFewTokens;
  static int shared_bytes() { return kOwnAt + (kStores ? 2 * kMostOwn * kDim * 2 : 0); }
  PENSTOCK_BODY void operator()(const Thread& t) const;
};

// Joins the partial sums of pieces. Grid::x = rows, Grid::y = query heads.
struct FlashJoin : AttentionOnDevice {
  static constexpr int kThreads = 128;
  const float* sums;
  int most_pieces;
  int shared_bytes() const { return 2 * most_pieces * static_cast<int>(sizeof(float)) + 64; }
  PENSTOCK_BODY void operator()(const Thread& t) const;
};

}  // namespace penstock::cuda
