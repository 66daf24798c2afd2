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

// Whose tile a block has; of two that share tiles the first.
PENSTOCK_DEVICE const LayerProduct::Target& target_of(const LayerProduct& k, int x) {
  int index = 0;
  if (k.end != LayerProduct::End::kGate)
    while (index + 1 < k.n_targets && x >= k.targets[index + 1].first_tile) ++index;
  return k.targets[index];
}

// multiply(moments of the rows, levels of both, sums): the warp's part of a tile, of kGate of two, kSums apart.
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
  if (kTables && k.end == End::kGate) load_levels<kThreads>(t, k.targets[1].w, levels + kLevelBytes / 2);
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
    const float by = with_bias(sum_of_warps<1, kThreads>(sums + kSums, t.index), k.targets[1].bias, row);
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
  multiply_layer<true>(t, *this, [&](const RowMoments* moments, const uint16_t* levels, float* sums) {
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

// A tile of those that a block takes one after the other; of two that share tiles first the first weight's.
template <int kTokens>
struct StreamTile {
  const StreamProduct<kTokens>& of;
  int x, which;

  PENSTOCK_DEVICE bool there() const { return x < of.n_tiles; }
  PENSTOCK_DEVICE void advance() {
    const bool second = of.end == LayerProduct::End::kGate && which == 0;
    which = second ? 1 : 0;
    if (!second) x += of.n_blocks;
  }
  PENSTOCK_DEVICE const LayerProduct::Target& target() const {
    return which == 1 ? of.targets[1] : target_of(of, x);
  }
  PENSTOCK_DEVICE const WeightOnDevice& weight() const { return target().w; }
  PENSTOCK_DEVICE int number() const { return x - target().first_tile; }
  PENSTOCK_DEVICE StreamCoding coding() const { return target().coding; }
};

// The rows that a block multiplies, and their norm.
struct StreamInputs {
  const LayerProduct& of;
  int first, most;

  PENSTOCK_DEVICE const float* row(int token) const { return of.x.row(first + token); }
  PENSTOCK_DEVICE int rows() const { return of.x.rows - first < most ? of.x.rows - first : most; }
};

// What becomes of the sums of a tile, by the thread of each.
template <int kTokens>
struct StreamEnd {
  const StreamProduct<kTokens>& of;
  int first_token;
  float first_sum = 0.0f;  // of the first of two weights

  PENSTOCK_DEVICE void take(const Thread& t, const StreamTile<kTokens>& tile, const float* sums) {
    using End = LayerProduct::End;
    if (t.index >= 16 * kTokens) return;
    const LayerProduct::Target& target = tile.target();
    const int row = tile.number() * 16 + t.index / kTokens, token = first_token + t.index % kTokens;
    if (row >= target.w.rows || token >= of.x.rows) return;
    float sum = sums[t.index];
    for (int warp = 1; warp < kStreamWarps; ++warp) sum += sums[warp * 16 * kTokens + t.index];
    sum = with_bias(sum, target.bias, row);
    if (of.end == End::kGate && tile.which == 0) {
      first_sum = sum;
      return;
    }
    float& to = of.end == End::kGate ? of.targets[0].out.row(token)[row] : target.out.row(token)[row];
    if (of.end == End::kStore) to = sum;
    if (of.end == End::kAdd) to += sum * of.factor;
    if (of.end == End::kGate) to = gated(of.f, first_sum, sum);
  }
};

// The tiles from `tile` on that have the coding C.
template <class C, int kTokens>
PENSTOCK_DEVICE void stream_tiles(const Thread& t, const StreamProduct<kTokens>& k, const StreamInputs& of,
                                  bool is_filled, StreamTile<kTokens>& tile, StreamEnd<kTokens>& end,
                                  int& turn) {
  using Kernel = StreamProduct<kTokens>;
  constexpr int kBytes = C::template kInputBytes<kTokens>, kStep = kStreamWarps * C::kItemCols;
  std::byte* const rings = t.shared_as<std::byte>(static_cast<size_t>(Kernel::kRingsAt));
  std::byte* const inputs = rings + kStreamWarps * kRingBytes + t.warp() * k.input_bytes;
  const auto* const moments = t.shared_as<RowMoments>(static_cast<size_t>(Kernel::kMomentsAt));
  const std::byte* const zeros = t.shared_as<std::byte>(static_cast<size_t>(Kernel::kZerosAt));
  ItemRing<C, StreamTile<kTokens>> ring(t, tile, rings + t.warp() * kRingBytes);
  ring.fill(t, !is_filled);
  const StreamCoding coding = tile.coding();
  const int at_once = k.input_bytes / kBytes * kStep;  // inputs, of which the warp has some items
  bool is_kept = false;
  float level = 0.0f;  // of what is kept
#pragma unroll 1
  do {
    const WeightOnDevice& w = tile.weight();
    const float unit = w.unit;
    const int cols = w.padded_cols;
    const bool splits = !is_kept || level != w.first_level;
    TileSums<kTokens> total;
#pragma unroll 1
    for (int from = t.warp() * C::kItemCols; from < cols; from += at_once) {
      const int to = cols < from + at_once ? cols : from + at_once;
      if (splits) {
        t.sync_warp();  // nobody reads those before any more
        std::byte* at = inputs;
#pragma unroll 1
        for (int i = from; i < to; i += kStep, at += kBytes)
          ItemInputs<C, kTokens>::store(t, of, of.of, moments, i, w.first_level, at);
      }
      const std::byte* at = inputs;
#pragma unroll 1
      for (int i = from; i < to; i += kStep, at += kBytes) {
        const std::byte* const item = ring.take(t);  // here the inputs are there, too
        multiply_item<C, kTokens>(t, item, at, unit, zeros, total);
      }
    }
    is_kept = at_once >= cols, level = w.first_level;
    float* const sums = t.shared_as<float>(static_cast<size_t>(Kernel::kSumsAt)) + turn * Kernel::kSums;
    total.store(t, sums + t.warp() * 16 * kTokens);
    t.sync();  // those before last have been read, for their readers have come here
    end.take(t, tile, sums);
    turn = 1 - turn;
    tile.advance();
  } while (tile.there() && tile.coding() == coding);
}

}  // namespace

// All of it in the kernel, large as it is: PENSTOCK_DEVICE.
template <int Tokens>
PENSTOCK_DEVICE void StreamProduct<Tokens>::prefetch(const Thread& t) const {
  std::byte* const rings = t.shared_as<std::byte>(static_cast<size_t>(kRingsAt));
  const StreamTile<Tokens> tile = {*this, t.x, 0};
  with_coding(tile.coding(), [&]<class C>() {
    ItemRing<C, StreamTile<Tokens>>(t, tile, rings + t.warp() * kRingBytes).fill(t, true);
  });
  if (has_norm && norm.weight != nullptr)
    for (int i = t.index * 32; i < x.cols; i += kThreads * 32)
      t.prefetch(reinterpret_cast<const std::byte*>(norm.weight + i));
}

template <int Tokens>
PENSTOCK_DEVICE void StreamProduct<Tokens>::operator()(const Thread& t) const {
  static_assert(kThreads == kStreamWarps * kWarp && kThreads == kNormLanes);
  StreamTile<Tokens> tile = {*this, t.x, 0};
  StreamEnd<Tokens> end = {*this, t.y * Tokens};
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
  bool is_filled = true;  // by prefetch()
#pragma unroll 1
  while (tile.there()) {
    with_coding(tile.coding(), [&]<class C>() { stream_tiles<C>(t, *this, of, is_filled, tile, end, turn); });
    is_filled = false;
    t.sync();  // before rings and inputs are others'
  }
}
PENSTOCK_KERNEL(StreamProduct<1>)
PENSTOCK_KERNEL(StreamProduct<4>)
PENSTOCK_KERNEL(StreamProduct<8>)

}  // namespace penstock::cuda
