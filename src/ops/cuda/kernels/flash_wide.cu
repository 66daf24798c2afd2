#include "ops/cuda/kernels/flash_wide.h"

#include "ops/cuda/kernels/flash_parts.h"
#include "ops/cuda/kernels/warpgroup.h"

namespace penstock::cuda {
namespace {

// Copies keys or values of a sequence to shared memory, kTokens at a time, as consecutive
// tiles of 64 features. Tokens outside [from, end) and features beyond the head's become
// zeros.
template <class K, int kDim>
class TileBringer {
  static constexpr int kPieces = kDim / 8, kPerPass = K::kThreads / kPieces,
                       kUnit = KvLayerOnDevice::kUnitTokens;
  const Thread& t_;
  const TokenPlace& place_;
  int from_, end_, row_, piece_;
  bool has_;
  const std::byte* data_;  // the thread's 16 bytes of the layer's first token
  int tile_at_;            // offset within a tile of tokens

 public:
  PENSTOCK_DEVICE TileBringer(const Thread& t, const K& k, const TokenPlace& place, int kv_head,
                              int from, int end)
      : t_(t),
        place_(place),
        from_(from),
        end_(end),
        row_(t.index / kPieces),
        piece_(t.index % kPieces),
        has_(piece_ * 16 < k.layer.row_bytes),
        data_(k.layer.data + k.layer.row_at(0, kv_head) * k.layer.row_bytes +
              (has_ ? piece_ * 16 : 0)),
        tile_at_(piece_ / 8 * (K::kTokens * kTileRowBytes)) {}

  // For the tile of tokens from `begin` on: lane u returns the layer's unit with tokens 16 u to 16
  // u + 15 of it, clamped to units that the sequence has.
  PENSTOCK_DEVICE int units(int begin) const {
    const int index = begin + kUnit * (t_.lane() % (K::kTokens / kUnit));
    return place_.unit_at(most(least(index, (end_ - 1) / kUnit * kUnit), from_ / kUnit * kUnit));
  }
  // part_at: offset of keys, or of values, in a unit.
  PENSTOCK_DEVICE void bring(int units, int64_t part_at, int begin, std::byte* to) const {
    const std::byte* const part = data_ + part_at;
#pragma unroll
    for (int pass = 0; pass < K::kTokens / kPerPass; ++pass) {
      const int row = pass * kPerPass + row_;
      const std::byte* const at = part + t_.shuffle(units, row / kUnit) * place_.layer.unit_bytes +
                                  row % kUnit * place_.layer.row_bytes;
      const bool there = has_ && begin + row >= from_ && begin + row < end_;
      t_.copy_ahead(to + tile_at_ + tile_piece(row, piece_ % 8), at, there);
    }
  }
};

// A warp's 16 query rows, of which a lane holds g and g + 8: accumulators over the tokens so far.
template <class K, int kDim, KvCode kCode>
struct GroupRows {
  using Numbers = Halves<kCode>;
  static constexpr TileNumbers kNumbers = Numbers::kF16 ? TileNumbers::kF16 : TileNumbers::kBF16;
  static constexpr int kPairs = K::kTokens / 16, kScores = K::kTokens / 2, kSums = kDim / 2;
  const Thread& t;
  const std::byte* queries;  // rows of the warp group in the first tile
  int first[2], end[2];      // tokens that the rows see
  float units[2];            // factors from products to scores in powers of two
  float highest[2] = {kNothing, kNothing}, total[2] = {0.0f, 0.0f};
  float sums[kSums], scores[kScores];
  uint32_t weights[kPairs][4];

  PENSTOCK_DEVICE explicit GroupRows(const Thread& thread) : t(thread) {
#pragma unroll
    for (float& sum : sums) sum = 0.0f;
  }

  // Rounds queries to the cache's type, into tiles in shared memory.
  PENSTOCK_DEVICE void round_queries(const K& of, const TileRow (&rows)[2], std::byte* tiles) {
    const int dim = of.layer.head_dim, q4 = t.lane() % 4, row = t.warp() * 16 + t.lane() / 4;
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      first[r] = rows[r].first, end[r] = rows[r].end;
      float largest = 0.0f;
      const float* const from = rows[r].in(of.q, dim);
      for (int i = 2 * q4; i < dim && from != nullptr; i += 8)
        largest = fmaxf(largest, fmaxf(fabsf(from[i]), fabsf(from[i + 1])));
      largest = fmaxf(largest, t.shuffle_xor(largest, 1));
      largest = fmaxf(largest, t.shuffle_xor(largest, 2));
      const PowerOfTwo unit = unit_of(largest);
      units[r] = unit.up * of.scale * kLog2E;
#pragma unroll
      for (int piece = 0; piece < kDim / 8; ++piece) {
        const int at = 8 * piece + 2 * q4;
        const bool has = from != nullptr && at < dim;
        std::byte* const tile = tiles + piece / 8 * (K::kRows * kTileRowBytes);
        *reinterpret_cast<uint32_t*>(tile + tile_piece(row + 8 * r, piece % 8) + 4 * q4) =
            has ? Numbers::pair(from[at] * unit.down, from[at + 1] * unit.down) : 0u;
      }
    }
    queries = tiles + t.shuffle(t.warp(), 0) / 4 * (64 * kTileRowBytes);
  }

  PENSTOCK_DEVICE void multiply_keys(const std::byte* keys) {
#pragma unroll
    for (int s = 0; s < kDim / 16; ++s)
      wgmma<K::kTokens, kNumbers>(t, scores, queries + s / 4 * (K::kRows * kTileRowBytes),
                                  keys + s / 4 * (K::kTokens * kTileRowBytes), s % 4, s > 0);
    end_wgmma();
  }
  PENSTOCK_DEVICE void add_values(const std::byte* values) {
#pragma unroll
    for (int k = 0; k < kPairs; ++k)
      wgmma_across<kDim, kNumbers>(t, sums, weights[k], values, k, K::kTokens * kTileRowBytes);
    end_wgmma();
  }

  // Online softmax: turns scores into weights, not yet rounded. factor: what the sums must be
  // multiplied by. edge: some rows do not see the whole tile.
  PENSTOCK_DEVICE void weigh(int tile, bool edge, float (&factor)[2]) {
    const int q4 = t.lane() % 4;
    if (edge) {
#pragma unroll
      for (int n = 0; n < kScores; ++n) {
        const int r = n >> 1 & 1, index = tile + 8 * (n / 4) + 2 * q4 + (n & 1);
        if (index < first[r] || index >= end[r]) scores[n] = kNothing;
      }
    }
    float now[2] = {highest[0], highest[1]}, reference[2];  // in units of products
#pragma unroll
    for (int n = 0; n < kScores; ++n) now[n >> 1 & 1] = fmaxf(now[n >> 1 & 1], scores[n]);
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      now[r] = fmaxf(now[r], t.shuffle_xor(now[r], 1));
      now[r] = fmaxf(now[r], t.shuffle_xor(now[r], 2));
      reference[r] = now[r] == kNothing ? 0.0f : now[r] * units[r];
      factor[r] = highest[r] == kNothing ? 0.0f : exp2_near(highest[r] * units[r] - reference[r]);
      highest[r] = now[r];
      total[r] *= factor[r];
    }
#pragma unroll
    for (int n = 0; n < kScores; ++n) {
      const int r = n >> 1 & 1;
      scores[n] = exp2_near(fmaf(scores[n], units[r], -reference[r]));
      total[r] += scores[n];
    }
  }
  // Rounds the weights. REQUIRES: products that read the earlier weights are complete.
  PENSTOCK_DEVICE void round_weights() {
#pragma unroll
    for (int k = 0; k < kPairs; ++k)
#pragma unroll
      for (int i = 0; i < 4; ++i)
        weights[k][i] = Numbers::pair(scores[8 * k + 2 * i], scores[8 * k + 2 * i + 1]);
  }
  PENSTOCK_DEVICE void scale_sums(const float (&factor)[2]) {
#pragma unroll
    for (int n = 0; n < kSums; ++n) sums[n] *= factor[n >> 1 & 1];
  }
  PENSTOCK_DEVICE void write(const K& of, int r, const TileRow& row) {
    const int dim = of.layer.head_dim;
    total[r] += t.shuffle_xor(total[r], 1);
    total[r] += t.shuffle_xor(total[r], 2);
    if (row.token < 0) return;
    const float reference = highest[r] * units[r];
    const float last = 1.0f / (total[r] + sink_of(of.sinks, row.head, reference));
    float* const to = of.out.row(row.token) + row.head * dim + 2 * (t.lane() % 4);
#pragma unroll
    for (int n = 0; n < kDim / 8; ++n) {
      if (8 * n >= dim) continue;
      to[8 * n] = sums[4 * n + 2 * r] * last, to[8 * n + 1] = sums[4 * n + 2 * r + 1] * last;
    }
  }
};

}  // namespace

template <int kDim, KvCode kCode>
PENSTOCK_BODY void FlashWide<kDim, kCode>::operator()(const Thread& t) const {
#if defined(__CUDA_ARCH__) && !defined(PENSTOCK_WGMMA)
  return;  // launched only for small blocks, which fit without wgmma
#endif
  const int g = t.lane() / 4;
  const FlashBlock block(t, *this);
  const auto [kv_head, first_head, n_heads, first_token, past] = block;
  block.clear_nobodys(t, *this);
  if (past <= first_token) return;
  std::byte* const query_tiles = first_tile(t);
  std::byte* const keys = query_tiles + kQueryBytes;
  std::byte* const values = keys + 2 * kPartBytes;

  for (int sequence = batch->sequences[first_token]; sequence <= batch->sequences[past - 1];
       ++sequence) {
    if (!block.has(*batch, sequence)) continue;
    const auto [from, end] = block.seen(*this, sequence);
    const int begin = from / kTokens * kTokens;
    const TokenPlace place(*this, sequence);
    const TileBringer<FlashWide, kDim> bringer(t, *this, place, kv_head, from, end);
    const auto part_of = [&](std::byte* parts, int tile) {
      return parts + (tile - begin) / kTokens % 2 * kPartBytes;
    };

    t.sync();
    int units = bringer.units(begin), next_units = bringer.units(begin + kTokens);
    bringer.bring(units, 0, begin, keys);
    t.end_copies();
    GroupRows<FlashWide, kDim, kCode> rows(t);
    int all_from, all_end;  // tokens that all rows of the warp see
    {
      const TileRow own[2] = {
          row_of(*this, t.warp() * 16 + g, first_token, first_head, n_heads, sequence),
          row_of(*this, t.warp() * 16 + g + 8, first_token, first_head, n_heads, sequence)};
      all_from = warp_max(t, most(own[0].first, own[1].first));
      all_end = -warp_max(t, -least(own[0].end, own[1].end));
      rows.round_queries(*this, own, query_tiles);
    }
    // The first tile: no product of values overlaps with it.
    t.template wait_for_copies<0>();
    show_wgmma();
    t.sync();
    bringer.bring(next_units, 0, begin + kTokens, keys + kPartBytes);
    bringer.bring(units, layer.values_at, begin, values);
    t.end_copies();
    float factor[2];
    begin_wgmma();
    rows.multiply_keys(part_of(keys, begin));
    wait_for_wgmma<0>();
    settle_wgmma(rows.scores);
    rows.weigh(begin, begin < all_from || begin + kTokens > all_end, factor);
    rows.round_weights();

    int tile = begin;
    for (; tile + kTokens < end; tile += kTokens) {
      const int next = tile + kTokens;
      t.template wait_for_copies<0>();
      show_wgmma();
      t.sync();  // next keys and current values have arrived; older tiles are free
      units = next_units, next_units = bringer.units(next + kTokens);
      bringer.bring(next_units, 0, next + kTokens, part_of(keys, tile));
      bringer.bring(units, layer.values_at, next, part_of(values, next));
      t.end_copies();
      begin_wgmma();
      rows.multiply_keys(part_of(keys, next));
      rows.add_values(part_of(values, tile));
      wait_for_wgmma<1>();
      settle_wgmma(rows.scores);
      rows.weigh(next, next < all_from || next + kTokens > all_end, factor);
      // computes weights while wgmma multiplies values
      hold_until_known(rows.total[0] + rows.total[1]);
      wait_for_wgmma<0>();
      settle_wgmma(rows.sums);
      rows.scale_sums(factor);
      rows.round_weights();
    }
    t.template wait_for_copies<0>();
    show_wgmma();
    t.sync();
    begin_wgmma();
    rows.add_values(part_of(values, tile));
    wait_for_wgmma<0>();
    settle_wgmma(rows.sums);
#pragma unroll
    for (int r = 0; r < 2; ++r)
      rows.write(
          *this, r,
          row_of(*this, t.warp() * 16 + g + 8 * r, first_token, first_head, n_heads, sequence));
  }
}

PENSTOCK_KERNEL(FlashWide<64, KvCode::kF16>)
PENSTOCK_KERNEL(FlashWide<64, KvCode::kBF16>)
PENSTOCK_KERNEL(FlashWide<128, KvCode::kF16>)
PENSTOCK_KERNEL(FlashWide<128, KvCode::kBF16>)
PENSTOCK_KERNEL(FlashWide<256, KvCode::kF16>)
PENSTOCK_KERNEL(FlashWide<256, KvCode::kBF16>)

}  // namespace penstock::cuda
