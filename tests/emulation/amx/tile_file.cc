#include "emulation/amx/tile_file.h"

#include <immintrin.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace penstock::tile_file {
namespace {

constexpr int kTiles = 8, kMostRows = 16, kMostBytes = 64;

struct Tile {
  alignas(64) uint8_t row[kMostRows][kMostBytes];
  int rows, row_bytes;  // 0: not configured
};

struct TileFile {
  Tile tiles[kTiles];
  bool configured;
};

thread_local constinit TileFile file = {};

// The processor raises an exception. No logger: templates of headers must not be compiled for
// AVX-512.
void require(bool held, const char* instruction, const char* what, int tile = -1) {
  if (held) return;
  if (tile < 0) {
    std::fprintf(stderr, "emulated tiles: %s: %s\n", instruction, what);
  } else {
    std::fprintf(stderr, "emulated tiles: %s: %s (tile %d of %d x %d bytes)\n", instruction, what,
                 tile, file.tiles[tile].rows, file.tiles[tile].row_bytes);
  }
  std::abort();
}

Tile& configured(int tile, const char* instruction) {
  require(file.configured, instruction, "no configuration is loaded");
  require(tile >= 0 && tile < kTiles, instruction, "no such tile");
  require(file.tiles[tile].rows > 0, instruction, "the tile is not configured", tile);
  return file.tiles[tile];
}

struct Operands {
  Tile& c;
  const Tile &a, &b;
};
Operands operands(int c, int a, int b, const char* instruction) {
  const Operands all{configured(c, instruction), configured(a, instruction),
                     configured(b, instruction)};
  require(c != a && c != b && a != b, instruction, "an operand is given twice");
  const int tiles[] = {c, a, b};
  for (const int tile : tiles)
    require(file.tiles[tile].row_bytes % 4 == 0, instruction, "rows are no multiple of 4 bytes",
            tile);
  require(all.c.rows == all.a.rows, instruction, "the sums' rows are not those of A", c);
  require(all.c.row_bytes == all.b.row_bytes, instruction, "the sums' columns are not those of B",
          c);
  require(all.a.row_bytes / 4 == all.b.rows, instruction, "B's rows are not A's columns", b);
  return all;
}

// Whole rows, and rows in fours, are multiplied: nobody reads what that leaves beyond the
// configured sums.
__m512i row_of(const Tile& tile, int row) { return _mm512_load_si512(tile.row[row]); }
__m512i dword_of(const Tile& tile, int row, int at) {
  int32_t value;
  std::memcpy(&value, &tile.row[row][4 * at], 4);
  return _mm512_set1_epi32(value);
}

// Not inlined: between two writes of MXCSR the compiler would move floating-point operations past
// them.
[[gnu::noinline]] void sum_bf16_products(const Operands& of) {
  const __m512i upper = _mm512_set1_epi32(static_cast<int32_t>(0xffff0000u));
  const auto even = [](__m512i pair) { return _mm512_castsi512_ps(_mm512_slli_epi32(pair, 16)); };
  const auto odd = [&](__m512i pair) { return _mm512_castsi512_ps(_mm512_and_si512(pair, upper)); };
  constexpr int kAtOnce = 4;  // rows, whose chains of additions run side by side
  for (int m = 0; m < of.a.rows; m += kAtOnce) {
    __m512 evens[kAtOnce] = {}, odds[kAtOnce] = {};
    for (int k = 0; k < of.b.rows; ++k) {
      const __m512i b = row_of(of.b, k);
      for (int i = 0; i < kAtOnce; ++i) {
        const __m512i a = dword_of(of.a, m + i, k);
        evens[i] = _mm512_fmadd_ps(even(a), even(b), evens[i]);
        odds[i] = _mm512_fmadd_ps(odd(a), odd(b), odds[i]);
      }
    }
    for (int i = 0; i < kAtOnce; ++i) {
      float* sums = reinterpret_cast<float*>(of.c.row[m + i]);
      _mm512_store_ps(sums, _mm512_add_ps(_mm512_load_ps(sums), _mm512_add_ps(evens[i], odds[i])));
    }
  }
}

void sum_byte_products(const Operands& of, bool b_is_signed) {
  const __m512i top = _mm512_set1_epi8(static_cast<char>(0x80));
  for (int m = 0; m < of.a.rows; ++m) {
    __m512i sum = row_of(of.c, m);
    for (int k = 0; k < of.b.rows; ++k) {
      const __m512i a = dword_of(of.a, m, k), b = row_of(of.b, k);
      if (b_is_signed) {  // b = (b + 128) - 128
        sum = _mm512_dpbusd_epi32(sum, _mm512_xor_si512(b, top), a);
        sum = _mm512_sub_epi32(sum, _mm512_dpbusd_epi32(_mm512_setzero_si512(), top, a));
      } else {
        sum = _mm512_dpbusd_epi32(sum, b, a);
      }
    }
    _mm512_store_si512(of.c.row[m], sum);
  }
}

}  // namespace

void configure(const void* config) {
  constexpr char kName[] = "ldtilecfg";
  uint8_t bytes[64];
  std::memcpy(bytes, config, sizeof bytes);
  file = {};
  if (bytes[0] == 0) return;
  require(bytes[0] == 1, kName, "the palette is neither 0 nor 1");
  require(bytes[1] == 0, kName, "a start row, which only an interrupted load has");
  for (int i = 2; i < 16; ++i) require(bytes[i] == 0, kName, "reserved bytes are not zero");
  for (int t = 0; t < 16; ++t) {
    uint16_t row_bytes;
    std::memcpy(&row_bytes, bytes + 16 + 2 * t, 2);
    const int rows = bytes[48 + t];
    if (t >= kTiles) {
      require(rows == 0 && row_bytes == 0, kName, "a tile beyond the eighth has a shape");
      continue;
    }
    file.tiles[t].rows = rows;
    file.tiles[t].row_bytes = row_bytes;
    require(rows <= kMostRows && row_bytes <= kMostBytes, kName,
            "a tile is larger than 16 rows of 64 bytes", t);
    require((rows == 0) == (row_bytes == 0), kName, "a tile has rows or columns alone", t);
  }
  file.configured = true;
}

void release() { file = {}; }

void zero(int tile) {
  Tile& to = configured(tile, "tilezero");
  std::memset(to.row, 0, sizeof to.row);
}

void load(int tile, const void* p, ptrdiff_t stride) {
  Tile& to = configured(tile, "tileloadd");
  std::memset(to.row, 0, sizeof to.row);
  const auto* from = static_cast<const uint8_t*>(p);
  for (int r = 0; r < to.rows; ++r)
    std::memcpy(to.row[r], from + r * stride, static_cast<size_t>(to.row_bytes));
}

void store(int tile, void* p, ptrdiff_t stride) {
  const Tile& from = configured(tile, "tilestored");
  auto* to = static_cast<uint8_t*>(p);
  for (int r = 0; r < from.rows; ++r)
    std::memcpy(to + r * stride, from.row[r], static_cast<size_t>(from.row_bytes));
}

void dot_bf16(int c, int a, int b) {
  constexpr uint32_t kTilesRound =
      0x9fc0;  // denormals are zeros, results too; to nearest even; no exceptions
  const Operands of = operands(c, a, b, "tdpbf16ps");
  const uint32_t saved = _mm_getcsr();
  _mm_setcsr(kTilesRound);
  sum_bf16_products(of);
  _mm_setcsr(saved);
}
void dot_signed_unsigned(int c, int a, int b) {
  sum_byte_products(operands(c, a, b, "tdpbsud"), false);
}
void dot_signed(int c, int a, int b) { sum_byte_products(operands(c, a, b, "tdpbssd"), true); }

}  // namespace penstock::tile_file
