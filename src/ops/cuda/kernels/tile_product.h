// Parts of products by mma: 16 outputs (a tile) for some rows, computed by the warps of a block.
#pragma once
#include "ops/cuda/kernels/rows.h"
#include "ops/cuda/kernels/weight_element.h"

namespace penstock::cuda {

// Inputs of a product: x itself.
struct PlainInputs {
  Rows x;
  PENSTOCK_DEVICE float at(int token, int i) const { return x.row(token)[i]; }
};

inline constexpr int kLevelBytes = 512;  // size of a table of levels in shared memory

// Fills the table of BF16 levels by code. REQUIRES: called by all threads of a block.
template <int kThreads>
PENSTOCK_DEVICE void load_levels(const Thread& t, const WeightOnDevice& w, uint16_t* levels) {
  const int n = w.form == WeightForm::kCodes ? 1 << w.bits : 0;
  for (int code = t.index; code < n; code += kThreads) levels[code] = float_to_bf16(w.levels[code]);
}

// Returns inputs k and k + 1 of a row, in the order of the weight's columns; zeros for padding.
template <class Inputs>
PENSTOCK_DEVICE SplitPair input_pair(const WeightOnDevice& w, const Inputs& inputs, int token,
                                     int k) {
  if (token >= inputs.x.rows) return {0, 0};
  const int32_t* const order = w.input_order;
  const auto at = [&](int i) {
    return i < w.cols ? inputs.at(token, order != nullptr ? order[i] : i) : 0.0f;
  };
  return split_pair(at(k), at(k + 1));
}

// Returns the two codes of register i of step s of a lane, one in each half of the word.
PENSTOCK_DEVICE uint32_t code_pair(const std::byte* unit, int bits, int lane, int s, int i) {
  uint32_t codes = 0;
  for (int done = 0; done < bits;) {
    const int width = plane_bits(bits, done);
    const uint32_t mask = ((1u << width) - 1) * 0x10001u;
    const int word = width == 4 ? lane * 4 + s : width == 2 ? lane * 2 + s / 2 : lane;
    const int shift = width == 4 ? 4 * i : width == 2 ? 8 * (s % 2) + 2 * i : 4 * s + i;
    codes |= (load<uint32_t>(unit, word) >> shift & mask) << done;
    unit += width * WeightOnDevice::kTileRows * WeightOnDevice::kUnitCols / 8;
    done += width;
  }
  return codes;
}

// Loads the A fragment of 16 rows and step s of a unit. levels: BF16 by code.
PENSTOCK_DEVICE void load_weights(const WeightOnDevice& w, const uint16_t* levels, int tile,
                                  int unit, int s, int lane, uint32_t (&a)[4]) {
  for (int i = 0; i < 4; ++i) {
    if (w.form == WeightForm::kBF16) {
      const int row = tile * 16 + lane / 4 + 8 * (i & 1),
                k = unit * 64 + 16 * s + 8 * (i >> 1) + 2 * (lane % 4);
      a[i] = load<uint32_t>(w.data, (static_cast<int64_t>(row) * w.padded_cols + k) / 2);
    } else {
      const uint32_t codes = code_pair(w.unit_at(tile, unit), w.bits, lane, s, i);
      a[i] = levels[codes & 0xffffu] | static_cast<uint32_t>(levels[codes >> 16]) << 16;
    }
  }
}

// total += a tile of w times 8 TokenTiles rows from first_token on. Warps share units.
template <int kThreads, int TokenTiles, class Inputs>
PENSTOCK_DEVICE void multiply_tile(const Thread& t, const WeightOnDevice& w, const Inputs& x,
                                   const uint16_t* levels, int tile, int first_token,
                                   float (&total)[TokenTiles][4]) {
  const bool is_codes = w.form == WeightForm::kCodes, shifted = is_codes && (w.offsets || w.zeros);
  const int lane = t.lane(), g = lane / 4;
  const int steps = is_codes ? w.group / 16 : 4;  // steps per group
  const uint32_t ones[4] = {0x3f803f80u, 0x3f803f80u, 0x3f803f80u, 0x3f803f80u};
  for (int unit = t.warp(); unit < w.n_units(); unit += kThreads / kWarp) {
    for (int group = 0; group < 4 / steps; ++group) {
      float part[TokenTiles][4] = {}, inputs[TokenTiles][4] = {};
      for (int s = group * steps; s < (group + 1) * steps; ++s) {
        uint32_t a[4];
        load_weights(w, levels, tile, unit, s, lane, a);
        for (int n = 0; n < TokenTiles; ++n) {
          const int token = first_token + 8 * n + g, k = unit * 64 + 16 * s + 2 * (lane % 4);
          const SplitPair low = input_pair(w, x, token, k), high = input_pair(w, x, token, k + 8);
          const uint32_t lo[2] = {low.lo, high.lo}, hi[2] = {low.hi, high.hi};
          t.mma(part[n], a, lo);
          t.mma(part[n], a, hi);
          if (shifted) t.mma(inputs[n], ones, lo);
          if (shifted) t.mma(inputs[n], ones, hi);
        }
      }
      for (int half = 0; half < 2; ++half) {
        GroupScale of = {1.0f, 0.0f, 0.0f};
        if (is_codes) of = group_scale(w, tile, unit, g + 8 * half, group);
        const float offset = w.zeros ? -(of.scale * of.zero) : of.offset;
        for (int n = 0; n < TokenTiles; ++n)
          for (int j = 2 * half; j < 2 * half + 2; ++j)
            total[n][j] +=
                shifted ? of.scale * part[n][j] + offset * inputs[n][j] : of.scale * part[n][j];
      }
    }
  }
}

// Prefetches the beginning of a block's first tile.
template <int kThreads>
PENSTOCK_DEVICE void prefetch_tile(const Thread& t, const WeightOnDevice& w, int tile) {
  constexpr int64_t kMost = 32 << 10, kLine = 128;
  const bool is_codes = w.form == WeightForm::kCodes;
  const int64_t bytes = is_codes ? w.tile_bytes : int64_t{32} * w.padded_cols;  // 16 rows of BF16
  const std::byte* const from = w.data + tile * bytes;
  for (int64_t at = t.index * kLine; at < (bytes < kMost ? bytes : kMost); at += kThreads * kLine)
    t.prefetch(from + at);
}

// Stores the warps' sums as [warp][token tile][element][lane]; sum_of_warps() adds them in the
// order of the warps.
template <int TokenTiles>
PENSTOCK_DEVICE void keep_sums(const Thread& t, const float (&total)[TokenTiles][4], float* sums) {
  for (int n = 0; n < TokenTiles; ++n)
    for (int j = 0; j < 4; ++j)
      sums[((t.warp() * TokenTiles + n) * 4 + j) * kWarp + t.lane()] = total[n][j];
}
template <int TokenTiles, int kThreads>
PENSTOCK_DEVICE float sum_of_warps(const float* sums, int at) {
  float sum = sums[at];
  for (int warp = 1; warp < kThreads / kWarp; ++warp) sum += sums[warp * TokenTiles * 128 + at];
  return sum;
}
struct TilePlace {
  int row, token;
};
PENSTOCK_DEVICE TilePlace place_of_sum(int at) {
  const int n = at / 128, j = at % 128 / kWarp, lane = at % kWarp;
  return {lane / 4 + 8 * (j >> 1), 8 * n + 2 * (lane % 4) + (j & 1)};
}

}  // namespace penstock::cuda
