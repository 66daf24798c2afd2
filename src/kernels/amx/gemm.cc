// Matrix products of many rows with AMX.
//
// BF16, and INT8 without scales inside a row: activations are packed once as A tiles (16 rows x 64 bytes); a
// slice of 32 weight rows x 1,024 bytes is unpacked to B tiles in the first-level cache and multiplied with
// all rows of a block before the next slice. INT8 with groups: codes are unpacked to B tiles of 32 columns;
// the group's scales are applied to the tile of sums.
#include <immintrin.h>

#include <bit>

#include "kernels/gemm_kernels.h"
#include "kernels/gemm_tables.h"
#include "kernels/panel_layout.h"

namespace penstock {
namespace {

#include "kernels/amx/tiles.h"
#include "kernels/avx512/gemm_simd.h"
#include "kernels/generic/float_gemm.inl"

#include "kernels/generic/int8_gemm.inl"

constexpr int kTileBytes = 1024;
constexpr int kSliceSteps = 16;  // tiles per slice
constexpr int kBlockRows = 512;  // rows of activations per block
constexpr int kBlockPairs = 8;   // pairs of panels (32 weight rows) per block
// Per call of multiply, so that one slice is fetched while another is used by all pairs of a block.
constexpr int kAheadBytes = kSliceSteps * 2 * kTileBytes / kBlockPairs;
constexpr int kWeightsBytes = kSliceSteps * 2 * kTileBytes;
constexpr int kSumsBytes = kBlockPairs * (kBlockRows / 32) * 4 * kTileBytes;

constexpr int round_up(int n, int unit) { return (n + unit - 1) / unit * unit; }

// --- Activations
// -----------------------------------------------------------------------------------------------

// What tiles hold.
struct Bf16 {
  static constexpr int kTileK = 32;  // columns of an A tile
  template <int C, int A, int B>
  [[gnu::always_inline]] static void dot() {
    tile_dot_bf16<C, A, B>();
  }
};
struct Int8 {
  static constexpr int kTileK = 64;
  template <int C, int A, int B>
  [[gnu::always_inline]] static void dot() {
    tile_dot_int8<C, A, B>();
  }
};
template <class N>
constexpr int kSliceK = kSliceSteps* N::kTileK;  // columns per slice

// [slice][32 rows][step][2 tiles of 16 rows x kTileK columns].
template <class N>
size_t tile_bytes(int total_rows, int padded_cols) {
  return static_cast<size_t>(round_up(total_rows, 32)) * padded_cols * (64 / N::kTileK);
}

template <class N>
const uint8_t* slice_tiles(const uint8_t* tiles, int total_rows, int padded_cols, int slice, int row) {
  const int left = padded_cols - slice * kSliceK<N>;
  const int steps = (left < kSliceK<N> ? left : kSliceK<N>) / N::kTileK;
  return tiles + tile_bytes<N>(total_rows, kSliceK<N>) * slice +
         static_cast<size_t>(row / 32) * steps * 2 * kTileBytes;
}

// Where 64 bytes of a row lie, from column k on.
template <class N>
uint8_t* tile_row(uint8_t* tiles, int total_rows, int padded_cols, int row, int k) {
  const uint8_t* block = slice_tiles<N>(tiles, total_rows, padded_cols, k / kSliceK<N>, row);
  return const_cast<uint8_t*>(block) + (k % kSliceK<N> / N::kTileK) * 2 * kTileBytes +
         (row % 32 / 16) * kTileBytes + row % 16 * 64;
}

void pack_bf16(const FloatRows& x, int total_rows, int first_row, int n_rows, int cols, int padded_cols,
               uint8_t* tiles) {
  const int end = first_row + n_rows == total_rows ? round_up(total_rows, 32) : first_row + n_rows;
  for (int row = first_row; row < end; ++row) {
    const float* from = x.values + row * x.stride;
    for (int k = 0; k < padded_cols; k += 32) {
      const int n = row < total_rows ? cols - k : 0;
      const __m512 low = Avx512::load_f32(from + k, n > 0 ? n : 0);
      const __m512 high = Avx512::load_f32(from + k + 16, n > 16 ? n - 16 : 0);
      uint8_t* to = tile_row<Bf16>(tiles, total_rows, padded_cols, row, k);
      _mm512_store_si512(to, reinterpret_cast<__m512i>(_mm512_cvtne2ps_pbh(high, low)));
    }
  }
}

// After the tiles of INT8 activations, for every row.
struct RowScale {
  float scale;
  int32_t negative_sum;
};

size_t int8_tile_bytes(int total_rows, int padded_cols) {
  return tile_bytes<Int8>(total_rows, padded_cols) + sizeof(RowScale) * round_up(total_rows, 32);
}

void pack_int8(const FloatRows& x, int total_rows, int first_row, int n_rows, int cols, int padded_cols,
               const ActivationRounding& rounding, uint8_t* tiles) {
  const int end = first_row + n_rows == total_rows ? round_up(total_rows, 32) : first_row + n_rows;
  auto* scales = reinterpret_cast<RowScale*>(tiles + tile_bytes<Int8>(total_rows, padded_cols));
  for (int row = first_row; row < end; ++row) {
    const float* from = x.values + row * x.stride;
    const int n = row < total_rows ? cols : 0;
    float top = rounding.fixed_scale * 127.0f;
    if (rounding.kind == ActivationRounding::Kind::kPerRow) {
      __m512 largest = _mm512_setzero_ps();
      for (int k = 0; k < n; k += 16) largest = Avx512::abs_max(largest, Avx512::load_f32(from + k, n - k));
      top = Avx512::max_of(largest);
    }
    const float inverse = top > 1e-30f ? 127.0f / top : 0.0f;  // as quantize_row
    __m512i sums = _mm512_setzero_si512();
    for (int k = 0; k < padded_cols; k += 64) {
      uint8_t* to = tile_row<Int8>(tiles, total_rows, padded_cols, row, k);
      for (int i = 0; i < 64; i += 16) {
        const __m512 v = n > k + i ? Avx512::load_f32(from + k + i, n - k - i) : _mm512_setzero_ps();
        Avx512::store_rounded(reinterpret_cast<int8_t*>(to + i),
                              Avx512::clamp(_mm512_mul_ps(v, _mm512_set1_ps(inverse)), 127.0f));
      }
      sums = _mm512_dpbusd_epi32(sums, _mm512_set1_epi8(1), _mm512_load_si512(to));
    }
    scales[row] = {inverse > 0 ? top / 127.0f : 0.0f, -_mm512_reduce_add_epi32(sums)};
  }
}

// --- Weights to B tiles: [16 column pairs][16 rows][2] BF16
// ------------------------------------------------------

[[gnu::always_inline]] inline __m512i bf16_pairs(__m512 even, __m512 odd) {
  const __m512i half = _mm512_set1_epi32(0x8000);
  const __m512i low = _mm512_srli_epi32(_mm512_add_epi32(_mm512_castps_si512(even), half), 16);
  return _mm512_mask_blend_epi16(0xaaaaaaaau, low, _mm512_add_epi32(_mm512_castps_si512(odd), half));
}

// Four columns of 16 rows, one byte each, times scale plus offset.
[[gnu::always_inline]] inline void expand_codes(__m512i w, __m512 scale, __m512 offset, uint8_t* tile) {
  const __m512i byte = _mm512_set1_epi32(0xff);
  const __m512 f0 = _mm512_cvtepi32_ps(_mm512_and_si512(w, byte));
  const __m512 f1 = _mm512_cvtepi32_ps(_mm512_and_si512(_mm512_srli_epi32(w, 8), byte));
  const __m512 f2 = _mm512_cvtepi32_ps(_mm512_and_si512(_mm512_srli_epi32(w, 16), byte));
  const __m512 f3 = _mm512_cvtepi32_ps(_mm512_srli_epi32(w, 24));
  _mm512_store_si512(tile,
                     bf16_pairs(_mm512_fmadd_ps(f0, scale, offset), _mm512_fmadd_ps(f1, scale, offset)));
  _mm512_store_si512(tile + 64,
                     bf16_pairs(_mm512_fmadd_ps(f2, scale, offset), _mm512_fmadd_ps(f3, scale, offset)));
}

template <class Q>
struct TileSource {
  using Panel = Int8Panel<Avx512, Q>;
  using L = PanelLayout<Q>;
  static constexpr int kUnitK = L::kUnitK, kUnitBytes = L::kUnitBytes;

  // Steps [first, first + n) of a panel to tiles kStride bytes apart.
  static void unpack(const PanelMatrix& w, const uint8_t* panel, int first, int n, uint8_t* tile,
                     int stride) {
    const __m512i codebook = Panel::table(w);
    for (int s = first; s < first + n; ++s, tile += stride) {
      const uint8_t* unit = panel + static_cast<size_t>(s / L::kSteps) * L::kUnitBytes;
      const int step = s % L::kSteps;
      __m512i w[8];
      Panel::load_codes(unit + step * L::kStepBytes, codebook, w);
      const auto u = Panel::unit_scales(unit, 0);
      constexpr int kParts = Q::kGroupSize == 16 ? 2 : 1;
#pragma GCC unroll 2
      for (int part = 0; part < kParts; ++part) {
        const int group = Q::kGroupSize == 16 ? 2 * step + part : L::group_of(step * 32);
        const __m512 scale = Panel::scale(unit, u, group, 0);
        __m512 offset = _mm512_mul_ps(scale, _mm512_set1_ps(static_cast<float>(-L::kBias)));
        if constexpr (Q::kHasOffset) offset = _mm512_add_ps(offset, Panel::offset(unit, u, group, 0));
#pragma GCC unroll 8
        for (int j = part * 8 / kParts; j < (part + 1) * 8 / kParts; ++j) {
          expand_codes(w[j], scale, offset, tile + j * 128);
        }
      }
    }
  }
};

template <>
struct TileSource<quant::F16> {
  static constexpr int kUnitK = 32, kUnitBytes = 1024;
  static void unpack(const PanelMatrix&, const uint8_t* panel, int first, int n, uint8_t* tile, int stride) {
    for (int s = first; s < first + n; ++s, tile += stride) {
      const uint8_t* from = panel + static_cast<size_t>(s) * kUnitBytes;
      for (int pair = 0; pair < 16; ++pair, from += 64) {
        _mm512_store_si512(tile + pair * 64,
                           bf16_pairs(Avx512::load_half(from), Avx512::load_half(from + 32)));
      }
    }
  }
};

template <>
struct TileSource<panel::F8Row> {
  static constexpr int kUnitK = 32, kUnitBytes = 512;
  static void unpack(const PanelMatrix&, const uint8_t* panel, int first, int n, uint8_t* tile, int stride) {
    for (int s = first; s < first + n; ++s, tile += stride) {
      const uint8_t* from = panel + static_cast<size_t>(s) * kUnitBytes;
      for (int pair = 0; pair < 16; ++pair, from += 32) {
        _mm512_store_si512(tile + pair * 64, bf16_pairs(Avx512::load_f8(from), Avx512::load_f8(from + 16)));
      }
    }
  }
};

template <>
struct TileSource<quant::BF16> {  // panels are B tiles already
  static constexpr int kUnitK = 32, kUnitBytes = 1024;
};

// Codes of 64 columns as they are, for rows without scales inside. Those of 8 bits are B tiles already.
template <class Q>
struct ByteSource {
  using Panel = Int8Panel<Avx512, Q>;
  using L = PanelLayout<Q>;
  static constexpr int kUnitK = L::kUnitK, kUnitBytes = L::kUnitBytes;
  static_assert(kUnitK == 64 && L::kWholeRow);

  static void unpack(const PanelMatrix& w, const uint8_t* panel, int first, int n, uint8_t* tile,
                     int stride) {
    const __m512i codebook = Panel::table(w);
    for (int s = first; s < first + n; ++s, tile += stride) {
      const uint8_t* unit = panel + static_cast<size_t>(s) * L::kUnitBytes;
      for (int step = 0; step < 2; ++step) {
        __m512i codes[8];
        Panel::load_codes(unit + step * L::kStepBytes, codebook, codes);
#pragma GCC unroll 8
        for (int j = 0; j < 8; ++j) _mm512_store_si512(tile + step * 512 + 64 * j, codes[j]);
      }
    }
  }
};

// --- Tiles times tiles
// ----------------------------------------------------------------------------------------------------------

// One step of multiply: kTileK columns. With LoadSums the four tiles of sums are loaded between the first
// products, which hides half of what loading them all at the start costs.
template <class N, bool FirstUse, bool LoadSums>
[[gnu::always_inline]] inline void multiply_step(const uint8_t* a, const uint8_t* b0, const uint8_t* b1,
                                                 const uint8_t* sums) {
  const auto load_a = [&]<int Tile>(const uint8_t* p) {
    // Later passes over the activations bypass the first-level cache, which holds the weights.
    if constexpr (FirstUse) {
      tile_load<Tile>(p, 64);
    } else {
      tile_load_once<Tile>(p, 64);
    }
  };
  load_a.template operator()<4>(a);
  tile_load<6>(b0, 64);
  if constexpr (LoadSums) tile_load<0>(sums, 64);
  N::template dot<0, 4, 6>();
  tile_load<7>(b1, 64);
  if constexpr (LoadSums) tile_load<1>(sums + kTileBytes, 64);
  N::template dot<1, 4, 7>();
  load_a.template operator()<5>(a + kTileBytes);
  if constexpr (LoadSums) tile_load<2>(sums + 2 * kTileBytes, 64);
  N::template dot<2, 5, 6>();
  if constexpr (LoadSums) tile_load<3>(sums + 3 * kTileBytes, 64);
  N::template dot<3, 5, 7>();
}

// 32 rows x 32 weight rows over n_steps tiles of columns, added to four tiles of sums (rows 0-15: weights
// 0-15, 16-31; rows 16-31: the same). The sums after these, those of the next 32 rows, are fetched meanwhile,
// and from `ahead` on a part of the activations of the next slice (kAheadBytes per full slice).
template <class N, bool FirstUse>
[[gnu::always_inline]] inline void multiply(const uint8_t* a, const uint8_t* b0, const uint8_t* b1,
                                            int b_stride, int n_steps, uint8_t* sums, bool fresh,
                                            const uint8_t* ahead) {
  int s = 0;
  if (fresh) {
    tile_zero<0>(), tile_zero<1>(), tile_zero<2>(), tile_zero<3>();
  } else {
    multiply_step<N, FirstUse, true>(a, b0, b1, sums);
    a += 2 * kTileBytes, b0 += b_stride, b1 += b_stride, s = 1;
  }
  const uint8_t* next = sums + 4 * kTileBytes;
  for (; s < n_steps; ++s, a += 2 * kTileBytes, b0 += b_stride, b1 += b_stride) {
    multiply_step<N, FirstUse, false>(a, b0, b1, sums);
    for (int l = 0; l < kAheadBytes / kSliceSteps; l += 64) __builtin_prefetch(ahead + l, 0, 2);
    ahead += kAheadBytes / kSliceSteps;
    if (!fresh && s >= n_steps - 8) {
      for (int l = 0; l < 8; ++l, next += 64) __builtin_prefetch(next, 0, 3);
    }
  }
  tile_store<0>(sums, 64), tile_store<1>(sums + kTileBytes, 64);
  tile_store<2>(sums + 2 * kTileBytes, 64), tile_store<3>(sums + 3 * kTileBytes, 64);
}

// Source: how panels become B tiles of N. Bias: what the tiles' codes are above the levels they stand for.
template <class N, class Source, bool Direct, int Bias>
struct TileProduct {
  const PanelMatrix& w;
  const uint8_t* tiles;
  int n_rows, padded_cols;  // of the activations
  uint8_t* weights;         // one slice of B tiles
  uint8_t* sums;

  // A row of a tile of sums as floats.
  __m512 finish(const uint8_t* sum, int row) const {
    if constexpr (std::is_same_v<N, Bf16>) {
      return _mm512_load_ps(sum);
    } else {
      const RowScale& scale =
          reinterpret_cast<const RowScale*>(tiles + tile_bytes<Int8>(n_rows, padded_cols))[row];
      const __m512i whole =
          _mm512_add_epi32(_mm512_load_si512(sum), _mm512_set1_epi32(Bias * scale.negative_sum));
      return _mm512_mul_ps(_mm512_cvtepi32_ps(whole), _mm512_set1_ps(scale.scale));
    }
  }

  // The sums of 32 rows x one pair of panels to the output.
  void write_sums(const uint8_t* from, int panel, int panel_end, int row, int row_end,
                  const GemmOutput& out) const {
    for (int m = 0; m < 32 && row + m < row_end; ++m) {
      for (int p = 0; p < 2 && panel + p < panel_end; ++p) {
        const __m512 sum = finish(from + (m / 16 * 2 + p) * kTileBytes + m % 16 * 64, row + m);
        store_output<Avx512>(w, panel + p, 0, sum, row + m, out);
      }
    }
  }

  const uint8_t* panel_slice(int panel, int slice) const {
    return w.data + static_cast<size_t>(panel) * w.panel_bytes +
           static_cast<size_t>(slice * kSliceK<N> / Source::kUnitK) * Source::kUnitBytes;
  }

  // One pair of panels times rows [row, row_end), over one slice of columns. Meanwhile the packed weights
  // that come next, and the activations from `ahead` on, are fetched to the second-level cache.
  void slice(int panel, int panel_end, int slice_index, int row, int row_end, uint8_t* pair_sums,
             bool first_pair, const uint8_t* next, const uint8_t* ahead) const {
    const int first = slice_index * kSliceSteps;
    const int left = (w.padded_cols + N::kTileK - 1) / N::kTileK - first,
              n_steps = left < kSliceSteps ? left : kSliceSteps;
    const int second = panel + 1 < panel_end ? panel + 1 : panel;
    const uint8_t *b0 = weights, *b1 = weights + kTileBytes;
    int b_stride = 2 * kTileBytes;
    if constexpr (Direct) {
      b0 = panel_slice(panel, slice_index), b1 = panel_slice(second, slice_index), b_stride = kTileBytes;
    } else {
      const size_t panel_offset = static_cast<size_t>(panel) * w.panel_bytes;
      Source::unpack(w, w.data + panel_offset, first, n_steps, weights, b_stride);
      Source::unpack(w, w.data + static_cast<size_t>(second) * w.panel_bytes, first, n_steps,
                     weights + kTileBytes, b_stride);
    }
    const int n_blocks = (row_end - row + 31) / 32;
    const int bytes =
        static_cast<int>(static_cast<int64_t>(n_steps) * N::kTileK / Source::kUnitK * Source::kUnitBytes);
    const int per_block = (bytes / 64 + n_blocks - 1) / n_blocks;
    for (int m = 0; m < n_blocks; ++m) {
      const uint8_t* a = slice_tiles<N>(tiles, n_rows, padded_cols, slice_index, row + 32 * m);
      if (next != nullptr) {
        for (int l = m * per_block; l < (m + 1) * per_block; ++l) {
          __builtin_prefetch(next + l * 64, 0, 2);
          __builtin_prefetch(next + w.panel_bytes + l * 64, 0, 2);
        }
      }
      uint8_t* block = pair_sums + m * 4 * kTileBytes;
      if (first_pair) {
        multiply<N, true>(a, b0, b1, b_stride, n_steps, block, slice_index == 0, ahead);
      } else {
        multiply<N, false>(a, b0, b1, b_stride, n_steps, block, slice_index == 0, ahead);
      }
      ahead += kAheadBytes;
    }
  }

  void block(int begin, int end, int row, int row_end, const GemmOutput& out) const {
    const int n_slices = (w.padded_cols + kSliceK<N> - 1) / kSliceK<N>;
    const int blocks = (row_end - row + 31) / 32;
    for (int s = 0; s < n_slices; ++s) {
      for (int panel = begin; panel < end; panel += 2) {
        const uint8_t* next = panel + 2 < end    ? panel_slice(panel + 2, s)
                              : s + 1 < n_slices ? panel_slice(begin, s + 1)
                                                 : panel_slice(end, 0);
        uint8_t* pair_sums = sums + static_cast<ptrdiff_t>((panel - begin) / 2) * blocks * 4 * kTileBytes;
        const uint8_t* ahead = slice_tiles<N>(tiles, n_rows, padded_cols, s + 1 < n_slices ? s + 1 : 0, row) +
                               static_cast<ptrdiff_t>((panel - begin) / 2) * blocks * kAheadBytes;
        slice(panel, end, s, row, row_end, pair_sums, panel == begin, next, ahead);
      }
    }
    for (int panel = begin; panel < end; panel += 2) {
      for (int m = 0; m < blocks; ++m) {
        write_sums(sums + static_cast<ptrdiff_t>((panel - begin) / 2 * blocks + m) * 4 * kTileBytes, panel,
                   end, row + 32 * m, row_end, out);
      }
    }
  }

  static void gemm(const PanelMatrix& w, const uint8_t* tiles, int n_rows, int begin, int end,
                   const GemmOutput& out, uint8_t* scratch) {
    TileConfig config;
    for (int t = 0; t < 8; ++t) config.set(t, 16, 64);
    const TileScope scope(config);
    const TileProduct product{w, tiles, n_rows, round_up(w.cols, 256), scratch, scratch + kWeightsBytes};
    for (int row = 0; row < n_rows; row += kBlockRows) {
      const int row_end = row + kBlockRows < n_rows ? row + kBlockRows : n_rows;
      for (int panel = begin; panel < end; panel += 2 * kBlockPairs) {
        product.block(panel, panel + 2 * kBlockPairs < end ? panel + 2 * kBlockPairs : end, row, row_end,
                      out);
      }
    }
  }
};

// --- INT8
// ----------------------------------------------------------------------------------------------------------

template <class Q>
struct Int8Tiles {
  using Panel = Int8Panel<Avx512, Q>;
  using L = PanelLayout<Q>;
  static constexpr int kRows = 16;                            // of a block of activations
  static constexpr int kParts = Q::kGroupSize == 16 ? 2 : 1;  // groups with sums of their own in a step
  static constexpr int kBatch = 4;                            // groups whose sums are in tiles at once
  static constexpr int kStepsAtOnce = kBatch / kParts;

  // The codes of a step as B tiles, 8 x 64 bytes in all.
  [[gnu::always_inline]] static void unpack(const uint8_t* unit, int step, __m512i codebook, uint8_t* tile) {
    __m512i w[8];
    Panel::load_codes(unit + step * L::kStepBytes, codebook, w);
#pragma GCC unroll 8
    for (int j = 0; j < 8; ++j) _mm512_store_si512(tile + 64 * j, w[j]);
  }

  // The sums of group I of a batch.
  template <int I>
  [[gnu::always_inline]] static void dot_group(const int8_t* x, const uint8_t* codes, int32_t* sums) {
    tile_zero<I>();
    tile_load<4 + I % 2>(x + 32 * kRows * (I / kParts) + 16 * (I % kParts), 32);
    tile_load<6 + I % 2>(codes + 512 / kParts * I, 64);
    tile_dot_int8<I, 4 + I % 2, 6 + I % 2>();
    tile_store<I>(sums + 256 * I, 64);
  }

  [[gnu::always_inline]] static __m512 whole_sums(const int32_t* sums, int32_t negative_sum) {
    __m512i d = _mm512_load_si512(sums);
    if constexpr (L::kBias != 0) {
      d = _mm512_add_epi32(d, _mm512_slli_epi32(_mm512_set1_epi32(negative_sum),
                                                std::countr_zero(static_cast<unsigned>(L::kBias))));
    }
    return _mm512_cvtepi32_ps(d);
  }

  // Adds a step whose whole sums are done to those of all rows. The order of operations on an output is that
  // of Int8Panel.
  [[gnu::always_inline]] static void add_step(const uint8_t* unit, int step, const int32_t* sums,
                                              const ActivationGroup* groups, __m512 (&acc)[kRows]) {
    const auto u = Panel::unit_scales(unit, 0);
    __m512 scale[kParts], offset[kParts];
    for (int p = 0; p < kParts; ++p) {
      const int group = kParts == 2 ? 2 * step + p : L::group_of(step * 32);
      scale[p] = Panel::scale(unit, u, group, 0);
      if constexpr (Q::kHasOffset) offset[p] = Panel::offset(unit, u, group, 0);
    }
#pragma GCC unroll 16
    for (int m = 0; m < kRows; ++m) {
      const ActivationGroup& g = groups[m];
      const __m512 xs = _mm512_set1_ps(g.scale);
      for (int p = 0; p < kParts; ++p) {
        const __m512 d =
            whole_sums(sums + 256 * p + 16 * m, kParts == 2 ? g.negative_sums[p] : g.negative_sum);
        acc[m] = _mm512_fmadd_ps(d, _mm512_mul_ps(scale[p], xs), acc[m]);
      }
      for (int p = 0; Q::kHasOffset && p < kParts; ++p) {
        const float sum = kParts == 2 ? g.scaled_sums[p] : g.scaled_sum;
        acc[m] = _mm512_fmadd_ps(offset[p], _mm512_set1_ps(sum), acc[m]);
      }
    }
  }

  // Block `block` of 16 rows times one panel.
  static void panel_rows(const PanelMatrix& w, const Int8Rows& x, int block, int n_rows, int panel,
                         const GemmOutput& out) {
    alignas(64) uint8_t codes[kBatch * 512];
    alignas(64) int32_t sums[kBatch * 256];
    const __m512i codebook = Panel::table(w);
    const uint8_t* data = w.data + static_cast<size_t>(panel) * w.panel_bytes;
    const int n_steps = w.padded_cols / 32;
    const ptrdiff_t first = static_cast<ptrdiff_t>(block) * x.n_steps * kRows;
    const int8_t* values = x.values + first * 32;
    const ActivationGroup* groups = x.groups + first;
    __m512 acc[kRows];
    for (int m = 0; m < kRows; ++m) acc[m] = _mm512_setzero_ps();
    const auto unit_of = [&](int s) { return data + static_cast<size_t>(s / L::kSteps) * L::kUnitBytes; };
    for (int s = 0; s < n_steps; s += kStepsAtOnce) {
      const int n = n_steps - s < kStepsAtOnce ? n_steps - s : kStepsAtOnce;
      for (int i = 0; i < n; ++i) {
        const uint8_t* unit = unit_of(s + i);
        constexpr int kLines = (L::kUnitBytes / 64 + L::kSteps - 1) / L::kSteps;
        for (int l = 0; l < kLines; ++l) {
          __builtin_prefetch(unit + 4096 + ((s + i) % L::kSteps * kLines + l) * 64, 0, 3);
        }
        unpack(unit, (s + i) % L::kSteps, codebook, codes + 512 * i);
      }
      const int8_t* xs = values + 32 * kRows * s;
      dot_group<0>(xs, codes, sums);
      dot_group<1>(xs, codes, sums);
      if (n == kStepsAtOnce) {  // otherwise half a batch: the number of steps is even
        dot_group<2>(xs, codes, sums);
        dot_group<3>(xs, codes, sums);
      }
      for (int i = 0; i < n; ++i) {
        add_step(unit_of(s + i), (s + i) % L::kSteps, sums + 256 * kParts * i, groups + (s + i) * kRows, acc);
      }
    }
    for (int m = 0; m < kRows && block * kRows + m < n_rows; ++m) {
      store_output<Avx512>(w, panel, 0, acc[m], block * kRows + m, out);
    }
  }

  static void gemm(const PanelMatrix& w, const Int8Rows& x, int n_rows, int begin, int end,
                   const GemmOutput& out) {
    TileConfig config;
    for (int t = 0; t < 4; ++t) config.set(t, kRows, 64);
    for (int t = 4; t < 6; ++t) config.set(t, kRows, 32 / kParts);
    for (int t = 6; t < 8; ++t) config.set(t, 8 / kParts, 64);
    const TileScope scope(config);
    for (int panel = begin; panel < end; ++panel) {
      for (int block = 0; block * kRows < n_rows; ++block) panel_rows(w, x, block, n_rows, panel, out);
    }
  }
};

// --- Table
// ---------------------------------------------------------------------------------------------------------

template <class Q>
consteval TileKernels::TileGemm bf16_entry() {
  constexpr bool kFloats = std::is_same_v<Q, quant::F16> || std::is_same_v<Q, panel::F8Row>;
  if constexpr (panel::Codes<Q> || kFloats) {
    return &TileProduct<Bf16, TileSource<Q>, false, 0>::gemm;
  } else if constexpr (std::is_same_v<Q, quant::BF16>) {
    return &TileProduct<Bf16, TileSource<Q>, true, 0>::gemm;
  } else {
    return nullptr;
  }
}

template <class Q>
consteval TileKernels::TileGemm int8_rows_entry() {
  if constexpr (panel::Codes<Q>) {
    using L = PanelLayout<Q>;
    if constexpr (L::kWholeRow) return &TileProduct<Int8, ByteSource<Q>, Q::kBits == 8, L::kBias>::gemm;
  }
  return nullptr;
}

template <class Q>
consteval GemmKernels::Int8Gemm int8_tiles_entry() {
  if constexpr (panel::Codes<Q>) {
    return &Int8Tiles<Q>::gemm;
  } else {
    return nullptr;
  }
}

template <class... Q>
consteval TileKernels make_tile_kernels(std::tuple<Q...>*) {
  TileKernels table{};
  table.name = "amx";
  table.scratch_bytes = static_cast<size_t>(kWeightsBytes) + kSumsBytes;
  table.bf16_tile_bytes = &tile_bytes<Bf16>;
  table.pack_bf16 = &pack_bf16;
  table.int8_tile_bytes = &int8_tile_bytes;
  table.pack_int8 = &pack_int8;
  int i = 0;
  ((table.bf16[i] = bf16_entry<Q>(), table.int8_rows[i] = int8_rows_entry<Q>(),
    table.int8[i] = int8_tiles_entry<Q>(), ++i),
   ...);
  return table;
}

}  // namespace

constinit const TileKernels kAmxTileKernels = make_tile_kernels(static_cast<panel::All*>(nullptr));

}  // namespace penstock
