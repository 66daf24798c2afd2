// Matrix products of many rows with AMX tiles.
//
// BF16, and INT8 without scales inside a row: activations are packed once as A tiles (16 rows x 64
// bytes); a slice of 32 weight rows x 1,024 bytes is unpacked to B tiles in the first-level cache
// and multiplied with all rows of a block before the next slice. INT8 with groups: codes are
// unpacked to B tiles of 32 columns; the group's scales are applied to the tile of sums.
#include <immintrin.h>

#include <algorithm>
#include <bit>
#include <utility>

#include "kernels/amx/plans.h"
#include "kernels/amx/tables.h"
#include "kernels/gemm_kernels.h"
#include "kernels/generic/simd_concepts.h"
#include "kernels/panel_layout.h"

namespace penstock {
namespace {

#include "kernels/amx/tiles.h"
#include "kernels/avx2/gemm_simd.h"
#include "kernels/avx512/gemm_simd.h"
#include "kernels/generic/float_gemm.inl"

#include "kernels/generic/int8_gemm.inl"

constexpr int kTileBytes = 1024;
constexpr int kSliceSteps = 16;  // tiles per slice
constexpr int kBlockPairs = 8;   // pairs of panels (32 weight rows) per block
// Outputs of at least this size are written by non-temporal stores, since caches would not hold
// them until they are read.
constexpr size_t kStreamedBytes = size_t{4} << 20;
// Bytes prefetched per call of multiply: one slice is prefetched while all pairs of a block use
// another.
constexpr int kAheadBytes = kSliceSteps * 2 * kTileBytes / kBlockPairs;
constexpr int kWeightsBytes = kSliceSteps * 2 * kTileBytes;
constexpr int kSumsBytes = kBlockPairs * (amx::kBlockRows / 32) * 4 * kTileBytes;

constexpr int round_up(int n, int unit) { return (n + unit - 1) / unit * unit; }

// --- Activations ---

// Element types of tiles.
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
constexpr int kSliceK = kSliceSteps * N::kTileK;  // columns per slice

// Layout: [slice][32 rows][step][2 tiles of 16 rows x kTileK columns].
template <class N>
size_t tile_bytes(int total_rows, int padded_cols) {
  return static_cast<size_t>(round_up(total_rows, 32)) * padded_cols * (64 / N::kTileK);
}

template <class N>
const uint8_t* slice_tiles(const uint8_t* tiles, int total_rows, int padded_cols, int slice,
                           int row) {
  const int left = padded_cols - slice * kSliceK<N>;
  const int steps = (left < kSliceK<N> ? left : kSliceK<N>) / N::kTileK;
  return tiles + tile_bytes<N>(total_rows, kSliceK<N>) * slice +
         static_cast<size_t>(row / 32) * steps * 2 * kTileBytes;
}

// Returns the address of 64 bytes of a row, from column k on.
template <class N>
uint8_t* tile_row(uint8_t* tiles, int total_rows, int padded_cols, int row, int k) {
  const uint8_t* block = slice_tiles<N>(tiles, total_rows, padded_cols, k / kSliceK<N>, row);
  return const_cast<uint8_t*>(block) + (k % kSliceK<N> / N::kTileK) * 2 * kTileBytes +
         (row % 32 / 16) * kTileBytes + row % 16 * 64;
}

// Last row to pack. Padding rows are packed, too, if there are more than 32 rows, since they are
// read.
int end_of_packing(int total_rows, int end) {
  return end == total_rows && total_rows > 32 ? round_up(total_rows, 32) : end;
}

void pack_bf16(const FloatRows& x, int total_rows, int first_row, int n_rows, int cols,
               int padded_cols, uint8_t* tiles) {
  const int end = end_of_packing(total_rows, first_row + n_rows);
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

// Stored after the tiles of INT8 activations, for each row.
struct RowScale {
  float scale;
  int32_t negative_sum;
};

size_t int8_tile_bytes(int total_rows, int padded_cols) {
  return tile_bytes<Int8>(total_rows, padded_cols) + sizeof(RowScale) * round_up(total_rows, 32);
}

void pack_int8(const FloatRows& x, int total_rows, int first_row, int n_rows, int cols,
               int padded_cols, const ActivationRounding& rounding, uint8_t* tiles) {
  const int end = end_of_packing(total_rows, first_row + n_rows);
  auto* scales = reinterpret_cast<RowScale*>(tiles + tile_bytes<Int8>(total_rows, padded_cols));
  for (int row = first_row; row < end; ++row) {
    const float* from = x.values + row * x.stride;
    const int n = row < total_rows ? cols : 0;
    float top = rounding.fixed_scale * 127.0f;
    if (rounding.kind == ActivationRounding::Kind::kPerRow) {
      __m512 largest = _mm512_setzero_ps();
      for (int k = 0; k < n; k += 16)
        largest = Avx512::abs_max(largest, Avx512::load_f32(from + k, n - k));
      top = Avx512::max_of(largest);
    }
    const float inverse = top > 1e-30f ? 127.0f / top : 0.0f;  // see quantize_row
    __m512i sums = _mm512_setzero_si512();
    for (int k = 0; k < padded_cols; k += 64) {
      uint8_t* to = tile_row<Int8>(tiles, total_rows, padded_cols, row, k);
      for (int i = 0; i < 64; i += 16) {
        const __m512 v =
            n > k + i ? Avx512::load_f32(from + k + i, n - k - i) : _mm512_setzero_ps();
        Avx512::store_rounded(reinterpret_cast<int8_t*>(to + i),
                              Avx512::clamp(_mm512_mul_ps(v, _mm512_set1_ps(inverse)), 127.0f));
      }
      sums = _mm512_dpbusd_epi32(sums, _mm512_set1_epi8(1), _mm512_load_si512(to));
    }
    scales[row] = {inverse > 0 ? top / 127.0f : 0.0f, -_mm512_reduce_add_epi32(sums)};
  }
}

// --- Weights to B tiles: [16 column pairs][16 rows][2] BF16 ---

[[gnu::always_inline]] inline __m512i bf16_pairs(__m512 even, __m512 odd) {
  const __m512i half = _mm512_set1_epi32(0x8000);
  const __m512i low = _mm512_srli_epi32(_mm512_add_epi32(_mm512_castps_si512(even), half), 16);
  return _mm512_mask_blend_epi16(0xaaaaaaaau, low,
                                 _mm512_add_epi32(_mm512_castps_si512(odd), half));
}

// Converts codes to floats without a conversion instruction: code bits at the top of the mantissa
// of 1 make 1 + code / 2^kBits. Results are truncated to BF16, which makes them 2^-7 / 3 smaller on
// average (between 0 and 2^-7 of their power of two); scales compensate for it.
template <int CodeBits>
struct CodeScale {
  static constexpr float kCut = 1.0f + 2.0f / 3 / 256;
  __m512 scale, offset;

  // value = scale * (code - bias) + offset
  [[gnu::always_inline]] static CodeScale make(__m512 scale, __m512 offset, int bias) {
    constexpr int kOne = 1 << CodeBits;
    const __m512 s = _mm512_mul_ps(scale, _mm512_set1_ps(kCut));
    const __m512 o = _mm512_mul_ps(offset, _mm512_set1_ps(kCut));
    return {_mm512_mul_ps(s, _mm512_set1_ps(kOne)),
            _mm512_fnmadd_ps(s, _mm512_set1_ps(static_cast<float>(kOne + bias)), o)};
  }

  // Converts the code at bits [First, First + CodeBits) of every dword.
  template <int First>
  [[gnu::always_inline]] __m512 value(__m512i codes) const {
    constexpr int kTop = 23 - CodeBits;
    const __m512i mask = _mm512_set1_epi32(((1 << CodeBits) - 1) << kTop);
    __m512i x;
    if constexpr (First < kTop) {
      x = _mm512_slli_epi32(codes, kTop - First);
    } else {
      x = _mm512_srli_epi32(codes, First - kTop);
    }
    // (x & mask) | one
    x = _mm512_ternarylogic_epi32(x, mask, _mm512_set1_epi32(0x3f800000), 0xea);
    return _mm512_fmadd_ps(_mm512_castsi512_ps(x), scale, offset);
  }
  template <int Even, int Odd>
  [[gnu::always_inline]] void store_pair(__m512i codes, uint8_t* to) const {
    const __m512i high_halves = _mm512_broadcast_i32x4(
        _mm_setr_epi8(2, 3, 2, 3, 6, 7, 6, 7, 10, 11, 10, 11, 14, 15, 14, 15));
    const __m512i even = _mm512_castps_si512(value<Even>(codes)),
                  odd = _mm512_castps_si512(value<Odd>(codes));
    _mm512_store_si512(to, _mm512_mask_shuffle_epi8(odd, 0x3333333333333333u, even, high_halves));
  }
};

template <class Q>
struct TileSource {
  using Panel = Int8Panel<Avx512, Q>;
  using L = PanelLayout<Q>;
  static constexpr int kUnitK = L::kUnitK, kUnitBytes = L::kUnitBytes;
  static constexpr int kParts = Q::kGroupSize == 16 ? 2 : 1;
  static constexpr bool kNibbles = Q::kBits == 4 && !Q::kIsCodebook;
  using Scale = CodeScale<kNibbles ? 4 : 8>;

  static constexpr int group_of(int step, int part) {
    return kParts == 2 ? 2 * step + part : L::group_of(step * 32);
  }
  [[gnu::always_inline]] static Scale scale_of(const uint8_t* unit, int step, int part) {
    const auto u = Panel::unit_scales(unit, 0);
    const int group = group_of(step, part);
    __m512 offset = _mm512_setzero_ps();
    if constexpr (Q::kHasOffset) offset = Panel::offset(unit, u, group, 0);
    return Scale::make(Panel::scale(unit, u, group, 0), offset, L::kBias);
  }

  // Unpacks one step of a panel to a tile.
  [[gnu::always_inline]] static void unpack(const PanelMatrix& w, const uint8_t* panel, int s,
                                            uint8_t* tile) {
    const __m512i codebook = Panel::table(w);
    const uint8_t* unit = panel + static_cast<size_t>(s / L::kSteps) * L::kUnitBytes;
    const int step = s % L::kSteps;
    const Scale scale[2] = {scale_of(unit, step, 0), scale_of(unit, step, kParts - 1)};
    if constexpr (kNibbles) {
      const uint8_t* codes = unit + step * L::kStepBytes;
#pragma GCC unroll 4
      for (int l = 0; l < 4; ++l)
        store_nibbles(Avx512::load(codes + 64 * l), scale[l / 2], tile + 256 * l);
    } else {
      __m512i w[8];
      Panel::load_codes(unit, step, 0, codebook, w);
#pragma GCC unroll 8
      for (int j = 0; j < 8; ++j) {
        scale[j / 4].template store_pair<0, 8>(w[j], tile + 128 * j);
        scale[j / 4].template store_pair<16, 24>(w[j], tile + 128 * j + 64);
      }
    }
  }

  // Low nibbles of bytes are four columns, high nibbles the next four.
  [[gnu::always_inline]] static void store_nibbles(__m512i codes, const Scale& scale,
                                                   uint8_t* tile) {
    scale.template store_pair<0, 8>(codes, tile);
    scale.template store_pair<16, 24>(codes, tile + 64);
    scale.template store_pair<4, 12>(codes, tile + 128);
    scale.template store_pair<20, 28>(codes, tile + 192);
  }
};

template <>
struct TileSource<quant::F16> {
  static constexpr int kUnitK = 32, kUnitBytes = 1024;
  [[gnu::always_inline]] static void unpack(const PanelMatrix&, const uint8_t* panel, int s,
                                            uint8_t* tile) {
    const uint8_t* from = panel + static_cast<size_t>(s) * kUnitBytes;
    for (int pair = 0; pair < 16; ++pair, from += 64) {
      _mm512_store_si512(tile + pair * 64,
                         bf16_pairs(Avx512::load_half(from), Avx512::load_half(from + 32)));
    }
  }
};

template <>
struct TileSource<panel::F8Row> {
  static constexpr int kUnitK = 32, kUnitBytes = 512;
  [[gnu::always_inline]] static void unpack(const PanelMatrix&, const uint8_t* panel, int s,
                                            uint8_t* tile) {
    const uint8_t* from = panel + static_cast<size_t>(s) * kUnitBytes;
    for (int pair = 0; pair < 16; ++pair, from += 32) {
      _mm512_store_si512(tile + pair * 64,
                         bf16_pairs(Avx512::load_f8(from), Avx512::load_f8(from + 16)));
    }
  }
};

template <>
struct TileSource<panel::F8Groups> {
  static constexpr int kUnitK = panel::F8Groups::kUnitK, kUnitBytes = panel::F8Groups::kUnitBytes;
  [[gnu::always_inline]] static void unpack(const PanelMatrix&, const uint8_t* panel, int s,
                                            uint8_t* tile) {
    const uint8_t* unit = panel + static_cast<size_t>(s / 2) * kUnitBytes;
    const __m512 scale = _mm512_load_ps(unit + panel::F8Groups::kScales);
    const uint8_t* from = unit + s % 2 * 512;
    for (int pair = 0; pair < 16; ++pair, from += 32) {
      _mm512_store_si512(tile + pair * 64,
                         bf16_pairs(_mm512_mul_ps(Avx512::load_f8(from), scale),
                                    _mm512_mul_ps(Avx512::load_f8(from + 16), scale)));
    }
  }
};

template <>
struct TileSource<quant::BF16> {  // panels have the layout of B tiles
  static constexpr int kUnitK = 32, kUnitBytes = 1024;
};

// Unpacks 64 columns of codes without scales in a row. Codes of 8 bits have the layout of B
// tiles.
template <class Q>
struct ByteSource {
  using Panel = Int8Panel<Avx512, Q>;
  using L = PanelLayout<Q>;
  static constexpr int kUnitK = L::kUnitK, kUnitBytes = L::kUnitBytes;
  static_assert(kUnitK == 64 && L::kWholeRow);

  [[gnu::always_inline]] static void unpack(const PanelMatrix& w, const uint8_t* panel, int s,
                                            uint8_t* tile) {
    const __m512i codebook = Panel::table(w);
    const uint8_t* unit = panel + static_cast<size_t>(s) * L::kUnitBytes;
    for (int step = 0; step < 2; ++step) {
      __m512i codes[8];
      Panel::load_codes(unit, step, 0, codebook, codes);
#pragma GCC unroll 8
      for (int j = 0; j < 8; ++j) _mm512_store_si512(tile + step * 512 + 64 * j, codes[j]);
    }
  }
};

#include "kernels/amx/gemm_tiles.inl"

// Product by tiles. Source: unpacks panels to B tiles of N. Bias: the difference between the tiles'
// codes and their levels.
template <class N, class Source, bool Direct, int Bias>
struct TileProduct {
  const PanelMatrix& w;
  const uint8_t* tiles;
  int n_rows, padded_cols;  // of the activations
  uint8_t* weights;         // one slice of B tiles
  uint8_t* sums;

  // Converts a row of a tile of sums to floats.
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

  // Writes the sums of 32 rows x two panels (or one: first == second) to the output.
  void write_sums(const uint8_t* from, int first, int second, int row, int row_end,
                  const GemmOutput& out) const {
    for (int m = 0; m < 32 && row + m < row_end; ++m) {
      const uint8_t* sums = from + m / 16 * 2 * kTileBytes + m % 16 * 64;
      store_output<Avx512>(w, first, 0, finish(sums, row + m), row + m, out);
      if (second != first)
        store_output<Avx512>(w, second, 0, finish(sums + kTileBytes, row + m), row + m, out);
    }
  }

  // Whether the output can be written by non-temporal stores of whole cache lines.
  bool streams(const GemmOutput& out) const {
    return static_cast<size_t>(n_rows) * w.rows * sizeof(float) >= kStreamedBytes &&
           w.rows % kPanelRows == 0 && out.stride % kPanelRows == 0 &&
           reinterpret_cast<uintptr_t>(out.values) % 64 == 0;
  }

  // Writes the sums of a block row by row, in runs as long as possible: rows of an output are a
  // page or more apart.
  template <bool Stream>
  void write_block(int begin, int end, int row, int row_end, const GemmOutput& out) const {
    const ptrdiff_t pair_bytes = static_cast<ptrdiff_t>((row_end - row + 31) / 32) * 4 * kTileBytes;
    for (int m = row; m < row_end; ++m) {
      const BlockSums block = block_sums(sums, (m - row) / 32);
      const int tile = (m - row) / 16 % 2 * 2, at = (m - row) % 16 * 64;
      const uint8_t* from[2] = {block.tile(tile) + at, block.tile(tile + 1) + at};
      for (int panel = begin; panel < end; ++panel) {
        const int i = panel - begin;
        __m512 sum = finish(from[i % 2] + i / 2 * pair_bytes, m);
        if constexpr (Stream) {
          const int first = panel * kPanelRows;
          if (w.row_scales != nullptr)
            sum = _mm512_mul_ps(sum, _mm512_loadu_ps(w.row_scales + first));
          if (out.bias != nullptr) sum = _mm512_add_ps(sum, _mm512_loadu_ps(out.bias + first));
          _mm512_stream_ps(out.values + m * out.stride + first, sum);
        } else {
          store_output<Avx512>(w, panel, 0, sum, m, out);
        }
      }
    }
    if (Stream) _mm_sfence();  // non-temporal stores must precede the signal to other threads
  }

  const uint8_t* panel_slice(int panel, int slice) const {
    return w.data + static_cast<size_t>(panel) * w.panel_bytes +
           static_cast<size_t>(slice * kSliceK<N> / Source::kUnitK) * Source::kUnitBytes;
  }

  // Unpacks steps [first, first + n) of a panel, to every second tile from `to` on.
  void unpack(int panel, int first, int n, uint8_t* to) const {
    const uint8_t* data = w.data + static_cast<size_t>(panel) * w.panel_bytes;
#pragma GCC unroll 1
    for (int s = first; s < first + n; ++s, to += 2 * kTileBytes) Source::unpack(w, data, s, to);
  }

  // Multiplies a pair of panels with rows [row, row_end), over one slice of columns.
  // Prefetches the next packed weights, and activations from `ahead` on, to the second-level
  // cache.
  void slice(int panel, int panel_end, int slice_index, int row, int row_end, uint8_t* pair_sums,
             bool first_pair, const uint8_t* next, const uint8_t* ahead) const {
    const int first = slice_index * kSliceSteps;
    const int left = (w.padded_cols + N::kTileK - 1) / N::kTileK - first,
              n_steps = left < kSliceSteps ? left : kSliceSteps;
    const int second = panel + 1 < panel_end ? panel + 1 : panel;
    const uint8_t *b0 = weights, *b1 = weights + kTileBytes;
    int b_stride = 2 * kTileBytes;
    if constexpr (Direct) {
      b0 = panel_slice(panel, slice_index), b1 = panel_slice(second, slice_index),
      b_stride = kTileBytes;
    } else {
      unpack(panel, first, n_steps, weights);
      unpack(second, first, n_steps, weights + kTileBytes);
    }
    const int n_blocks = (row_end - row + 31) / 32;
    const int bytes = static_cast<int>(static_cast<int64_t>(n_steps) * N::kTileK / Source::kUnitK *
                                       Source::kUnitBytes);
    const int per_block = (bytes / 64 + n_blocks - 1) / n_blocks;
    BlockSums last;
    for (int m = 0; m < n_blocks; ++m) {
      const uint8_t* a = slice_tiles<N>(tiles, n_rows, padded_cols, slice_index, row + 32 * m);
      if (next != nullptr) {
        for (int l = m * per_block; l < (m + 1) * per_block; ++l) {
          __builtin_prefetch(next + l * 64, 0, 2);
          __builtin_prefetch(next + w.panel_bytes + l * 64, 0, 2);
        }
      }
      const Handover sums{last, block_sums(pair_sums, m), slice_index == 0};
      if (first_pair) {
        multiply<N, true>(a, b0, b1, b_stride, n_steps, sums, ahead);
      } else {
        multiply<N, false>(a, b0, b1, b_stride, n_steps, sums, ahead);
      }
      last = sums.next;
      ahead += kAheadBytes;
    }
    store_sums(last);
  }

  void block(int begin, int end, int row, int row_end, const GemmOutput& out) const {
    const int n_slices = (w.padded_cols + kSliceK<N> - 1) / kSliceK<N>;
    const int blocks = (row_end - row + 31) / 32;
    for (int s = 0; s < n_slices; ++s) {
      for (int panel = begin; panel < end; panel += 2) {
        const uint8_t* next = panel + 2 < end    ? panel_slice(panel + 2, s)
                              : s + 1 < n_slices ? panel_slice(begin, s + 1)
                                                 : panel_slice(end, 0);
        uint8_t* pair_sums =
            sums + static_cast<ptrdiff_t>((panel - begin) / 2) * blocks * 4 * kTileBytes;
        const uint8_t* ahead =
            slice_tiles<N>(tiles, n_rows, padded_cols, s + 1 < n_slices ? s + 1 : 0, row) +
            static_cast<ptrdiff_t>((panel - begin) / 2) * blocks * kAheadBytes;
        slice(panel, end, s, row, row_end, pair_sums, panel == begin, next, ahead);
      }
    }
    if (streams(out)) {
      write_block<true>(begin, end, row, row_end, out);
    } else {
      write_block<false>(begin, end, row, row_end, out);
    }
  }

  // Returns step `step` of a panel as a tile; prefetches what is kAhead bytes further.
  static constexpr int kStepBytes = Source::kUnitBytes / (Source::kUnitK / N::kTileK);
  [[gnu::always_inline]] const uint8_t* step_tile(const uint8_t* panel, int step,
                                                  uint8_t* buffer) const {
    constexpr int kAhead = 4096;
    const uint8_t* packed = panel + static_cast<ptrdiff_t>(step) * kStepBytes;
    for (int l = 0; l < kStepBytes; l += 64) __builtin_prefetch(packed + kAhead + l, 0, 3);
    if constexpr (Direct) {
      return packed;
    } else {
      Source::unpack(w, panel, step, buffer);
      return buffer;
    }
  }

  template <int Blocks>
  [[gnu::always_inline]] void few_rows_step(int step, const uint8_t* b0, const uint8_t* b1) const {
    const uint8_t* a = slice_tiles<N>(tiles, n_rows, padded_cols, step / kSliceSteps, 0) +
                       step % kSliceSteps * 2 * kTileBytes;
    tile_load<6>(b0, 64), tile_load<4>(a, 64);
    N::template dot<0, 4, 6>();
    tile_load<7>(b1, 64);
    N::template dot<1, 4, 7>();
    if constexpr (Blocks == 2) {
      tile_load<5>(a + kTileBytes, 64);
      N::template dot<2, 5, 6>();
      N::template dot<3, 5, 7>();
    }
  }

  // Multiplies up to 16 * Blocks rows over all columns: sums stay in tiles, and the next step is
  // unpacked during the products of the current one. The two panels are far apart, to read two
  // streams.
  template <int Blocks>
  void few_rows(int begin, int end, const GemmOutput& out) const {
    const int n_steps = (w.padded_cols + N::kTileK - 1) / N::kTileK, n = (end - begin + 1) / 2;
    for (int i = 0; i < n; ++i) {
      const int first = begin + i, second = std::min(first + n, end - 1);
      const uint8_t* panels[2] = {w.data + static_cast<size_t>(first) * w.panel_bytes,
                                  w.data + static_cast<size_t>(second) * w.panel_bytes};
      tile_zero<0>(), tile_zero<1>(), tile_zero<2>(), tile_zero<3>();
      const uint8_t* b[2] = {};
#pragma GCC unroll 1
      for (int step = -1; step < n_steps; ++step) {
        if (step >= 0) few_rows_step<Blocks>(step, b[0], b[1]);
        if (step + 1 == n_steps) break;
#pragma GCC unroll 1
        for (int p = 0; p < 2; ++p) {
          b[p] = step_tile(panels[p], step + 1, weights + ((step + 1) % 2 * 2 + p) * kTileBytes);
        }
      }
      store_sums({sums});
      write_sums(sums, first, second, 0, n_rows, out);
    }
  }

  // For GemmStrategy::kFewTiles.
  template <int Rows>
  static void few_rows_gemm(const PanelMatrix& w, const uint8_t* tiles, int n_rows, int begin,
                            int end, const GemmOutput& out, uint8_t* scratch) {
    TileConfig config;
    const int rows[2] = {std::min(n_rows, 16), std::max(n_rows - 16, 1)};
    for (int t = 0; t < 8; ++t) config.set(t, t >= 6 ? 16 : rows[t == 2 || t == 3 || t == 5], 64);
    const TileScope scope(config);
    const TileProduct product{
        w, tiles, n_rows, round_up(w.cols, 256), scratch, scratch + kWeightsBytes};
    product.template few_rows<Rows / 16>(begin, end, out);
  }

  // For GemmStrategy::kTiles: blocks of rows of nearly equal size.
  template <int MostRows>
  static void gemm(const PanelMatrix& w, const uint8_t* tiles, int n_rows, int begin, int end,
                   const GemmOutput& out, uint8_t* scratch) {
    static_assert(MostRows <= amx::kBlockRows);
    TileConfig config;
    for (int t = 0; t < 8; ++t) config.set(t, 16, 64);
    const TileScope scope(config);
    const TileProduct product{
        w, tiles, n_rows, round_up(w.cols, 256), scratch, scratch + kWeightsBytes};
    const int n_blocks = (n_rows + MostRows - 1) / MostRows;
    const int block_rows = round_up((n_rows + n_blocks - 1) / n_blocks, 32);
    for (int row = 0; row < n_rows; row += block_rows) {
      const int row_end = std::min(row + block_rows, n_rows);
      for (int panel = begin; panel < end; panel += 2 * kBlockPairs) {
        product.block(panel, std::min(panel + 2 * kBlockPairs, end), row, row_end, out);
      }
    }
  }
};

#include "kernels/amx/gemm_between.inl"

// --- INT8 with scales in a row ---

// A pass multiplies a panel with up to kMostBlocks blocks of activations. Work items are a batch of
// groups times a block. While the tiles compute an item, vectors scale and add the sums of the
// previous item, and unpack the codes of the next batch.
template <class Q>
struct Int8Tiles {
  using Panel = Int8Panel<Avx512, Q>;
  using L = PanelLayout<Q>;
  static constexpr int kRows = 16;  // maximum rows of a block of activations
  // groups with separate sums in a step
  static constexpr int kParts = Q::kGroupSize == 16 ? 2 : 1;
  // groups whose sums are in tiles at a time
  static constexpr int kBatch = 4;
  static constexpr int kStepsAtOnce = kBatch / kParts;
  static constexpr int kMostBlocks = 8;
  static_assert(L::kMaxCode - L::kBias <= 127 && L::kBias <= 128);

  struct alignas(64) Buffers {
    uint8_t codes[2][kStepsAtOnce * 512];
    int32_t sums[2][kBatch * kRows * 16];
    __m512 totals[kMostBlocks][kRows];  // for several blocks
  };

  // Blocks [first_block, first_block + n_blocks) of x, times one panel.
  struct Pass {
    const PanelMatrix& w;
    const Int8Rows& x;
    const uint8_t* panel;
    int first_block, n_blocks, n_steps;
    __m512i table;
    Buffers& buffers;

    const uint8_t* unit_of(int step) const {
      return panel + static_cast<size_t>(step / L::kSteps) * L::kUnitBytes;
    }
    int n_batches() const { return (n_steps + kStepsAtOnce - 1) / kStepsAtOnce; }
    int steps_of(int batch) const {  // a full or half batch, as the number of steps is even
      const int left = n_steps - batch * kStepsAtOnce;
      return left < kStepsAtOnce ? left : kStepsAtOnce;
    }
    ptrdiff_t rows_of(int batch, int block) const {
      return (static_cast<ptrdiff_t>(first_block + block) * x.n_steps + batch * kStepsAtOnce) *
             x.block_rows;
    }
  };

  // Unpacks the codes of a batch, minus the bias, to B tiles of 32 (16) columns.
  [[gnu::always_inline]] static void unpack(const Pass& pass, int batch) {
    uint8_t* tile = pass.buffers.codes[batch % 2];
    const __m512i bias = _mm512_set1_epi8(static_cast<char>(L::kBias));
    const int first = batch * kStepsAtOnce, n = pass.steps_of(batch);
#pragma GCC unroll 1
    for (int s = first; s < first + n; ++s, tile += 512) {
      const uint8_t* unit = pass.unit_of(s);
      const int step = s % L::kSteps;
      constexpr int kLines = (L::kUnitBytes / 64 + L::kSteps - 1) / L::kSteps;
      for (int l = 0; l < kLines; ++l)
        __builtin_prefetch(unit + 4096 + (step * kLines + l) * 64, 0, 3);
      __m512i w[8];
      Panel::load_codes(unit, step, 0, pass.table, w);
#pragma GCC unroll 8
      for (int j = 0; j < 8; ++j) {
        // Tables of codebooks contain levels without bias.
        const bool as_is = L::kBias == 0 || Q::kIsCodebook;
        _mm512_store_si512(tile + 64 * j, as_is ? w[j] : _mm512_sub_epi8(w[j], bias));
      }
    }
  }

  // Computes the sums of group I of a batch.
  template <int I>
  [[gnu::always_inline]] static void dot_group(const int8_t* x, int block_rows,
                                               const uint8_t* codes) {
    tile_zero<I>();
    tile_load<4 + I % 2>(x + 32 * block_rows * (I / kParts) + 16 * (I % kParts), 32);
    tile_load<6 + I % 2>(codes + 512 / kParts * I, 64);
    tile_dot_signed<I, 4 + I % 2, 6 + I % 2>();
  }
  [[gnu::always_inline]] static void dot_batch(const Pass& pass, int batch, int block) {
    const int8_t* values = pass.x.values + pass.rows_of(batch, block) * 32;
    const uint8_t* codes = pass.buffers.codes[batch % 2];
    dot_group<0>(values, pass.x.block_rows, codes);
    dot_group<1>(values, pass.x.block_rows, codes);
    if (pass.steps_of(batch) < kStepsAtOnce) return;
    dot_group<2>(values, pass.x.block_rows, codes);
    dot_group<3>(values, pass.x.block_rows, codes);
  }
  [[gnu::always_inline]] static void store_sums(int32_t* sums) {
    tile_store<0>(sums, 64);
    tile_store<1>(sums + kRows * 16, 64);
    tile_store<2>(sums + 2 * kRows * 16, 64);
    tile_store<3>(sums + 3 * kRows * 16, 64);
  }

  // Scales a batch's integer sums and adds them to the totals of M rows, in the order of operations
  // of Int8Panel.
  template <int M>
  [[gnu::always_inline]] static void add_batch(const Pass& pass, int batch, int block,
                                               const int32_t* sums, __m512 (&acc)[M]) {
    const ActivationGroup* groups = pass.x.groups + pass.rows_of(batch, block);
    const ActivationHalves* halves = pass.x.halves + pass.rows_of(batch, block);
    const int first = batch * kStepsAtOnce, n = pass.steps_of(batch);
#pragma GCC unroll 1
    for (int s = first; s < first + n; ++s, sums += kParts * kRows * 16) {
      const uint8_t* unit = pass.unit_of(s);
      const auto u = Panel::unit_scales(unit, 0);
      __m512 scale[kParts], offset[kParts];
      for (int p = 0; p < kParts; ++p) {
        const int step = s % L::kSteps, group = kParts == 2 ? 2 * step + p : L::group_of(step * 32);
        scale[p] = Panel::scale(unit, u, group, 0);
        if constexpr (Q::kHasOffset) offset[p] = Panel::offset(unit, u, group, 0);
      }
#pragma GCC unroll 16
      for (int m = 0; m < M; ++m) {
        const ActivationGroup& g = groups[m];
        const __m512 xs = _mm512_set1_ps(g.scale);
        for (int p = 0; p < kParts; ++p) {
          const __m512 d = _mm512_cvtepi32_ps(_mm512_load_si512(sums + (p * kRows + m) * 16));
          acc[m] = _mm512_fmadd_ps(d, _mm512_mul_ps(scale[p], xs), acc[m]);
        }
        for (int p = 0; Q::kHasOffset && p < kParts; ++p) {
          const float sum = kParts == 2 ? halves[m].scaled_sums[p] : g.scaled_sum;
          acc[m] = _mm512_fmadd_ps(offset[p], _mm512_set1_ps(sum), acc[m]);
        }
      }
      groups += pass.x.block_rows, halves += pass.x.block_rows;
    }
  }
  template <int M>
  [[gnu::always_inline]] static void add_to_totals(const Pass& pass, int batch, int block,
                                                   const int32_t* sums) {
    __m512* totals = pass.buffers.totals[block];
    __m512 acc[M];
#pragma GCC unroll 16
    for (int m = 0; m < M; ++m) acc[m] = batch == 0 ? _mm512_setzero_ps() : totals[m];
    add_batch<M>(pass, batch, block, sums, acc);
#pragma GCC unroll 16
    for (int m = 0; m < M; ++m) totals[m] = acc[m];
  }

  // One block; its totals stay in registers.
  template <int M>
  static void one_block(const Pass& pass) {
    __m512 acc[M];
#pragma GCC unroll 16
    for (int m = 0; m < M; ++m) acc[m] = _mm512_setzero_ps();
    const int n = pass.n_batches();
    unpack(pass, 0);
    dot_batch(pass, 0, 0);
    if (n > 1) unpack(pass, 1);
    store_sums(pass.buffers.sums[0]);
#pragma GCC unroll 1
    for (int batch = 0; batch < n; ++batch) {
      if (batch + 1 < n) dot_batch(pass, batch + 1, 0);
      if (batch + 2 < n) unpack(pass, batch + 2);
      add_batch<M>(pass, batch, 0, pass.buffers.sums[batch % 2], acc);
      if (batch + 1 < n) store_sums(pass.buffers.sums[(batch + 1) % 2]);
    }
#pragma GCC unroll 16
    for (int m = 0; m < M; ++m) pass.buffers.totals[0][m] = acc[m];
  }

  // Several blocks; M rows of the last one exist.
  template <int M>
  static void some_blocks(const Pass& pass) {
    const int n = pass.n_batches();
    unpack(pass, 0);
    dot_batch(pass, 0, 0);
    if (n > 1) unpack(pass, 1);
    int32_t *sums = pass.buffers.sums[0], *next_sums = pass.buffers.sums[1];
    store_sums(sums);
    for (int batch = 0; batch < n; ++batch) {
      for (int block = 0; block < pass.n_blocks; ++block, std::swap(sums, next_sums)) {
        const bool last = block + 1 == pass.n_blocks;
        const int next = last ? batch + 1 : batch;
        if (next < n) dot_batch(pass, next, last ? 0 : block + 1);
        if (last && next + 1 < n) unpack(pass, next + 1);
        if (last) {
          add_to_totals<M>(pass, batch, block, sums);
        } else {
          add_to_totals<kRows>(pass, batch, block, sums);
        }
        if (next < n) store_sums(next_sums);
      }
    }
  }

  template <int M>
  static void panels(const PanelMatrix& w, const Int8Rows& x, int first_block, int n_blocks,
                     int n_rows, int begin, int end, const GemmOutput& out) {
    TileConfig config;
    const int rows = n_blocks == 1 ? M : kRows;
    for (int t = 0; t < 4; ++t) config.set(t, rows, 64);
    for (int t = 4; t < 6; ++t) config.set(t, rows, 32 / kParts);
    for (int t = 6; t < 8; ++t) config.set(t, 8 / kParts, 64);
    const TileScope scope(config);
    Buffers buffers;
    __m512i table = Panel::table(w);
    if (Q::kIsCodebook)
      table = _mm512_sub_epi8(table, _mm512_set1_epi8(static_cast<char>(L::kBias)));
    const int first_row = first_block * x.block_rows;
    const int last_row = std::min(n_rows, first_row + n_blocks * x.block_rows);
    for (int panel = begin; panel < end; ++panel) {
      const uint8_t* data = w.data + static_cast<size_t>(panel) * w.panel_bytes;
      const Pass pass{w, x, data, first_block, n_blocks, w.padded_cols / 32, table, buffers};
      if (n_blocks == 1) {
        one_block<M>(pass);
      } else {
        some_blocks<M>(pass);
      }
      for (int row = first_row; row < last_row; ++row) {
        const int at = row - first_row;
        store_output<Avx512>(w, panel, 0, buffers.totals[at / kRows][at % kRows], row, out);
      }
    }
  }

  static void gemm(const PanelMatrix& w, const Int8Rows& x, int n_rows, int begin, int end,
                   const GemmOutput& out) {
    const int n_blocks = (n_rows + x.block_rows - 1) / x.block_rows;
    // Number of blocks whose values and groups fit the second-level cache.
    const int most = std::clamp((1 << 20) / (2 * kRows * w.padded_cols), 1, kMostBlocks);
    for (int first = 0; first < n_blocks; first += most) {
      const int n = std::min(most, n_blocks - first);
      // rows of the last block
      const int rows = std::min(n_rows - (first + n - 1) * x.block_rows, kRows);
      const auto product = rows <= 8 ? &panels<8> : rows <= 12 ? &panels<12> : &panels<kRows>;
      product(w, x, first, n, n_rows, begin, end, out);
    }
  }
};

// --- Table of kernels ---

// Returns the product by tiles of N. Tile: unpacks a tile of Source in eighths.
template <GemmPlan Plan, class N, class Source, class Tile, bool Direct, int Bias>
consteval TileKernels::TileGemm tile_product() {
  using Product = TileProduct<N, Source, Direct, Bias>;
  if constexpr (Plan.strategy == GemmStrategy::kFewTiles) {
    return &Product::template few_rows_gemm<Plan.block>;
  } else if constexpr (Plan.strategy == GemmStrategy::kTiles) {
    return &Product::template gemm<Plan.block>;
  } else {
    static_assert(Plan.strategy == GemmStrategy::kTilesBetween && !Direct);
    return &BetweenProduct<N, Source, Tile, Bias>::template gemm<Plan.block>;
  }
}

template <class Q, GemmPlan Plan>
consteval TileKernels::TileGemm tile_entry() {
  if constexpr (Plan.path == GemmPath::kBf16Tiles && Plan.multiplies(panel_kind_of<Q>(false))) {
    if constexpr (panel::Codes<Q>) {
      return tile_product<Plan, Bf16, TileSource<Q>, CodesInEighths<Q>, false, 0>();
    } else {
      return tile_product<Plan, Bf16, TileSource<Q>, void, std::is_same_v<Q, quant::BF16>, 0>();
    }
  } else if constexpr (Plan.path == GemmPath::kInt8RowTiles &&
                       Plan.multiplies(panel_kind_of<Q>(true))) {
    return tile_product<Plan, Int8, ByteSource<Q>, BytesInEighths<Q>, Q::kBits == 8,
                        PanelLayout<Q>::kBias>();
  } else {
    return nullptr;
  }
}

template <class Q, GemmPlan Plan>
consteval GemmKernels::Int8Gemm int8_entry() {
  if constexpr (Plan.path == GemmPath::kInt8Tiles && Plan.multiplies(panel_kind_of<Q>(false))) {
    static_assert(Plan.strategy == GemmStrategy::kScaledTiles && Plan.block == Int8Tiles<Q>::kRows);
    return &Int8Tiles<Q>::gemm;
  } else {
    return nullptr;
  }
}

// The kernels of all plans for the encoding Q.
template <class Q, class Index = std::make_index_sequence<std::size(amx::kPlans)>>
struct KernelsOfPlans;
template <class Q, size_t... I>
struct KernelsOfPlans<Q, std::index_sequence<I...>> {
  static constexpr TileKernels::TileGemm kTiles[] = {tile_entry<Q, amx::kPlans[I]>()...};
  static constexpr GemmKernels::Int8Gemm kInt8[] = {int8_entry<Q, amx::kPlans[I]>()...};
};

template <class... Q>
consteval TileKernels make_tile_kernels(std::tuple<Q...>*) {
  return {.name = "amx",
          .plans = amx::kPlans,
          .scratch_bytes = static_cast<size_t>(2 * kWeightsBytes) + kSumsBytes,
          .bf16_tile_bytes = &tile_bytes<Bf16>,
          .pack_bf16 = &pack_bf16,
          .int8_tile_bytes = &int8_tile_bytes,
          .pack_int8 = &pack_int8,
          .tiles = {KernelsOfPlans<Q>::kTiles...},
          .int8 = {KernelsOfPlans<Q>::kInt8...}};
}

}  // namespace

constinit const TileKernels tiles_here::kTileKernels =
    make_tile_kernels(static_cast<panel::All*>(nullptr));

}  // namespace penstock
