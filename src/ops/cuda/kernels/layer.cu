#include "ops/cuda/kernels/layer.h"

#include "ops/cuda/kernels/activate.h"
#include "ops/cuda/kernels/row_norm.h"
#include "ops/cuda/kernels/tile_product.h"
#include "ops/cuda/kernels/weight_stream.h"

namespace penstock::cuda {
namespace {

struct NormedInputs {
  Rows x;
  const RowNorm& norm;
  const RowMoments* moments;
  PENSTOCK_DEVICE float at(int token, int i) const {
    return normed(norm, moments[token], token, x.cols, i, x.row(token)[i]);
  }
};

PENSTOCK_DEVICE float with_bias(float sum, const float* bias, int row) {
  return bias != nullptr ? sum + bias[row] : sum;
}

constexpr int kSums = LayerProduct::kSumBytes / static_cast<int>(sizeof(float));

// Returns the target of a block's tile; for kGate, whose two targets share tiles, the first.
PENSTOCK_DEVICE const LayerProduct::Target& target_of(const LayerProduct& k, int x) {
  int index = 0;
  if (k.end != LayerProduct::End::kGate)
    while (index + 1 < k.n_targets && x >= k.targets[index + 1].first_tile) ++index;
  return k.targets[index];
}

// Common body: moments, multiply(moments of the rows, levels, sums), sums of the warps, and `end`.
// multiply writes the warp's part of a tile to sums; for kGate of two tiles, kSums apart.
template <bool kTables, class Multiply>
PENSTOCK_DEVICE void multiply_layer(const Thread& t, const LayerProduct& k, Multiply multiply) {
  using End = LayerProduct::End;
  constexpr int kThreads = LayerProduct::kThreads;
  uint16_t* const levels = t.shared_as<uint16_t>();
  float* const sums = t.shared_as<float>(2 * kLevelBytes);
  RowMoments* const moments = t.shared_as<RowMoments>(LayerProduct::kMomentsAt);
  const LayerProduct::Target& target = target_of(k, t.x);
  const int tile = t.x - target.first_tile;
  if (kTables) load_levels<kThreads>(t, target.w, levels);
  if (kTables && k.end == End::kGate)
    load_levels<kThreads>(t, k.targets[1].w, levels + kLevelBytes / 2);
  for (int token = 0; k.has_norm && token < k.x.rows; ++token) {
    const RowMoments found = moments_of_row<kThreads>(t, k.norm, k.x.row(token), k.x.cols,
                                                      t.shared_as<float>(LayerProduct::kScratchAt));
    if (t.index == 0) moments[token] = found;
  }
  t.sync();
  multiply(moments, levels, sums);
  t.sync();
  const TilePlace place = place_of_sum(t.index);
  const int row = tile * 16 + place.row;
  if (row >= target.w.rows || place.token >= k.x.rows) return;
  const float sum = with_bias(sum_of_warps<1, kThreads>(sums, t.index), target.bias, row);
  float& to = target.out.row(place.token)[row];
  if (k.end == End::kStore) to = sum;
  if (k.end == End::kAdd) to += sum * k.factor;
  if (k.end == End::kGate) {
    const float by =
        with_bias(sum_of_warps<1, kThreads>(sums + kSums, t.index), k.targets[1].bias, row);
    to = gated(k.f, sum, by);
  }
}

}  // namespace

PENSTOCK_BODY void LayerProduct::prefetch(const Thread& t) const {
  const Target& target = target_of(*this, t.x);
  prefetch_tile<kThreads>(t, target.w, t.x - target.first_tile);
  if (end == End::kGate) prefetch_tile<kThreads>(t, targets[1].w, t.x);
}

PENSTOCK_BODY void LayerProduct::operator()(const Thread& t) const {
  const Target& target = target_of(*this, t.x);
  multiply_layer<true>(
      t, *this, [&](const RowMoments* moments, const uint16_t* levels, float* sums) {
        for (int i = 0; i < (end == End::kGate ? 2 : 1); ++i) {
          const WeightOnDevice& w = i == 0 ? target.w : targets[1].w;
          const uint16_t* const own = levels + i * kLevelBytes / 2;
          const int tile = t.x - target.first_tile;
          float total[1][4] = {};
          if (has_norm) {
            multiply_tile<kThreads>(t, w, NormedInputs{x, norm, moments}, own, tile, 0, total);
          } else {
            multiply_tile<kThreads>(t, w, PlainInputs{x}, own, tile, 0, total);
          }
          keep_sums(t, total, sums + i * kSums);
        }
      });
}
PENSTOCK_KERNEL(LayerProduct)

namespace {

// Iterates over the tiles of a block. For kGate, tiles of the two weights, which have one layout,
// alternate, the first weight's first.
template <class K>
struct StreamTile {
  const K& of;
  int x, which = 0;
  int target = 0, end = 0;  // index of the weight; end of the weight's tiles
  int n_units = 0;
  const std::byte* data = nullptr;
  int64_t step = 0, apart = 0;  // bytes to the block's next tile; to the second weight's tile

  PENSTOCK_DEVICE StreamTile(const K& k, int first) : of(k), x(first) {
    if (there()) find();
  }
  PENSTOCK_DEVICE bool there() const { return x < of.n_tiles; }
  PENSTOCK_DEVICE void advance() {
    if (of.end == LayerProduct::End::kGate) {
      which ^= 1;
      data += which == 1 ? apart : step - apart;
      if (which == 0) x += of.n_blocks;
      return;
    }
    x += of.n_blocks, data += step;
    if (x >= end && there()) find();
  }
  PENSTOCK_DEVICE const LayerProduct::Target& own() const { return of.targets[target + which]; }
  PENSTOCK_DEVICE int number() const { return x - own().first_tile; }
  PENSTOCK_DEVICE StreamCoding coding() const {
    if constexpr (K::kOne == K::kOther) return K::kOne;
    return own().coding;
  }
  PENSTOCK_DEVICE int row_bytes() const { return n_units * 128; }
  PENSTOCK_DEVICE static int warp(const Thread& t) { return t.warp(); }
  PENSTOCK_DEVICE static constexpr int n_warps() { return kStreamWarps; }

 private:
  PENSTOCK_DEVICE void find() {
    const bool gated = of.end == LayerProduct::End::kGate;
    while (!gated && target + 1 < of.n_targets && x >= of.targets[target + 1].first_tile) ++target;
    end = gated || target + 1 == of.n_targets ? of.n_tiles : of.targets[target + 1].first_tile;
    const WeightOnDevice& w = of.targets[target].w;
    const int64_t bytes = w.form == WeightForm::kCodes ? w.tile_bytes : int64_t{32} * w.padded_cols;
    n_units = w.n_units(), data = w.data + number() * bytes, step = of.n_blocks * bytes;
    if (gated)
      apart = reinterpret_cast<intptr_t>(of.targets[1].w.data) - reinterpret_cast<intptr_t>(w.data);
  }
};

// The rows that a block multiplies.
struct StreamInputs {
  const LayerProduct& of;
  int first, most;

  PENSTOCK_DEVICE const float* row(int token) const { return of.x.row(first + token); }
  PENSTOCK_DEVICE int rows() const { return of.x.rows - first < most ? of.x.rows - first : most; }
};

// Finishes the sums of a tile, one thread per element; the warps alternate from tile to tile.
template <class K>
struct StreamEnd {
  const K& of;
  int first_token;
  int taker = 0;           // the first of these threads
  float first_sum = 0.0f;  // kGate: the first weight's sum

  PENSTOCK_DEVICE void take(const Thread& t, const StreamTile<K>& tile, const float* sums) {
    using End = LayerProduct::End;
    constexpr int kTokens = K::kTokens;
    const int at = (t.index - taker) & (K::kThreads - 1);
    if (of.end != End::kGate || tile.which == 1) taker += kWarp;
    if (at >= 16 * kTokens) return;
    const LayerProduct::Target& target = tile.own();
    const int row = tile.number() * 16 + at / kTokens, token = first_token + at % kTokens;
    if (row >= target.w.rows || token >= of.x.rows) return;
    float sum = sums[at];
#pragma unroll
    for (int warp = 1; warp < kStreamWarps; ++warp) sum += sums[warp * 16 * kTokens + at];
    sum = with_bias(sum, target.bias, row);
    if (of.end == End::kGate && tile.which == 0) {
      first_sum = sum;
      return;
    }
    float& to =
        of.end == End::kGate ? of.targets[0].out.row(token)[row] : target.out.row(token)[row];
    if (of.end == End::kStore) to = sum;
    if (of.end == End::kAdd) to += sum * of.factor;
    if (of.end == End::kGate) to = gated(of.f, first_sum, sum);
  }
};

// Multiplies the tiles from `tile` on that have the coding C.
template <class C, class Kernel>
PENSTOCK_DEVICE void stream_tiles(const Thread& t, const Kernel& k, const StreamInputs& of,
                                  bool is_filled, StreamTile<Kernel>& tile, StreamEnd<Kernel>& end,
                                  int& turn) {
  constexpr int kTokens = Kernel::kTokens,
                kPairs = kTokens == 1 && Kernel::kOne == Kernel::kOther ? 2 : 1;
  constexpr int kBytes = C::template kInputBytes<kTokens>, kStep = kStreamWarps * C::kItemCols;
  std::byte* const rings = t.shared_as<std::byte>(static_cast<size_t>(Kernel::kRingsAt));
  std::byte* const inputs = rings + kStreamWarps * kRingBytes + t.warp() * k.input_bytes;
  const auto* const moments = t.shared_as<RowMoments>(static_cast<size_t>(Kernel::kMomentsAt));
  const std::byte* const zeros = t.shared_as<std::byte>(static_cast<size_t>(Kernel::kZerosAt));
  ItemRing<C, StreamTile<Kernel>> ring(t, tile, rings + t.warp() * kRingBytes);
  ring.fill(t, !is_filled);
  const StreamCoding coding = tile.coding();
  // inputs that fit shared memory; the warp has some of their items
  const int at_once = k.input_bytes / kBytes * kStep;
  bool is_kept = false;
  float level = 0.0f;  // first_level of the stored inputs
#pragma unroll 1
  do {
    const WeightOnDevice& w = tile.own().w;
    const float unit = w.unit;
    const int cols = w.padded_cols;
    const bool splits = !is_kept || level != w.first_level;
    TileSums<kTokens> total;
#pragma unroll 1
    for (int from = t.warp() * C::kItemCols; from < cols; from += at_once) {
      const int to = cols < from + at_once ? cols : from + at_once;
      if (splits) {
        t.sync_warp();  // all lanes have read the earlier inputs
        std::byte* at = inputs;
#pragma unroll 1
        for (int i = from; i < to; i += kStep, at += kBytes)
          ItemInputs<C, kTokens>::store(t, of, of.of, moments, i, w.first_level, at);
      }
      const std::byte* at = inputs;
#pragma unroll 1
      for (int i = from; i < to; i += kStep, at += kBytes) {
        const std::byte* const item = ring.take(t);  // syncs the warp: inputs are visible, too
        multiply_item<C, kTokens, kPairs>(t, item, at, unit, zeros, total);
      }
    }
    is_kept = at_once >= cols, level = w.first_level;
    float* const sums =
        t.shared_as<float>(static_cast<size_t>(Kernel::kSumsAt)) + turn * Kernel::kSums;
    total.store(t, sums + t.warp() * 16 * kTokens);
    t.sync();  // also: all have read the sums before last, which are overwritten next
    end.take(t, tile, sums);
    turn = 1 - turn;
    tile.advance();
  } while (tile.there() && tile.coding() == coding);
}

// Calls fn.operator()<C>() with the coding of the tile.
template <class K, class Fn>
PENSTOCK_DEVICE void with_coding_of(const StreamTile<K>& tile, Fn fn) {
  if (K::kOne == K::kOther || tile.coding() == K::kOne) {
    fn.template operator()<typename CodingOf<K::kOne>::Type>();
  } else {
    fn.template operator()<typename CodingOf<K::kOther>::Type>();
  }
}

}  // namespace

// Inlined into the kernel (PENSTOCK_DEVICE), since it shares the kernel's registers.
template <int Tokens, StreamCoding One, StreamCoding Other>
PENSTOCK_DEVICE void StreamProduct<Tokens, One, Other>::prefetch(const Thread& t) const {
  std::byte* const rings = t.shared_as<std::byte>(static_cast<size_t>(kRingsAt));
  const StreamTile<StreamProduct> tile(*this, t.x);
  with_coding_of(tile, [&]<class C>() {
    ItemRing<C, StreamTile<StreamProduct>>(t, tile, rings + t.warp() * kRingBytes).fill(t, true);
  });
  if (has_norm && norm.weight != nullptr)
    for (int i = t.index * 32; i < x.cols; i += kThreads * 32)
      t.prefetch(reinterpret_cast<const std::byte*>(norm.weight + i));
}

template <int Tokens, StreamCoding One, StreamCoding Other>
PENSTOCK_DEVICE void StreamProduct<Tokens, One, Other>::operator()(const Thread& t) const {
  static_assert(kThreads == kStreamWarps * kWarp && kThreads == kNormLanes);
  StreamTile<StreamProduct> tile(*this, t.x);
  StreamEnd<StreamProduct> end = {*this, t.y * Tokens};
  const StreamInputs of = {*this, end.first_token, Tokens};
  if (has_norm) {
    Rows own = x;
    own.data = x.row(of.first), own.rows = of.rows();
    moments_of_rows<Tokens>(t, norm, own, t.shared_as<float>(static_cast<size_t>(kScratchAt)),
                            t.shared_as<RowMoments>(static_cast<size_t>(kMomentsAt)));
  }
  if (t.index < 4) t.shared_as<uint32_t>(static_cast<size_t>(kZerosAt))[t.index] = 0;
  t.sync();
  int turn = 0;
  bool is_filled = true;  // rings are filled by prefetch()
#pragma unroll 1
  while (tile.there()) {
    with_coding_of(tile,
                   [&]<class C>() { stream_tiles<C>(t, *this, of, is_filled, tile, end, turn); });
    if (kOne == kOther) break;
    is_filled = false;
    t.sync();  // rings and inputs get another coding
  }
}

#define PENSTOCK_STREAMS(ONE, OTHER)                                        \
  PENSTOCK_KERNEL(StreamProduct<1, StreamCoding::ONE, StreamCoding::OTHER>) \
  PENSTOCK_KERNEL(StreamProduct<4, StreamCoding::ONE, StreamCoding::OTHER>) \
  PENSTOCK_KERNEL(StreamProduct<8, StreamCoding::ONE, StreamCoding::OTHER>)
PENSTOCK_STREAMS(kBF16, kBF16)
PENSTOCK_STREAMS(kHalf8, kHalf8)
PENSTOCK_STREAMS(kHalf4, kHalf4)
PENSTOCK_STREAMS(kWide4, kWide4)
PENSTOCK_STREAMS(kWide4Zeros, kWide4Zeros)
PENSTOCK_STREAMS(kSuper4, kSuper4)
PENSTOCK_STREAMS(kSuper5, kSuper5)
PENSTOCK_STREAMS(kSuper6, kSuper6)
PENSTOCK_STREAMS(kE2M1, kE2M1)
PENSTOCK_STREAMS(kSuper4, kSuper6)
PENSTOCK_STREAMS(kSuper5, kSuper6)

}  // namespace penstock::cuda
