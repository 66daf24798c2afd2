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

// The i-th weight of what a block multiplies.
template <bool kGates>
struct BlockWeights {
  const LayerProduct& of;
  const LayerProduct::Target& target;
  PENSTOCK_DEVICE const WeightOnDevice& operator()(int i) const {
    return kGates ? of.targets[i].w : target.w;
  }
};

}  // namespace

template <int Tokens, bool Gates>
PENSTOCK_BODY void StreamProduct<Tokens, Gates>::prefetch(const Thread& t) const {
  const Target& target = target_of(*this, t.x);
  const BlockWeights<Gates> weights = {*this, target};
  std::byte* const rings = t.shared_as<std::byte>(static_cast<size_t>(kRingsAt));
  with_coding(stream_coding(target.w), [&]<class C>() {
    UnitRing<C, kWeights>(t, weights, t.x - target.first_tile, rings).fill(t, true);
  });
}

template <int Tokens, bool Gates>
PENSTOCK_BODY void StreamProduct<Tokens, Gates>::operator()(const Thread& t) const {
  static_assert(kPairsBytes == (2 * Tokens + 1) * UnitInputs<Tokens>::kRowBytes &&
                UnitRing<OfBF16, kWeights>::kBytes == kRingBytes &&
                UnitRing<OfBF16, kWeights>::kWarps == kThreads / kWarp);
  const Target& target = target_of(*this, t.x);
  const BlockWeights<Gates> weights = {*this, target};
  std::byte* const rings = t.shared_as<std::byte>(static_cast<size_t>(kRingsAt));
  std::byte* const pairs = t.shared_as<std::byte>(static_cast<size_t>(kPairsAt + t.warp() * kPairsBytes));
  reinterpret_cast<Words<2>*>(pairs + 2 * Tokens * UnitInputs<Tokens>::kRowBytes)[t.lane()] = {};
  UnitInputs<Tokens> next;
  next.read(*this, t.warp() * 64 + 2 * t.lane());
  with_coding(stream_coding(target.w), [&]<class C>() {
    UnitRing<C, kWeights> ring(t, weights, t.x - target.first_tile, rings);
    ring.fill(t, false);  // by prefetch()
    multiply_layer<false>(t, *this, [&](const RowMoments* moments, const uint16_t*, float* sums) {
      float totals[kWeights][1][4] = {};
      stream_units<C, Tokens, kWeights>(t, *this, ring, weights, moments, pairs, next, totals);
      for (int i = 0; i < kWeights; ++i) keep_sums(t, totals[i], sums + i * kSums);
    });
  });
}
using StreamOne = StreamProduct<1, false>;
using StreamFew = StreamProduct<8, false>;
using StreamGateOne = StreamProduct<1, true>;
using StreamGateFew = StreamProduct<8, true>;
PENSTOCK_KERNEL(StreamOne)
PENSTOCK_KERNEL(StreamFew)
PENSTOCK_KERNEL(StreamGateOne)
PENSTOCK_KERNEL(StreamGateFew)

}  // namespace penstock::cuda
