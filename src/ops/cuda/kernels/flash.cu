#include "ops/cuda/kernels/flash.h"

#include "ops/cuda/kernels/flash_parts.h"
#include "ops/cuda/kernels/thread.h"
#include "ops/cuda/kernels/widen.h"

namespace penstock::cuda {
namespace {

// --- FlashTiles.

// Starts copies of a tile: keys and values of the tokens [begin, begin + kTokens) of a sequence.
// Tokens outside [from, end) and features beyond the head's become zeros, so that products need no
// branches, which would keep the compiler from prefetching operands.
template <class K>
PENSTOCK_DEVICE void bring_tile(const Thread& t, const K& k, const TokenPlace& place, int kv_head,
                                int begin, int from, int end, std::byte* to) {
  constexpr int kChunks = K::kRowBytes / 16, kPerPass = K::kThreads / kChunks;
  const int chunk = t.index % kChunks, row_bytes = k.layer.row_bytes;
  const bool has = chunk * 16 < row_bytes;
#pragma unroll
  for (int pass = 0; pass < K::kTokens / kPerPass; ++pass) {
    const int row = pass * kPerPass + t.index / kChunks, index = begin + row,
              unit = index / 16 * 16;
    std::byte* const key = to + row * K::kRowBytes + (chunk ^ row % 8) * 16;
    if (has && unit + 16 > from && index < end) {
      const std::byte* const at = place.unit(unit, kv_head) + row % 16 * row_bytes + chunk * 16;
      t.copy_ahead(key, at);
      t.copy_ahead(key + K::kPartBytes, at + k.layer.values_at);
    } else {
      *reinterpret_cast<Chunk*>(key) = Chunk{};
      *reinterpret_cast<Chunk*>(key + K::kPartBytes) = Chunk{};
    }
  }
}

// As bring_tile(), of codes, which are widened on their way, and their scales.
template <class K, KvCode kCode>
PENSTOCK_DEVICE void widen_tile(const Thread& t, const K& k, const TokenPlace& place, int kv_head,
                                int begin, int from, int end, std::byte* to, float* scales) {
  constexpr int kChunks = K::kRowBytes / 16, kPerPass = K::kThreads / kChunks;
  const int chunk = t.index % kChunks;
  const bool has = chunk * 8 < k.layer.head_dim;
#pragma unroll
  for (int pass = 0; pass < K::kTokens / kPerPass; ++pass) {
    const int row = pass * kPerPass + t.index / kChunks, index = begin + row,
              unit = index / 16 * 16;
    CachedEight<kCode> key = {}, value = {};
    if (has && unit + 16 > from && index < end) {
      const std::byte* const at = place.unit(unit, kv_head);
      key = eight_of<kCode>(k.layer, at, kv_head, row % 16, chunk * 8, false);
      value = eight_of<kCode>(k.layer, at, kv_head, row % 16, chunk * 8, true);
    }
    std::byte* const put = to + row * K::kRowBytes + (chunk ^ row % 8) * 16;
    *reinterpret_cast<Chunk*>(put) = Widened<kCode>::halves(key);
    *reinterpret_cast<Chunk*>(put + K::kPartBytes) = Widened<kCode>::bf16s(value);
  }
  for (int i = t.index; i < 2 * K::kTokens; i += K::kThreads) {
    const int row = i % K::kTokens, index = begin + row, unit = index / 16 * 16;
    const bool there = unit + 16 > from && index < end;
    scales[i] =
        there ? scale_of(k.layer, place.unit(unit, kv_head), kv_head, row % 16, i >= K::kTokens)
              : 0.0f;
  }
}

// State of a warp's 16 query rows, of which a lane holds rows g and g + 8 (fragments of mma):
// rounded queries, and accumulators over the tokens so far.
template <class K, int kDim, KvCode kCode>
struct WarpRows {
  using Keys = KeyNumbers<kCode>;
  using OfValues = ValueNumbers<kCode>;
  static constexpr int kSteps = kDim / 16, kPairs = K::kTokens / 16;
  const Thread& t;
  const K& of;
  const Scoring& scoring;
  const TileRow (&rows)[2];
  Chunk* shared_queries;  // of the lane, if kSharedQueries
  int dim, q4;
  uint32_t queries[K::kSharedQueries ? 1 : kSteps][4];
  float units[2], slope[2];
  float sums[2 * kSteps][4], highest[2] = {kNothing, kNothing}, total[2] = {0.0f, 0.0f};
  float scores[2 * kPairs][4];  // of one tile of keys

  PENSTOCK_DEVICE WarpRows(const Thread& thread, const K& kernel, const Scoring& how,
                           const TileRow (&own)[2], Chunk* shared)
      : t(thread),
        of(kernel),
        scoring(how),
        rows(own),
        shared_queries(shared),
        dim(kernel.layer.head_dim),
        q4(thread.lane() % 4) {
    round_queries();
#pragma unroll
    for (int n = 0; n < 2 * kSteps; ++n)
#pragma unroll
      for (int i = 0; i < 4; ++i) sums[n][i] = 0.0f;
  }

  PENSTOCK_DEVICE void round_queries() {
    float down[2];
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      float largest = 0.0f;
      const float* const from_q = rows[r].in(of.q, dim);
      for (int i = 2 * q4; i < dim && from_q != nullptr; i += 8)
        largest = fmaxf(largest, fmaxf(fabsf(from_q[i]), fabsf(from_q[i + 1])));
      largest = fmaxf(largest, t.shuffle_xor(largest, 1));
      largest = fmaxf(largest, t.shuffle_xor(largest, 2));
      const PowerOfTwo unit = unit_of(largest);
      down[r] = unit.down, units[r] = unit.up * scoring.unit(of.scale);
      slope[r] = scoring.sloped ? of.slopes[rows[r].head] * kLog2E : 0.0f;
    }
#pragma unroll
    for (int s = 0; s < kSteps; ++s) {
      Chunk words;
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const int r = i & 1, at = 16 * s + 8 * (i >> 1) + 2 * q4;
        float low = 0.0f, high = 0.0f;
        if (rows[r].token >= 0 && at < dim) {
          const float* const from_q = rows[r].in(of.q, dim) + at;
          low = from_q[0] * down[r], high = from_q[1] * down[r];
        }
        words.words[i] = Keys::pair(low, high);
        if constexpr (!K::kSharedQueries) queries[s][i] = words.words[i];
      }
      if constexpr (K::kSharedQueries) shared_queries[s * 32] = words;
    }
  }

  // load_matrices() reads four matrices [8, 8] at once: keys of tokens 0-7 and 8-15 by features 0-7
  // and 8-15; add_values(): values of features 0-7 and 8-15 by tokens 0-7 and 8-15.
  PENSTOCK_DEVICE void multiply_keys(const std::byte* tile_keys) {
    const int lane = t.lane(), key_chunk = (lane / 8 % 2 ^ lane % 8) * 16;
    const std::byte* const keys = tile_keys + (lane / 16 * 8 + lane % 8) * K::kRowBytes;
#pragma unroll
    for (int n = 0; n < 2 * kPairs; ++n)
#pragma unroll
      for (int i = 0; i < 4; ++i) scores[n][i] = 0.0f;
#pragma unroll
    for (int s = 0; s < kSteps; ++s) {
      uint32_t a[4];
      if constexpr (K::kSharedQueries) {
        const Chunk words = shared_queries[s * 32];
#pragma unroll
        for (int i = 0; i < 4; ++i) a[i] = words.words[i];
      } else {
#pragma unroll
        for (int i = 0; i < 4; ++i) a[i] = queries[s][i];
      }
#pragma unroll
      for (int n = 0; n < kPairs; ++n) {
        uint32_t b[4];
        t.load_matrices(b, keys + (key_chunk ^ s % 4 * 32) + s / 4 * 128 + n * 16 * K::kRowBytes);
        const uint32_t low[2] = {b[0], b[1]}, high[2] = {b[2], b[3]};
        Keys::mma(t, scores[2 * n], a, low);
        Keys::mma(t, scores[2 * n + 1], a, high);
      }
    }
  }
  // Online softmax: turns scores into weights and rescales the sums to the new reference. edge:
  // some rows do not see the whole tile. scales: of the tile's keys and values, if it has any.
  PENSTOCK_DEVICE void weigh(int tile, bool edge, const float* scales) {
    float now[2] = {highest[0], highest[1]};
#pragma unroll
    for (int n = 0; n < 2 * kPairs; ++n) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const int r = i >> 1, in_tile = 8 * n + 2 * q4 + (i & 1), index = tile + in_tile;
        if constexpr (K::kScaled) scores[n][i] *= scales[in_tile];
        float score = scoring.score(scores[n][i], units[r]);
        if (scoring.sloped) score -= slope[r] * fabsf(static_cast<float>(index - rows[r].position));
        if (edge && (index < rows[r].first || index >= rows[r].end)) score = kNothing;
        scores[n][i] = score;
        now[r] = fmaxf(now[r], score);
      }
    }
    float reference[2], factor[2];
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      now[r] = fmaxf(now[r], t.shuffle_xor(now[r], 1));
      now[r] = fmaxf(now[r], t.shuffle_xor(now[r], 2));
      reference[r] = now[r] == kNothing ? 0.0f : now[r];
      factor[r] = exp2_near(highest[r] - reference[r]);
      highest[r] = now[r];
      total[r] *= factor[r];
    }
#pragma unroll
    for (int n = 0; n < 2 * kPairs; ++n) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        scores[n][i] = exp2_near(scores[n][i] - reference[i >> 1]);
        total[i >> 1] += scores[n][i];
      }
    }
#pragma unroll
    for (int n = 0; n < 2 * kSteps; ++n)
#pragma unroll
      for (int i = 0; i < 4; ++i) sums[n][i] *= factor[i >> 1];
  }
  // The weights of tokens 8 n + 2 q4 and + 1 for row g, or g + 8 (r = 1).
  PENSTOCK_DEVICE uint32_t weights_of(int n, int r, const float* scales) const {
    float low = scores[n][2 * r], high = scores[n][2 * r + 1];
    if constexpr (K::kScaled) {
      const float* const own = scales + K::kTokens + 8 * n + 2 * q4;
      low *= own[0], high *= own[1];
    }
    return OfValues::pair(low, high);
  }
  PENSTOCK_DEVICE void add_values(const std::byte* tile_values, const float* scales) {
    const int lane = t.lane(), value_chunk = (lane / 16 ^ lane % 8) * 16;
    const std::byte* const values = tile_values + lane % 16 * K::kRowBytes;
#pragma unroll
    for (int k = 0; k < kPairs; ++k) {
      const uint32_t a[4] = {weights_of(2 * k, 0, scales), weights_of(2 * k, 1, scales),
                             weights_of(2 * k + 1, 0, scales), weights_of(2 * k + 1, 1, scales)};
#pragma unroll
      for (int s = 0; s < kSteps; ++s) {
        uint32_t b[4];
        t.load_transposed(
            b, values + (value_chunk ^ s % 4 * 32) + s / 4 * 128 + k * 16 * K::kRowBytes);
        const uint32_t low[2] = {b[0], b[1]}, high[2] = {b[2], b[3]};
        OfValues::mma(t, sums[2 * s], a, low);
        OfValues::mma(t, sums[2 * s + 1], a, high);
      }
    }
  }
  PENSTOCK_DEVICE void write(int r, const TileRow& row) {
    total[r] += t.shuffle_xor(total[r], 1);
    total[r] += t.shuffle_xor(total[r], 2);
    if (row.token < 0) return;
    const float last = 1.0f / (total[r] + sink_of(of.sinks, row.head, highest[r]));
    float* const to = of.out.row(row.token) + row.head * dim + 2 * q4;
#pragma unroll
    for (int n = 0; n < 2 * kSteps; ++n) {
      if (8 * n >= dim) continue;
      to[8 * n] = sums[n][2 * r] * last, to[8 * n + 1] = sums[n][2 * r + 1] * last;
    }
  }
};

}  // namespace

template <int kDim, KvCode kCode>
PENSTOCK_BODY void FlashTiles<kDim, kCode>::operator()(const Thread& t) const {
  constexpr int kSteps = kDim / 16;
  const int lane = t.lane(), g = lane / 4;
  const FlashBlock block(t, *this);
  const int first_head = block.first_head, n_heads = block.n_heads, first_token = block.first_token,
            past = block.past;
  block.clear_nobodys(t, *this);
  if (past <= first_token) return;
  const Scoring scoring(*this);
  std::byte* const tiles = t.shared;
  auto* const shared_queries = t.shared_as<Chunk>(2 * kTileBytes) + (t.warp() * kSteps * 32 + lane);

  for (int sequence = batch->sequences[first_token]; sequence <= batch->sequences[past - 1];
       ++sequence) {
    if (!block.has(*batch, sequence)) continue;
    const FlashBlock::Seen seen = block.seen(*this, sequence);
    const int from = seen.first, end = seen.end, begin = from / kTokens * kTokens;
    const TokenPlace place(*this, sequence);

    const TileRow rows[2] = {
        row_of(*this, t.warp() * 16 + g, first_token, first_head, n_heads, sequence),
        row_of(*this, t.warp() * 16 + g + 8, first_token, first_head, n_heads, sequence)};
    // Tokens that at least one of the warp's rows sees, and tokens that all of them see.
    const int any_from = -warp_max(t, -least(rows[0].first, rows[1].first));
    const int any_end = warp_max(t, most(rows[0].end, rows[1].end));
    const int all_from = warp_max(t, most(rows[0].first, rows[1].first));
    const int all_end = -warp_max(t, -least(rows[0].end, rows[1].end));

    const auto scales_of = [&](int which) {
      return t.shared_as<float>(kScalesAt) + which * 2 * kTokens;
    };
    const auto bring = [&](int tile, int which) {
      std::byte* const to = tiles + which * kTileBytes;
      if constexpr (kScaled) {
        widen_tile<FlashTiles, kCode>(t, *this, place, block.kv_head, tile, from, end, to,
                                      scales_of(which));
      } else {
        bring_tile(t, *this, place, block.kv_head, tile, from, end, to);
      }
    };
    t.sync();
    bring(begin, 0);
    t.end_copies();

    WarpRows<FlashTiles, kDim, kCode> warp(t, *this, scoring, rows, shared_queries);
    int which = 0;
    for (int tile = begin; tile < end; tile += kTokens, which ^= 1) {
      if (tile + kTokens < end) bring(tile + kTokens, which ^ 1);
      t.end_copies();
      t.template wait_for_copies<1>();
      t.sync();
      if (tile < any_end && tile + kTokens > any_from) {
        warp.multiply_keys(tiles + which * kTileBytes);
        warp.weigh(tile, tile < all_from || tile + kTokens > all_end, scales_of(which));
        warp.add_values(tiles + which * kTileBytes + kPartBytes, scales_of(which));
      }
      t.sync();  // all warps have read the tile, which is overwritten next
    }
#pragma unroll
    for (int r = 0; r < 2; ++r)
      warp.write(
          r, row_of(*this, t.warp() * 16 + g + 8 * r, first_token, first_head, n_heads, sequence));
  }
}

#define PENSTOCK_FLASH_TILES(DIM)                 \
  PENSTOCK_KERNEL(FlashTiles<DIM, KvCode::kF16>)  \
  PENSTOCK_KERNEL(FlashTiles<DIM, KvCode::kBF16>) \
  PENSTOCK_KERNEL(FlashTiles<DIM, KvCode::kI8>)   \
  PENSTOCK_KERNEL(FlashTiles<DIM, KvCode::kF8>)
PENSTOCK_FLASH_TILES(64)
PENSTOCK_FLASH_TILES(128)
PENSTOCK_FLASH_TILES(256)
PENSTOCK_KERNEL(FlashTiles<64, KvCode::kI4>)
PENSTOCK_KERNEL(FlashTiles<128, KvCode::kI4>)

// --- FlashPieces.

namespace {

// The lower, or the upper, 16-bit elements of two words, as one word.
PENSTOCK_DEVICE uint32_t lower_two(uint32_t a, uint32_t b) { return (a & 0xffffu) | b << 16; }
PENSTOCK_DEVICE uint32_t upper_two(uint32_t a, uint32_t b) { return a >> 16 | (b & 0xffff0000u); }

// Returns 2^x exactly for an integer x; 0 below 2^-126. x is clamped to 127.
PENSTOCK_DEVICE float power_of_two(float x) {
  if (!(x >= -126.0f)) return 0.0f;
  return float_of_bits(static_cast<uint32_t>(static_cast<int>(fminf(x, 127.0f)) + 127) << 23);
}
PENSTOCK_DEVICE bool is_for_tiles(const BatchOnDevice& batch, int token) {
  return batch.tree_masks[token] == 0 && !is_of_few(batch, batch.sequences[token]);
}

// Keys and values of a warp's tokens, loaded from the cache directly to registers.
template <class K, int kDim>
struct SeenTokens {
  // numbers of runs of features: of 32 of keys, of 64 of values
  static constexpr int kSpans = kDim / 32, kWide = kDim / 64;
  static constexpr int kGroups = K::kTokens / 16;
  static constexpr bool kScaled = kIsScaled<K::kOf>;
  using Piece = CachedEight<K::kOf>;
  const TokenPlace& place;
  const OwnRows<K, kDim>& own;
  int kv_head, dim, first, end, g, q4;
  Piece keys[kGroups][kSpans][2], values[kGroups][kWide / K::kParts][4];
  // of tokens g and g + 8
  float key_scales[kScaled ? kGroups : 1][2], value_scales[kScaled ? kGroups : 1][2];

  PENSTOCK_DEVICE SeenTokens(const Thread& t, const TokenPlace& of_sequence,
                             const OwnRows<K, kDim>& rows, int head, int from, int to)
      : place(of_sequence),
        own(rows),
        kv_head(head),
        dim(of_sequence.layer.head_dim),
        first(from),
        end(to),
        g(t.lane() / 4),
        q4(t.lane() % 4) {}
  // Whether the cache holds the row: rows of the step's own tokens may be being written.
  PENSTOCK_DEVICE bool is_stored(int index) const { return !K::kStores || index < own.begin; }
  PENSTOCK_DEVICE void bring_keys(int begin) {
#pragma unroll
    for (int m = 0; m < kGroups; ++m) {
      const int index = begin + 16 * m;
      const bool there = index + 16 > first && index < end;
      const std::byte* const unit = there ? place.unit(index, kv_head) : nullptr;
#pragma unroll
      for (int s = 0; s < kSpans; ++s) {
#pragma unroll
        for (int r = 0; r < 2; ++r) {
          const bool has = there && is_stored(index + g + 8 * r) && 32 * s + 8 * q4 < dim;
          keys[m][s][r] =
              has ? eight_of<K::kOf>(place.layer, unit, kv_head, g + 8 * r, 32 * s + 8 * q4, false)
                  : Piece{};
        }
      }
      if constexpr (kScaled) bring_scales(index, false, key_scales[m]);
    }
  }
  PENSTOCK_DEVICE void bring_values(int begin, int part) {
#pragma unroll
    for (int m = 0; m < kGroups; ++m) {
      const int index = begin + 16 * m;
      const bool there = index + 16 > first && index < end;
      const std::byte* const unit = there ? place.unit(index, kv_head) : nullptr;
#pragma unroll
      for (int s = 0; s < kWide / K::kParts; ++s) {
#pragma unroll
        for (int r = 0; r < 4; ++r) {
          const int row = 2 * q4 + (r & 1) + 8 * (r >> 1);
          const int wide = part * (kWide / K::kParts) + s;
          const bool has =
              there && index + row < end && is_stored(index + row) && 64 * wide + 8 * g < dim;
          values[m][s][r] =
              has ? eight_of<K::kOf>(place.layer, unit, kv_head, row, 64 * wide + 8 * g, true)
                  : Piece{};
        }
      }
      if constexpr (kScaled) bring_scales(index, true, value_scales[m]);
    }
  }
  // Of the 16 tokens from `index` on; zeros for those that are not seen.
  PENSTOCK_DEVICE void bring_scales(int index, bool of_values, float (&to)[2]) const {
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      const int row = g + 8 * r;
      to[r] = index + row >= first && index + row < end
                  ? scale_of(place.layer, place.unit(index, kv_head), kv_head, row, of_values)
                  : 0.0f;
    }
  }
  PENSTOCK_DEVICE Chunk key(int m, int s, int r) const {
    if constexpr (kScaled)
      return Widened<K::kOf>::halves(keys[m][s][r]);
    else
      return keys[m][s][r];
  }
  PENSTOCK_DEVICE Chunk value(int m, int s, int r) const {
    if constexpr (kScaled)
      return Widened<K::kOf>::bf16s(values[m][s][r]);
    else
      return values[m][s][r];
  }
  // Whether the warp's tokens have some of the step, for which bring_keys() and bring_values() set
  // zeros.
  PENSTOCK_DEVICE bool has_own(int begin) const {
    return K::kStores && begin + K::kTokens > own.begin;
  }
  PENSTOCK_DEVICE void add_own_keys(int begin) {
    if constexpr (K::kStores) put_own_keys(begin);
  }
  PENSTOCK_DEVICE void add_own_values(int begin, int part) {
    if constexpr (K::kStores) put_own_values(begin, part);
  }

 private:
  PENSTOCK_DEVICE void put_own_keys(int begin) {
    if (!has_own(begin)) return;
#pragma unroll
    for (int m = 0; m < kGroups; ++m) {
#pragma unroll
      for (int r = 0; r < 2; ++r) {
        const int index = begin + 16 * m + g + 8 * r;
        if (index < own.begin || index >= end) continue;
        const Chunk* const row = own.keys + (index - own.begin) * own.kChunks;
#pragma unroll
        for (int s = 0; s < kSpans; ++s)
          if (32 * s + 8 * q4 < dim) keys[m][s][r] = row[4 * s + q4];
      }
    }
  }
  PENSTOCK_DEVICE void put_own_values(int begin, int part) {
    if (!has_own(begin)) return;
#pragma unroll
    for (int m = 0; m < kGroups; ++m) {
#pragma unroll
      for (int r = 0; r < 4; ++r) {
        const int index = begin + 16 * m + 2 * q4 + (r & 1) + 8 * (r >> 1);
        if (index < own.begin || index >= end) continue;
        const Chunk* const row = own.values + (index - own.begin) * own.kChunks;
#pragma unroll
        for (int s = 0; s < kWide / K::kParts; ++s) {
          const int wide = part * (kWide / K::kParts) + s;
          if (64 * wide + 8 * g < dim) values[m][s][r] = row[8 * wide + g];
        }
      }
    }
  }
};

// Splits the queries of head g into two 16-bit numbers each, in shared memory. units: factors of
// the products, for heads 2 q4 and 2 q4 + 1.
template <class K, int kDim, KvCode kCode>
PENSTOCK_DEVICE void split_queries(const Thread& t, const K& of, const Scoring& scoring,
                                   const float* heads, int stride, int n_heads, Chunk* queries,
                                   float (&units)[2]) {
  using Numbers = KeyNumbers<kCode>;
  constexpr int kSpans = kDim / 32;
  const int dim = of.layer.head_dim, lane = t.lane(), g = lane / 4, q4 = lane % 4;
  const auto* const from = reinterpret_cast<const Four*>(heads + g * stride + 8 * q4);
  const auto four_of = [&](int s, int e) {  // features from 32 s + 8 q4 + 4 e on
    return g < n_heads && 32 * s + 8 * q4 < dim ? from[8 * s + e] : Four{};
  };
  float largest = 0.0f;
#pragma unroll
  for (int n = 0; n < 2 * kSpans; ++n) {
    const Four four = four_of(n / 2, n % 2);
#pragma unroll
    for (int i = 0; i < 4; ++i) largest = fmaxf(largest, fabsf(four.values[i]));
  }
  largest = fmaxf(largest, t.shuffle_xor(largest, 1));
  largest = fmaxf(largest, t.shuffle_xor(largest, 2));
  const PowerOfTwo unit = unit_of(largest);
  for (int n = t.warp(); n < 2 * kSpans; n += K::kWarps) {
    const Four four = four_of(n / 2, n % 2);
    const SplitPair low = Numbers::split(four.values[0] * unit.down, four.values[1] * unit.down);
    const SplitPair high = Numbers::split(four.values[2] * unit.down, four.values[3] * unit.down);
    queries[n * 32] = {{low.hi, high.hi, low.lo, high.lo}};
  }
#pragma unroll
  for (int c = 0; c < 2; ++c) {
    units[c] = t.shuffle(unit.up, 4 * (2 * q4 + c)) * scoring.unit(of.scale);
  }
}

// A warp's partial attention over its tokens of a piece; heads are the columns of products.
template <class K, int kDim, KvCode kCode>
struct WarpPiece {
  using Keys = KeyNumbers<kCode>;
  using OfValues = ValueNumbers<kCode>;
  using Seen = SeenTokens<K, kDim>;
  static constexpr int kSpans = Seen::kSpans, kWide = Seen::kWide, kGroups = Seen::kGroups;
  const Thread& t;
  const K& of;
  const Scoring& scoring;
  Seen& seen;
  float to[kWide * 4][4], highest[2] = {kNothing, kNothing}, total[2] = {0.0f, 0.0f};
  float scores[kGroups][4], reference[2];

  PENSTOCK_DEVICE WarpPiece(const Thread& thread, const K& kernel, const Scoring& how, Seen& tokens)
      : t(thread), of(kernel), scoring(how), seen(tokens) {
#pragma unroll
    for (int n = 0; n < kWide * 4; ++n)
#pragma unroll
      for (int i = 0; i < 4; ++i) to[n][i] = 0.0f;
  }
  PENSTOCK_DEVICE void multiply_keys(int at, const Chunk* queries) {
    seen.add_own_keys(at);
#pragma unroll
    for (int m = 0; m < kGroups; ++m) {
      float parts[2][2][4];  // four independent accumulators, to hide latency
#pragma unroll
      for (int i = 0; i < 4; ++i)
        parts[0][0][i] = parts[0][1][i] = parts[1][0][i] = parts[1][1][i] = 0.0f;
#pragma unroll
      for (int s = 0; s < kSpans; ++s) {
        const Chunk keys[2] = {seen.key(m, s, 0), seen.key(m, s, 1)};
#pragma unroll
        for (int e = 0; e < 2; ++e) {
          const uint32_t a[4] = {keys[0].words[2 * e], keys[1].words[2 * e],
                                 keys[0].words[2 * e + 1], keys[1].words[2 * e + 1]};
          const Chunk query = queries[(2 * s + e) * 32];
          const uint32_t hi[2] = {query.words[0], query.words[1]},
                         lo[2] = {query.words[2], query.words[3]};
          Keys::mma(t, parts[e][0], a, hi);
          Keys::mma(t, parts[e][1], a, lo);
        }
      }
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        scores[m][i] = (parts[0][0][i] + parts[1][0][i]) + (parts[0][1][i] + parts[1][1][i]);
        if constexpr (Seen::kScaled) scores[m][i] *= seen.key_scales[m][i >> 1];
      }
    }
  }
  // Scores of tokens from `at` on. is_masked: the token belongs to a tree.
  PENSTOCK_DEVICE void score(int at, const float (&units)[2], int token, int first_head,
                             int n_heads, bool is_masked) {
    const int g = seen.g, q4 = seen.q4, first = seen.first, end = seen.end;
    const auto index_of = [&](int m, int i) { return at + 16 * m + g + 8 * (i >> 1); };
#pragma unroll
    for (int m = 0; m < kGroups; ++m) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const int index = index_of(m, i);
        const float score = scoring.score(scores[m][i], units[i & 1]);
        scores[m][i] = index >= first && index < end ? score : kNothing;
      }
    }
    if (scoring.sloped || is_masked) {
      const Sight sight = sight_of(of, token);
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const int head = least(2 * q4 + (i & 1), n_heads - 1);
        const float slope = scoring.sloped ? of.slopes[first_head + head] * kLog2E : 0.0f;
#pragma unroll
        for (int m = 0; m < kGroups; ++m) {
          const int index = index_of(m, i);
          if (!sight.sees(index)) {
            scores[m][i] = kNothing;
          } else if (scoring.sloped) {
            scores[m][i] -=
                slope * fabsf(static_cast<float>(sight.position_of(index) - sight.position));
          }
        }
      }
    }
  }
  // Sets the reference to the largest score, rounded up, and rescales the sums to it.
  PENSTOCK_DEVICE void refer() {
    float now[2] = {highest[0], highest[1]};
#pragma unroll
    for (int m = 0; m < kGroups; ++m)
#pragma unroll
      for (int i = 0; i < 4; ++i) now[i & 1] = fmaxf(now[i & 1], scores[m][i]);
    float factor[2];
#pragma unroll
    for (int c = 0; c < 2; ++c) {
#pragma unroll
      for (int mask = 4; mask < 32; mask *= 2) now[c] = fmaxf(now[c], t.shuffle_xor(now[c], mask));
      now[c] = ceilf(now[c]);
      reference[c] = now[c] == kNothing ? 0.0f : now[c];
      factor[c] = power_of_two(highest[c] - reference[c]);
      highest[c] = now[c];
      total[c] *= factor[c];
    }
#pragma unroll
    for (int n = 0; n < kWide * 4; ++n)
#pragma unroll
      for (int i = 0; i < 4; ++i) to[n][i] *= factor[i & 1];
  }
  PENSTOCK_DEVICE void add_values(int at) {
    seen.add_own_values(at, 0);
#pragma unroll
    for (int m = 0; m < kGroups; ++m) {
      SplitPair weights[2];  // of tokens g and g + 8
#pragma unroll
      for (int r = 0; r < 2; ++r) {
        const float low = exp2_near(scores[m][2 * r] - reference[0]);
        const float high = exp2_near(scores[m][2 * r + 1] - reference[1]);
        total[0] += low, total[1] += high;
        if constexpr (Seen::kScaled) {
          const float scale = seen.value_scales[m][r];
          weights[r] = OfValues::split(low * scale, high * scale);
        } else {
          weights[r] = OfValues::split(low, high);
        }
      }
      const uint32_t hi[2] = {t.transposed(weights[0].hi), t.transposed(weights[1].hi)};
      const uint32_t lo[2] = {t.transposed(weights[0].lo), t.transposed(weights[1].lo)};
#pragma unroll
      for (int s = 0; s < kWide; ++s) {
        if (K::kParts > 1 && s == kWide / K::kParts)
          seen.bring_values(at, 1), seen.add_own_values(at, 1);
        const int at_part = s % (kWide / K::kParts);
        const Chunk v[4] = {seen.value(m, at_part, 0), seen.value(m, at_part, 1),
                            seen.value(m, at_part, 2), seen.value(m, at_part, 3)};
#pragma unroll
        for (int w = 0; w < 4; ++w) {
          const uint32_t a[4] = {
              lower_two(v[0].words[w], v[1].words[w]), upper_two(v[0].words[w], v[1].words[w]),
              lower_two(v[2].words[w], v[3].words[w]), upper_two(v[2].words[w], v[3].words[w])};
          OfValues::mma(t, to[4 * s + w], a, hi);
          OfValues::mma(t, to[4 * s + w], a, lo);
        }
      }
    }
  }
};

// Shared memory of a block: the results of its warps for a piece, and of all pieces so far.
template <class K, int kDim>
struct PieceMemory {
  float *part_sums, *part_most, *part_total;  // [warp][head][kDim], [warp][head]
  float *joined, *joined_most, *joined_total, *factors;
  float* of_piece;  // [head][dim + 2] for FlashJoin; null: pieces are joined in the block
  int dim, n_heads;

  PENSTOCK_DEVICE PieceMemory(const Thread& t, float* to, int n_features, int heads)
      : of_piece(to), dim(n_features), n_heads(heads) {
    part_sums = t.shared_as<float>();
    part_most = part_sums + K::kWarps * K::kHeads * kDim;
    part_total = part_most + K::kWarps * K::kHeads;
    joined = part_total + K::kWarps * K::kHeads;
    joined_most = joined + K::kHeads * kDim, joined_total = joined_most + K::kHeads;
    factors = joined_total + K::kHeads;
    for (int i = t.index; i < K::kHeads * kDim; i += K::kThreads) joined[i] = 0.0f;
    if (t.index < K::kHeads) joined_most[t.index] = kNothing, joined_total[t.index] = 0.0f;
  }
  template <class Warp>
  PENSTOCK_DEVICE void keep(const Thread& t, Warp& warp) {
    const int g = t.lane() / 4, q4 = t.lane() % 4;
#pragma unroll
    for (int c = 0; c < 2; ++c) {
#pragma unroll
      for (int mask = 4; mask < 32; mask *= 2) warp.total[c] += t.shuffle_xor(warp.total[c], mask);
      const int head = t.warp() * K::kHeads + 2 * q4 + c;
      if (g == 0) part_most[head] = warp.highest[c], part_total[head] = warp.total[c];
#pragma unroll
      for (int s = 0; s < kDim / 64; ++s) {
#pragma unroll
        for (int w = 0; w < 4; ++w) {
          // Features 8 g + 2 w and 8 g + 2 w + 1 of the run of 64.
          float* const at = part_sums + head * kDim + 64 * s + 8 * g + 2 * w;
          at[0] = warp.to[4 * s + w][c], at[1] = warp.to[4 * s + w][2 + c];
        }
      }
    }
  }
  // Adds the results of the warps, and then adds the piece to the earlier ones.
  PENSTOCK_DEVICE void join(const Thread& t) {
    t.sync();
    // factors of the warps' sums, and of the sums of earlier pieces
    if (t.index < K::kHeads) {
      const int head = t.index;
      float reference = kNothing, weight = 0.0f;
      for (int w = 0; w < K::kWarps; ++w)
        reference = fmaxf(reference, part_most[w * K::kHeads + head]);
      for (int w = 0; w < K::kWarps; ++w) {
        const float factor = reference == kNothing
                                 ? 0.0f
                                 : power_of_two(part_most[w * K::kHeads + head] - reference);
        weight = fmaf(part_total[w * K::kHeads + head], factor, weight);
        part_most[w * K::kHeads + head] = factor;
      }
      if (of_piece != nullptr) {
        if (head < n_heads)
          of_piece[head * (dim + 2) + dim] = reference,
                                      of_piece[head * (dim + 2) + dim + 1] = weight;
      } else {
        const float now = fmaxf(joined_most[head], reference);
        const float before = reference == kNothing ? 1.0f : power_of_two(joined_most[head] - now);
        const float here = reference == kNothing ? 0.0f : power_of_two(reference - now);
        joined_total[head] = fmaf(weight, here, joined_total[head] * before),
        joined_most[head] = now;
        factors[head] = before, factors[K::kHeads + head] = here;
      }
    }
    t.sync();
#pragma unroll 2
    for (int i = t.index; i < K::kHeads * kDim; i += K::kThreads) {
      const int head = i / kDim, feature = i % kDim;
      if (head >= n_heads || feature >= dim) continue;
      float sum = 0.0f;
#pragma unroll
      for (int w = 0; w < K::kWarps; ++w)
        sum = fmaf(part_sums[(w * K::kHeads + head) * kDim + feature],
                   part_most[w * K::kHeads + head], sum);
      if (of_piece != nullptr) {
        of_piece[head * (dim + 2) + feature] = sum;
      } else {
        joined[i] = fmaf(sum, factors[K::kHeads + head], joined[i] * factors[head]);
      }
    }
  }
};

}  // namespace

template <int kDim, KvCode kCode, bool Stores>
PENSTOCK_BODY void FlashPieces<kDim, kCode, Stores>::operator()(const Thread& t) const {
  const int dim = layer.head_dim, lane = t.lane();
  const int tiles = (n_queries + kHeads - 1) / kHeads, kv_head = t.y / tiles;
  const int of_heads = t.y % tiles * kHeads, n_heads = least(kHeads, n_queries - of_heads);
  const int first_head = kv_head * n_queries + of_heads;

  int token = t.x;
  if (sums != nullptr) {
    if (t.x >= batch->n_pieces) return;
    token = batch->piece_tokens[t.x];
  } else if (token >= batch->n_tokens) {
    for (int i = t.index; i < n_heads * dim; i += kThreads)
      out.row(token)[first_head * dim + i] = 0.0f;
    return;
  }
  if (is_for_tiles(*batch, token)) return;
  // [first, end): tokens that the token sees; new_begin: the step's first token
  int first, end, sequence, new_begin;
  bool is_masked;
  {
    const Sight sight = sight_of(*this, token);
    first = sight.first, end = sight.end, sequence = sight.sequence, is_masked = sight.mask != 0;
    new_begin = sight.tree_begin;
  }
  int piece = first / kPiece * kPiece, pieces_end = end;
  if (sums != nullptr) {
    piece = (t.x - batch->first_pieces[token]) * kPiece;
    pieces_end = piece + kPiece;
  }
  const TokenPlace place(*this, sequence);
  const Scoring scoring(*this);

  const bool has_own = kStores && own.k.cols > 0;
  const OwnRows<FlashPieces, kDim> own_rows(t, has_own ? new_begin : end);
  SeenTokens<FlashPieces, kDim> seen(t, place, own_rows, kv_head, first, end);
  // The warp's visible tokens of a piece: kTokens from `at` on, then every kStep tokens.
  constexpr int kStep = kTokens * kWarps;
  int at = 0, seen_end = 0;
  const auto begin_piece = [&] {
    const int begin = piece + t.warp() * kTokens;
    at = first < begin + kTokens ? begin : begin + (first - begin) / kStep * kStep;
    if (first >= at + kTokens) at += kStep;
    seen_end = least(end, piece + kPiece);
    if (kAhead && at < seen_end) seen.bring_keys(at), seen.bring_values(at, 0);
  };
  if (piece < pieces_end) begin_piece();

  auto* const queries =
      t.shared_as<Chunk>(kQueriesAt) + lane;  // [2 kDim / 32][lane]: hi, hi, lo, lo of 16 features
  float units[2];
  if constexpr (kStores) {
    // The new tokens that the block sees, and the token itself.
    const int past = most(end - new_begin, token - batch->seq_offsets[sequence] + 1);
    const int from = sums != nullptr ? most(0, piece - new_begin) : 0;
    const int to =
        !has_own ? from : most(from, sums != nullptr ? least(past, pieces_end - new_begin) : past);
    auto* const rotated = t.shared_as<float>();  // aliases the memory of sums
    bring_own<FlashPieces, kDim, kCode>(t, *this, own_rows, token, kv_head, first_head, n_heads,
                                        from, to, of_heads == 0, rotated, rotated + kHeads * kDim);
    split_queries<FlashPieces, kDim, kCode>(t, *this, scoring, rotated, kDim, n_heads, queries,
                                            units);
  } else {
    split_queries<FlashPieces, kDim, kCode>(t, *this, scoring, q.row(token) + first_head * dim, dim,
                                            n_heads, queries, units);
  }
  float* const of_piece =
      sums != nullptr ? sums + (static_cast<int64_t>(t.x) * (q.cols / dim) + first_head) * (dim + 2)
                      : nullptr;
  PieceMemory<FlashPieces, kDim> memory(t, of_piece, dim, n_heads);
  t.sync();

  for (; piece < pieces_end; piece += kPiece) {
    WarpPiece<FlashPieces, kDim, kCode> warp(t, *this, scoring, seen);
#pragma unroll 1
    for (; at < seen_end; at += kStep) {
      const bool more = kAhead && at + kStep < seen_end;
      if (!kAhead) seen.bring_keys(at);
      t.sync_warp();  // keeps the compiler from holding queries in registers
      warp.multiply_keys(at, queries);
      if (more) seen.bring_keys(at + kStep);
      if (!kAhead) seen.bring_values(at, 0);
      warp.score(at, units, token, first_head, n_heads, is_masked);
      warp.refer();
      warp.add_values(at);
      if (more) seen.bring_values(at + kStep, 0);
    }
    memory.keep(t, warp);
    memory.join(t);
    if (sums != nullptr) return;
    t.sync();
    if (piece + kPiece < pieces_end) {
      piece += kPiece;
      begin_piece();
      piece -= kPiece;
    }
  }
#pragma unroll 2
  for (int i = t.index; i < kHeads * kDim; i += kThreads) {
    const int head = i / kDim, feature = i % kDim;
    if (head >= n_heads || feature >= dim) continue;
    const float last = 1.0f / (memory.joined_total[head] +
                               sink_of(sinks, first_head + head, memory.joined_most[head]));
    out.row(token)[(first_head + head) * dim + feature] = memory.joined[i] * last;
  }
}
#define PENSTOCK_FLASH_PIECES(DIM)                      \
  PENSTOCK_KERNEL(FlashPieces<DIM, KvCode::kF16>)       \
  PENSTOCK_KERNEL(FlashPieces<DIM, KvCode::kBF16>)      \
  PENSTOCK_KERNEL(FlashPieces<DIM, KvCode::kI8>)        \
  PENSTOCK_KERNEL(FlashPieces<DIM, KvCode::kF8>)        \
  PENSTOCK_KERNEL(FlashPieces<DIM, KvCode::kF16, true>) \
  PENSTOCK_KERNEL(FlashPieces<DIM, KvCode::kBF16, true>)
PENSTOCK_FLASH_PIECES(64)
PENSTOCK_FLASH_PIECES(128)
PENSTOCK_FLASH_PIECES(256)
PENSTOCK_KERNEL(FlashPieces<64, KvCode::kI4>)
PENSTOCK_KERNEL(FlashPieces<128, KvCode::kI4>)

PENSTOCK_BODY void FlashJoin::operator()(const Thread& t) const {
  const int dim = layer.head_dim, n_heads = q.cols / dim, head = t.y;
  float* const to = out.row(t.x) + head * dim;
  if (t.x >= batch->n_tokens) {
    for (int i = t.index; i < dim; i += kThreads) to[i] = 0.0f;
    return;
  }
  if (is_for_tiles(*batch, t.x)) return;
  const int first = batch->first_pieces[t.x], n = pieces_of(*batch, t.x);
  const int64_t stride = static_cast<int64_t>(n_heads) * (dim + 2);
  const float* const from = sums + first * stride + static_cast<int64_t>(head) * (dim + 2);
  float* const factors = t.shared_as<float>(64);
  float* const totals = factors + most_pieces;
  float reference = kNothing;
  for (int i = t.index; i < n; i += kThreads) {
    factors[i] = from[i * stride + dim], totals[i] = from[i * stride + dim + 1];
    reference = fmaxf(reference, factors[i]);
  }
  reference = block_max<kThreads>(t, reference, t.shared_as<float>());
  for (int i = t.index; i < n; i += kThreads) factors[i] = power_of_two(factors[i] - reference);
  t.sync();
  float total = 0.0f;
  for (int i = 0; i < n; ++i) total = fmaf(totals[i], factors[i], total);
  const float last = 1.0f / (total + sink_of(sinks, head, reference));
  for (int d = t.index; d < dim; d += kThreads) {
    float sum = 0.0f;
#pragma unroll 8
    for (int i = 0; i < n; ++i) sum = fmaf(from[i * stride + d], factors[i], sum);
    to[d] = sum * last;
  }
}
PENSTOCK_KERNEL(FlashJoin)

}  // namespace penstock::cuda
