#include "ops/cuda/kernels/layer.h"

#include "ops/cuda/kernels/activate.h"
#include "ops/cuda/kernels/row_norm.h"
#include "ops/cuda/kernels/tile_product.h"

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

// The sums of all warps of one tile.
PENSTOCK_DEVICE void take_product(const Thread& t, const LayerProduct& k, const WeightOnDevice& w,
                                  const RowMoments* moments, int tile, const uint16_t* levels, float* sums) {
  float total[1][4] = {};
  if (k.has_norm) {
    multiply_tile<LayerProduct::kThreads>(t, w, NormedInputs{k.x, k.norm, moments}, levels, tile, 0, total);
  } else {
    multiply_tile<LayerProduct::kThreads>(t, w, PlainInputs{k.x}, levels, tile, 0, total);
  }
  keep_sums(t, total, sums);
}

PENSTOCK_DEVICE float with_bias(float sum, const float* bias, int row) {
  return bias != nullptr ? sum + bias[row] : sum;
}

// Whose tile a block has; of two that share tiles the first.
PENSTOCK_DEVICE const LayerProduct::Target& target_of(const LayerProduct& k, int x) {
  int index = 0;
  if (k.end != LayerProduct::End::kGate)
    while (index + 1 < k.n_targets && x >= k.targets[index + 1].first_tile) ++index;
  return k.targets[index];
}

}  // namespace

PENSTOCK_BODY void LayerProduct::prefetch(const Thread& t) const {
  const Target& target = target_of(*this, t.x);
  prefetch_tile<kThreads>(t, target.w, t.x - target.first_tile);
  if (end == End::kGate) prefetch_tile<kThreads>(t, targets[1].w, t.x);
}

PENSTOCK_BODY void LayerProduct::operator()(const Thread& t) const {
  constexpr int kFloats = kSumBytes / static_cast<int>(sizeof(float));
  uint16_t* const levels = t.shared_as<uint16_t>();
  float* const sums = t.shared_as<float>(2 * kLevelBytes);
  RowMoments* const moments = t.shared_as<RowMoments>(kMomentsAt);
  const Target& target = target_of(*this, t.x);
  const int tile = t.x - target.first_tile;
  load_levels<kThreads>(t, target.w, levels);
  if (end == End::kGate) load_levels<kThreads>(t, targets[1].w, levels + kLevelBytes / 2);
  for (int token = 0; has_norm && token < x.rows; ++token) {
    const RowMoments found =
        moments_of_row<kThreads>(t, norm, x.row(token), x.cols, t.shared_as<float>(kScratchAt));
    if (t.index == 0) moments[token] = found;
  }
  t.sync();
  for (int i = 0; i < (end == End::kGate ? 2 : 1); ++i) {
    take_product(t, *this, i == 0 ? target.w : targets[1].w, moments, tile, levels + i * kLevelBytes / 2,
                 sums + i * kFloats);
  }
  t.sync();
  const TilePlace place = place_of_sum(t.index);
  const int row = tile * 16 + place.row;
  if (row >= target.w.rows || place.token >= x.rows) return;
  const float sum = with_bias(sum_of_warps<1, kThreads>(sums, t.index), target.bias, row);
  float& to = target.out.row(place.token)[row];
  if (end == End::kStore) to = sum;
  if (end == End::kAdd) to += sum * factor;
  if (end == End::kGate) {
    const float by = with_bias(sum_of_warps<1, kThreads>(sums + kFloats, t.index), targets[1].bias, row);
    to = gated(f, sum, by);
  }
}
PENSTOCK_KERNEL(LayerProduct)

}  // namespace penstock::cuda
