// Attention over caches of 16 bits by mma: many new tokens of a sequence by FlashTiles, few by
// FlashPieces. What a row gives depends on which of the two it is for, and on nothing else of the
// batch: tiles and pieces of a sequence begin at the same places whatever there is.
//
// Scores are in powers of two. References of FlashPieces are whole, so that what sums are rescaled
// with is exact.
#pragma once
#include "ops/cuda/kernels/attention.h"

namespace penstock::cuda {

// Tokens of sequences with more than BatchOnDevice::kFewTokens new ones, that have no mask, are for
// tiles; the others for pieces.

// A block has the query rows, of a token and a head each, of some tokens and heads of one kv head;
// a warp has 16 of them. Keys and values come in tiles through shared memory, of which there are
// two. Of tokens of several sequences one after the other. Grid::x = rows / tokens, Grid::y = kv
// heads * head_tiles. kDim: the most features of a head, 64, 128 or 256.
template <int kDim, KvCode kCode>
struct FlashTiles : AttentionOnDevice {
  static constexpr int kWarps = kDim == 128 ? 8 : 4, kThreads = kWarps * 32, kRows = kWarps * 16;
  static constexpr int kTokens = kDim > 128 ? 32 : 64;  // of a tile
  static constexpr int kRowBytes = kDim * 2, kPartBytes = kTokens * kRowBytes,
                       kTileBytes = 2 * kPartBytes;
  static constexpr bool kSharedQueries = kDim > 128;  // else in registers

  int heads, head_tiles, tokens;  // of a block, of a kv head, of a block

  explicit FlashTiles(const AttentionOnDevice& of) : AttentionOnDevice(of) {
    heads = n_queries < kRows ? n_queries : kRows;
    head_tiles = (n_queries + heads - 1) / heads, tokens = kRows / heads;
  }
  int shared_bytes() const { return 2 * kTileBytes + (kSharedQueries ? kRows * kRowBytes : 0); }
  PENSTOCK_BODY void operator()(const Thread& t) const;
};

// A block has up to kHeads query heads of one kv head of a token: of a piece of its sequence, as
// the batch lists them, or (sums: null) of one piece after the other. Its warps have parts of the
// piece, straight from the cache's memory to registers; keys are the rows of the products, heads
// the columns. Queries and weights are sums of two numbers of 16 bits. Grid::x = pieces, or rows;
// Grid::y = kv heads * tiles().
//
// Stores: the same as StoreKv and then this. Blocks rotate the queries they have, rotate and round
// the keys and values of the sequence's new tokens that they see, which they do not read from the
// cache, and one block of a token and kv head stores the token's own. Nobody has more than
// BatchOnDevice::kFewTokens new ones.
template <int kDim, KvCode kCode, bool Stores = false>
struct FlashPieces : AttentionOnDevice {
  static constexpr int kWarps = 4, kThreads = kWarps * 32, kHeads = 8,
                       kPiece = BatchOnDevice::kPieceTokens;
  static constexpr int kTokens = kDim > 64 ? 16 : 32;  // that a warp has at a time
  // of values, that it has at a time; of one group of 16 tokens
  static constexpr int kParts = kDim < 256 ? 1 : 2;
  static constexpr bool kAhead = kDim < 256;  // the next ones are on their way meanwhile
  static constexpr bool kStores = Stores;
  // [piece][query head][value_dim + 2]: sums of values, their reference, the sum of weights
  float* sums;
  NewTokens own = {};  // of kStores

  int tiles() const { return (n_queries + kHeads - 1) / kHeads; }
  static constexpr int kQueriesAt = ((kWarps + 1) * kHeads * (kDim + 2) + 2 * kHeads) * 4;
  static constexpr int kOwnAt = kQueriesAt + kDim / 16 * 32 * 16,
                       kMostOwn = BatchOnDevice::kFewTokens;
  static int shared_bytes() { return kOwnAt + (kStores ? 2 * kMostOwn * kDim * 2 : 0); }
  PENSTOCK_BODY void operator()(const Thread& t) const;
};

// Puts the pieces' sums together, of a token and a head. Grid::x = rows, Grid::y = query heads.
struct FlashJoin : AttentionOnDevice {
  static constexpr int kThreads = 128;
  const float* sums;
  int most_pieces;
  int shared_bytes() const { return 2 * most_pieces * static_cast<int>(sizeof(float)) + 64; }
  PENSTOCK_BODY void operator()(const Thread& t) const;
};

}  // namespace penstock::cuda
