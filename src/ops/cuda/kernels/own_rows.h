// Rows of 16-bit numbers, and keys and values of the step's own tokens that an attention block
// computes itself.
#pragma once
#include "ops/cuda/kernels/rotation.h"
#include "ops/cuda/kernels/thread.h"

namespace penstock::cuda {

struct alignas(16) Chunk {  // 8 numbers of 16 bits
  uint32_t words[4];
};

struct alignas(16) Four {
  float values[4];
};

// Conversions to the cache's 16-bit numbers.
template <KvCode kCode>
struct Halves {
  static_assert(kCode == KvCode::kF16 || kCode == KvCode::kBF16);
  static constexpr bool kF16 = kCode == KvCode::kF16;
  PENSTOCK_DEVICE static uint32_t pair(float low, float high) {
    return kF16 ? half_pair(low, high) : bf16_pair(low, high);
  }
  // Returns two rounded numbers and their rounding errors.
  PENSTOCK_DEVICE static SplitPair split(float low, float high) {
    if constexpr (!kF16) return split_pair(low, high);
    const uint32_t hi = half_pair(low, high);
    return {hi, half_pair(low - half_to_float(static_cast<uint16_t>(hi)),
                          high - half_to_float(static_cast<uint16_t>(hi >> 16)))};
  }
  PENSTOCK_DEVICE static void mma(const Thread& t, float (&d)[4], const uint32_t (&a)[4],
                                  const uint32_t (&b)[2]) {
    if constexpr (kF16) {
      t.mma_half(d, a, b);
    } else {
      t.mma(d, a, b);
    }
  }
};

// A block's rows in shared memory with the keys and values of a sequence's tokens of the step, as
// 16-bit numbers.
template <class K, int kDim>
struct OwnRows {
  static constexpr int kChunks = kDim / 8;
  Chunk *keys, *values;  // [row][kChunks]
  // index of row 0 in the sequence; the cache has the earlier tokens
  int begin;

  PENSTOCK_DEVICE OwnRows(const Thread& t, int first)
      : keys(t.shared_as<Chunk>(K::kOwnAt)), values(keys + K::kMostOwn * kChunks), begin(first) {}
};

// Rotates one row of a token's head, by 16 lanes.
PENSTOCK_DEVICE void rotate_row(const Rotation& rotation, const BatchOnDevice& batch, int token,
                                const float* from, int dim, int lane, float* to) {
  const int n_rotated = rotation.inv_freq != nullptr ? 2 * rotation.half : 0;
  for (int i = lane; i < dim; i += 16)
    if (i < rotation.first || i >= rotation.first + n_rotated) to[i] = from[i];
  for (int i = lane; 2 * i < n_rotated; i += 16) rotate_pair(rotation, batch, token, from, to, i);
}

// Rounds a row of floats as the cache does, by `lanes` lanes: into `own`, and to the cache at `to`
// unless it is null.
template <KvCode kCode>
PENSTOCK_DEVICE void round_row(const float* from, int dim, int lane, int lanes, Chunk* own,
                               std::byte* to) {
  for (int c = lane; c < dim / 8; c += lanes) {
    const Four low = reinterpret_cast<const Four*>(from)[2 * c];
    const Four high = reinterpret_cast<const Four*>(from)[2 * c + 1];
    const Chunk chunk = {{Halves<kCode>::pair(low.values[0], low.values[1]),
                          Halves<kCode>::pair(low.values[2], low.values[3]),
                          Halves<kCode>::pair(high.values[0], high.values[1]),
                          Halves<kCode>::pair(high.values[2], high.values[3])}};
    own[c] = chunk;
    if (to != nullptr) reinterpret_cast<Chunk*>(to)[c] = chunk;
  }
}

// Fused StoreKv of a block: writes rotated queries of `token` to `queries` [head][kDim], and keys
// and values of the rows [first, end) to `own`; if `stores`, the token's own also to the cache.
// scratch: [row][kDim].
template <class K, int kDim, KvCode kCode>
PENSTOCK_DEVICE void bring_own(const Thread& t, const K& of, const OwnRows<K, kDim>& own, int token,
                               int kv_head, int first_head, int n_heads, int first, int end,
                               bool stores, float* queries, float* scratch) {
  const BatchOnDevice& batch = *of.batch;
  const int dim = of.layer.head_dim, lane = t.index % 16, n = end - first;
  const Rotation rotation =
      rotation_of(of.own.rotation, batch, token);  // all rows are of the token's sequence
  const int begin = batch.seq_offsets[batch.sequences[token]];
  std::byte* const key = stores ? of.layer.key(batch.kv[of.group].slots[token], kv_head) : nullptr;
  const auto place_of = [&](int row) { return begin + row == token ? key : nullptr; };
  for (int i = t.index / 16; i < n_heads + 2 * n; i += K::kThreads / 16) {
    if (i < n_heads) {
      rotate_row(rotation, batch, token, of.q.row(token) + (first_head + i) * dim, dim, lane,
                 queries + i * kDim);
      continue;
    }
    const int row = first + (i - n_heads) / 2;
    if ((i - n_heads) % 2 == 0) {
      rotate_row(rotation, batch, begin + row, of.own.k.row(begin + row) + kv_head * dim, dim, lane,
                 scratch + row * kDim);
    } else {
      std::byte* const to = place_of(row);
      round_row<kCode>(of.own.v.row(begin + row) + kv_head * dim, dim, lane, 16,
                       own.values + row * own.kChunks,
                       to != nullptr ? to + of.layer.values_at : nullptr);
    }
  }
  t.sync();
  for (int row = first + t.warp(); row < end; row += K::kWarps)
    round_row<kCode>(scratch + row * kDim, dim, t.lane(), kWarp, own.keys + row * own.kChunks,
                     place_of(row));
}

}  // namespace penstock::cuda
