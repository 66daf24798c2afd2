// Matrix products of many rows with vdpbf16ps: a vector has two columns of each of the 16 rows of a
// panel.
//
// Panels of BF16 are operands without conversion. Activations are rounded to BF16 once, in blocks
// of up to six rows, by pairs of columns: a block times four panels needs ten loads for 24
// products, and the 24 accumulators stay in registers over a slice of columns. A slice of four
// panels stays in the second-level cache while all blocks pass.
#include <immintrin.h>

#include "kernels/avx512bf16/plans.h"
#include "kernels/avx512bf16/tables.h"
#include "kernels/gemm_kernels.h"
#include "kernels/generic/simd_concepts.h"
#include "kernels/panel_layout.h"

namespace penstock {
namespace {

#include "kernels/avx512/gemm_simd.h"
#include "kernels/generic/float_gemm.inl"

constexpr GemmPlan kPlan = avx512bf16::kPlans[0];
static_assert(std::size(avx512bf16::kPlans) == 1 && kPlan.strategy == GemmStrategy::kPairs);
constexpr int kMostRows = kPlan.block;
constexpr int kPanels = kPlan.panels;
constexpr int kSliceCols = 2048;
// bytes ahead in each panel, while it is read from memory
constexpr int kAheadBytes = kPlan.prefetch.ahead;

// Blocks of rows of nearly equal size.
struct RowBlocks {
  int n, size, larger;  // the first `larger` blocks have size + 1 rows

  explicit RowBlocks(int n_rows)
      : n((n_rows + kMostRows - 1) / kMostRows), size(n_rows / n), larger(n_rows % n) {}
  int first(int block) const { return block * size + (block < larger ? block : larger); }
  int rows(int block) const { return size + (block < larger ? 1 : 0); }
  int block_of(int row) const {
    const int in_larger = larger * (size + 1);
    return row < in_larger ? row / (size + 1) : larger + (row - in_larger) / size;
  }
};

size_t pair_bytes(int total_rows, int padded_cols) {
  return static_cast<size_t>(total_rows) * padded_cols * 2;
}

// Address of a block of activations: [slice of columns][block][pair of columns][row of the
// block][2].
uint8_t* block_pairs(uint8_t* pairs, int total_rows, int padded_cols, int slice, int first_row) {
  const int left = padded_cols - slice * kSliceCols, cols = left < kSliceCols ? left : kSliceCols;
  return pairs + pair_bytes(total_rows, kSliceCols) * slice +
         static_cast<size_t>(first_row) * cols * 2;
}

void pack_pairs(const FloatRows& x, int total_rows, int first_row, int n_rows, int cols,
                int padded_cols, uint8_t* pairs) {
  const RowBlocks blocks(total_rows);
  for (int row = first_row; row < first_row + n_rows; ++row) {
    const int block = blocks.block_of(row), first = blocks.first(block),
              step = 4 * blocks.rows(block);
    const float* from = x.values + row * x.stride;
    uint8_t* to = nullptr;
    for (int k = 0; k < padded_cols; k += 32) {
      if (k % kSliceCols == 0)
        to = block_pairs(pairs, total_rows, padded_cols, k / kSliceCols, first) + 4 * (row - first);
      const int n = cols > k ? cols - k : 0;
      const __m512 low = Avx512::load_f32(from + k, n),
                   high = Avx512::load_f32(from + k + 16, n > 16 ? n - 16 : 0);
      alignas(64) uint8_t words[64];
      _mm512_store_si512(words, reinterpret_cast<__m512i>(_mm512_cvtne2ps_pbh(high, low)));
#pragma GCC unroll 16
      for (int i = 0; i < 16; ++i, to += step) __builtin_memcpy(to, words + 4 * i, 4);
    }
  }
}

// One block of rows times adjacent panels.
struct BlockProduct {
  const PanelMatrix& w;
  const GemmOutput& out;
  int panel, row;  // first panel, first row
  int first_col, n_pairs;
  const uint8_t* x;
  bool is_last;  // whether this is the last slice

  template <int M, int P>
  [[gnu::always_inline]] void load_sums(__m512 (&acc)[P][M]) const {
    for (int i = 0; i < P; ++i) {
      const int first = (panel + i) * kPanelRows;
      for (int m = 0; m < M; ++m) {
        acc[i][m] = first_col == 0 ? _mm512_setzero_ps()
                                   : Avx512::load_f32(out.values + (row + m) * out.stride + first,
                                                      w.rows - first);
      }
    }
  }
  template <int M, int P>
  [[gnu::always_inline]] void store_sums(const __m512 (&acc)[P][M]) const {
    for (int m = 0; m < M; ++m) {
      for (int i = 0; i < P; ++i) {
        const int first = (panel + i) * kPanelRows;
        if (is_last) {
          store_output<Avx512>(w, panel + i, 0, acc[i][m], row + m, out);
        } else {
          Avx512::store(out.values + (row + m) * out.stride + first, acc[i][m], w.rows - first);
        }
      }
    }
  }

  template <int M, int P, bool Ahead>
  void run() const {
    __m512 acc[P][M];
    load_sums(acc);
    const uint8_t* weights = w.data + static_cast<size_t>(panel) * w.panel_bytes + first_col * 32;
    const uint8_t* values = x;
#pragma GCC unroll 2
    for (int k = 0; k < n_pairs; ++k, weights += 64, values += 4 * M) {
      __m512bh pairs[P];
      for (int i = 0; i < P; ++i) {
        const uint8_t* line = weights + static_cast<size_t>(i) * w.panel_bytes;
        if constexpr (Ahead) __builtin_prefetch(line + kAheadBytes, 0, 3);
        pairs[i] = reinterpret_cast<__m512bh>(_mm512_load_si512(line));
      }
      for (int m = 0; m < M; ++m) {
        const auto both = reinterpret_cast<__m512bh>(Avx512::splat_int(values + 4 * m));
        for (int i = 0; i < P; ++i) acc[i][m] = _mm512_dpbf16_ps(acc[i][m], pairs[i], both);
      }
    }
    store_sums(acc);
  }

  template <int P, bool Ahead>
  void run(int n_rows) const {
    switch (n_rows) {
      case 1: return run<1, P, Ahead>();
      case 2: return run<2, P, Ahead>();
      case 3: return run<3, P, Ahead>();
      case 4: return run<4, P, Ahead>();
      case 5: return run<5, P, Ahead>();
      default: return run<6, P, Ahead>();
    }
  }
};

// Multiplies P panels with all rows.
template <int P>
void multiply_panels(const PanelMatrix& w, const uint8_t* pairs, int n_rows, int panel,
                     const GemmOutput& out) {
  const RowBlocks blocks(n_rows);
  const int padded = (w.cols + 255) / 256 * 256;
  for (int col = 0; col < w.cols; col += kSliceCols) {
    const bool is_last = col + kSliceCols >= w.cols;
    const int n_pairs = is_last ? (w.cols - col + 1) / 2 : kSliceCols / 2;
    for (int b = 0; b < blocks.n; ++b) {
      const int row = blocks.first(b);
      const uint8_t* x =
          block_pairs(const_cast<uint8_t*>(pairs), n_rows, padded, col / kSliceCols, row);
      const BlockProduct product{w, out, panel, row, col, n_pairs, x, is_last};
      if (b == 0) {
        product.run<P, true>(blocks.rows(b));
      } else {
        product.run<P, false>(blocks.rows(b));
      }
    }
  }
}

void multiply(const PanelMatrix& w, const uint8_t* pairs, int n_rows, int begin, int end,
              const GemmOutput& out, uint8_t*) {
  int panel = begin;
  for (; panel + kPanels <= end; panel += kPanels)
    multiply_panels<kPanels>(w, pairs, n_rows, panel, out);
  for (; panel < end; ++panel) multiply_panels<1>(w, pairs, n_rows, panel, out);
}

template <class Q>
struct KernelsOfPlans {
  static constexpr TileKernels::TileGemm kTiles[] = {std::is_same_v<Q, quant::BF16> ? &multiply
                                                                                    : nullptr};
};
constexpr GemmKernels::Int8Gemm kNoInt8[1] = {};

template <class... Q>
consteval TileKernels make_tile_kernels(std::tuple<Q...>*) {
  TileKernels table{.name = "avx512bf16",
                    .plans = avx512bf16::kPlans,
                    .bf16_tile_bytes = &pair_bytes,
                    .pack_bf16 = &pack_pairs,
                    .tiles = {KernelsOfPlans<Q>::kTiles...}};
  for (auto& int8 : table.int8) int8 = kNoInt8;
  return table;
}

}  // namespace

constinit const TileKernels kAvx512Bf16TileKernels =
    make_tile_kernels(static_cast<panel::All*>(nullptr));

}  // namespace penstock
