// Common parts of the attention kernels over caches of 16 bits (kernels/flash.h,
// kernels/flash_wide.h).
#pragma once
#include "ops/cuda/kernels/own_rows.h"
#include "ops/cuda/kernels/sight.h"

namespace penstock::cuda {

inline constexpr float kLog2E = 1.4426950408889634f;

PENSTOCK_DEVICE int least(int a, int b) { return a < b ? a : b; }
PENSTOCK_DEVICE int most(int a, int b) { return a > b ? a : b; }

// The power of two that scales `most` into [1, 2), and its inverse; ones for extreme values.
struct PowerOfTwo {
  float down, up;
};
PENSTOCK_DEVICE PowerOfTwo unit_of(float most) {
  const int exponent = static_cast<int>(bits_of_float(most) >> 23 & 0xffu);
  if (exponent < 2 || exponent > 252) return {1.0f, 1.0f};
  return {float_of_bits(static_cast<uint32_t>(254 - exponent) << 23),
          float_of_bits(static_cast<uint32_t>(exponent) << 23)};
}

// Whether the sequence has few new tokens, which FlashPieces computes.
PENSTOCK_DEVICE bool is_of_few(const BatchOnDevice& batch, int sequence) {
  return batch.seq_offsets[sequence + 1] - batch.seq_offsets[sequence] <= BatchOnDevice::kFewTokens;
}

// Location of a sequence's tokens in the cache.
struct TokenPlace {
  const KvLayerOnDevice& layer;
  const int32_t* table;
  int first_position, block_shift;
  PENSTOCK_DEVICE TokenPlace(const AttentionOnDevice& k, int sequence)
      : layer(k.layer), block_shift(k.block_shift) {
    const KvOnDevice& kv = k.batch->kv[k.group];
    table = kv.block_tables + kv.table_offsets[sequence];
    first_position = kv.first_positions[sequence];
  }
  // Address of the 16 tokens from `index` on. REQUIRES: index % 16 == 0, and they are in the table.
  PENSTOCK_DEVICE const std::byte* unit(int index, int kv_head) const {
    const int at = index - first_position;
    const int block = block_shift >= 0 ? at >> block_shift : at / layer.block_size;
    const int slot = table[block] * layer.block_size + (at - block * layer.block_size);
    return layer.key(slot, kv_head);
  }
  // Index of that unit in the layer. REQUIRES: block_shift >= 0 (block sizes are powers of two).
  PENSTOCK_DEVICE int unit_at(int index) const {
    const int at = index - first_position;
    const int slot = (table[at >> block_shift] << block_shift) + (at & ((1 << block_shift) - 1));
    return slot / KvLayerOnDevice::kUnitTokens;
  }
};

// Converts products of queries and keys to scores.
struct Scoring {
  float softcap;
  bool capped, sloped;
  PENSTOCK_DEVICE explicit Scoring(const AttentionOnDevice& k)
      : softcap(k.softcap), capped(k.softcap > 0.0f), sloped(k.slopes != nullptr) {}
  // Score in powers of two (times log2 e), without slopes. unit: unit() of the head's queries.
  PENSTOCK_DEVICE float score(float product, float unit) const {
    return capped ? softcap * kLog2E * tanhf(product * unit) : product * unit;
  }
  PENSTOCK_DEVICE float unit(float scale) const {
    return capped ? scale / softcap : scale * kLog2E;
  }
};

PENSTOCK_DEVICE float sink_of(const float* sinks, int head, float reference) {
  return sinks != nullptr ? exp2_near(fminf(sinks[head] * kLog2E - reference, 126.0f)) : 0.0f;
}

// One of a lane's query rows of a warp, g or g + 8.
struct TileRow {
  // head: among all query heads; token < 0: the row is padding
  int token, head;
  int first, end, position;
  PENSTOCK_DEVICE const float* in(const Rows& rows, int dim) const {
    return token < 0 ? nullptr : rows.row(token) + head * dim;
  }
};

template <class K>
PENSTOCK_DEVICE TileRow row_of(const K& k, int row, int first_token, int first_head, int n_heads,
                               int sequence) {
  TileRow made{-1, first_head, 0x7fffffff, 0, 0};
  const int heads = k.heads, within = row / heads, token = first_token + within;
  const int head = row - within * heads;
  if (within >= k.tokens || head >= n_heads || token >= k.batch->n_tokens) return made;
  if (k.batch->sequences[token] != sequence || k.batch->tree_masks[token] != 0) return made;
  const Sight sight = sight_of(k, token);
  return {token, first_head + head, sight.first, sight.end, sight.position};
}

// The work of a block of kernel K: some tokens and heads of one kv head.
struct FlashBlock {
  int kv_head, first_head, n_heads;  // among all query heads
  int first_token, past;

  template <class K>
  PENSTOCK_DEVICE FlashBlock(const Thread& t, const K& k) {
    const int of_heads = t.y % k.head_tiles * k.heads;
    kv_head = t.y / k.head_tiles, n_heads = least(k.heads, k.n_queries - of_heads);
    first_head = kv_head * k.n_queries + of_heads;
    first_token = (t.n_x - 1 - t.x) * k.tokens;  // last tokens, which see the most, first
    past = least(first_token + k.tokens, k.batch->n_tokens);
  }
  // Writes zeros to rows of padding.
  template <class K>
  PENSTOCK_DEVICE void clear_nobodys(const Thread& t, const K& k) const {
    const int dim = k.layer.head_dim;
    for (int token = most(first_token, past); token < least(first_token + k.tokens, k.out.rows);
         ++token)
      for (int i = t.index; i < n_heads * dim; i += K::kThreads)
        k.out.row(token)[first_head * dim + i] = 0.0f;
  }
  // Whether the block has tokens of a sequence that are computed by tiles.
  PENSTOCK_DEVICE bool has(const BatchOnDevice& batch, int sequence) const {
    return !is_of_few(batch, sequence) && batch.seq_offsets[sequence] < past &&
           batch.seq_offsets[sequence + 1] > first_token;
  }
  // Range of the sequence's tokens that some row of the block sees. The first row sees the earliest
  // token, and the last row the latest: ranges do not move back from token to token.
  struct Seen {
    int first, end;
  };
  PENSTOCK_DEVICE Seen seen(const AttentionOnDevice& k, int sequence) const {
    const int* const offsets = k.batch->seq_offsets;
    return {sight_of(k, most(offsets[sequence], first_token), 0).first,
            sight_of(k, least(offsets[sequence + 1], past) - 1, 0).end};
  }
};

}  // namespace penstock::cuda
