// Tiles in software against sums one by one, and against what the processor refuses.
#ifdef PENSTOCK_AMX_EMULATION
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <random>
#include <vector>

#include "emulation/amx/tile_file.h"
#include "kernels/kernel_table.h"

namespace penstock {
namespace {

struct alignas(64) ShapeConfig {
  uint8_t bytes[64] = {1};

  ShapeConfig& set(int tile, int rows, int row_bytes) {
    bytes[16 + 2 * tile] = static_cast<uint8_t>(row_bytes);
    bytes[48 + tile] = static_cast<uint8_t>(rows);
    return *this;
  }
};

// Sums in tile 0, A in 1, B in 2.
struct TileShape {
  int rows, k, columns;  // k: dwords of a row of A

  ShapeConfig config() const {
    return ShapeConfig{}.set(0, rows, 4 * columns).set(1, rows, 4 * k).set(2, k, 4 * columns);
  }
};

class EmulatedTiles : public testing::Test {
 protected:
  void SetUp() override {
    bool here = false;
    for (const KernelTable& table : available_kernels()) here |= table.emulated;
    if (!here) GTEST_SKIP() << "this processor lacks AVX-512 BF16";
  }
  void TearDown() override { tile_file::release(); }
};

float flushed(float x) { return std::fpclassify(x) == FP_SUBNORMAL ? std::copysign(0.0f, x) : x; }
float bf16(uint16_t x) { return flushed(std::bit_cast<float>(uint32_t{x} << 16)); }

// Numbers of the usual size and, one in eight, denormals, whose products would show in sums of
// denormals.
uint16_t any_bf16(std::minstd_rand& random) {
  const auto sign = static_cast<uint16_t>(random() % 2 << 15);
  if (random() % 8 == 0) return sign | static_cast<uint16_t>(random() % 128);
  return sign | static_cast<uint16_t>((120 + random() % 10) << 7 | random() % 128);
}

constexpr TileShape kShapes[] = {{16, 16, 16}, {1, 16, 16}, {16, 3, 16}, {5, 8, 7}, {16, 16, 1}};

TEST_F(EmulatedTiles, AddEvenAndOddColumnsOfBf16ByThemselves) {
  std::minstd_rand random(1);
  for (const TileShape& shape : kShapes) {
    alignas(64) uint16_t a[16][32] = {}, b[16][32] = {};
    alignas(64) float c[16][16] = {}, got[16][16] = {};
    for (auto* tile : {&a, &b})
      for (auto& row : *tile)
        for (uint16_t& x : row) x = any_bf16(random);
    for (auto& row : c)
      for (float& x : row) x = random() % 4 == 0 ? 1e-39f : bf16(any_bf16(random)) * 1.0001f;
    const ShapeConfig config = shape.config();
    tile_file::configure(&config);
    tile_file::load(0, c, 64), tile_file::load(1, a, 64), tile_file::load(2, b, 64);
    tile_file::dot_bf16(0, 1, 2);
    tile_file::store(0, got, 64);
    for (int m = 0; m < 16; ++m) {
      for (int n = 0; n < 16; ++n) {
        float sums[2] = {};
        for (int k = 0; k < shape.k; ++k)
          for (int i = 0; i < 2; ++i)
            sums[i] = flushed(std::fma(bf16(a[m][2 * k + i]), bf16(b[k][2 * n + i]), sums[i]));
        const bool in = m < shape.rows && n < shape.columns;
        const float expected = in ? flushed(flushed(c[m][n]) + flushed(sums[0] + sums[1])) : 0.0f;
        ASSERT_EQ(std::bit_cast<uint32_t>(got[m][n]), std::bit_cast<uint32_t>(expected))
            << m << " " << n;
      }
    }
  }
}

TEST_F(EmulatedTiles, MultiplyBytesWithTheirSigns) {
  std::minstd_rand random(2);
  for (const TileShape& shape : kShapes) {
    for (const bool is_signed : {false, true}) {
      alignas(64) uint8_t a[16][64], b[16][64];
      alignas(64) int32_t c[16][16], got[16][16] = {};
      for (auto* tile : {&a, &b})
        for (auto& row : *tile)
          for (uint8_t& x : row) x = random() % 4 == 0 ? 0x80 : static_cast<uint8_t>(random());
      for (auto& row : c)
        for (int32_t& x : row) x = static_cast<int32_t>(random() * 2u);  // sums wrap around
      const ShapeConfig config = shape.config();
      tile_file::configure(&config);
      tile_file::load(0, c, 64), tile_file::load(1, a, 64), tile_file::load(2, b, 64);
      is_signed ? tile_file::dot_signed(0, 1, 2) : tile_file::dot_signed_unsigned(0, 1, 2);
      tile_file::store(0, got, 64);
      for (int m = 0; m < shape.rows; ++m) {
        for (int n = 0; n < shape.columns; ++n) {
          auto expected = static_cast<uint32_t>(c[m][n]);
          for (int k = 0; k < 4 * shape.k; ++k) {
            const uint8_t of_b = b[k / 4][4 * n + k % 4];
            expected += static_cast<uint32_t>(static_cast<int8_t>(a[m][k]) *
                                              (is_signed ? static_cast<int8_t>(of_b) : of_b));
          }
          ASSERT_EQ(static_cast<uint32_t>(got[m][n]), expected)
              << m << " " << n << " " << is_signed;
        }
      }
    }
  }
}

TEST_F(EmulatedTiles, LoadRowsApartAndZeroTheRest) {
  std::vector<uint8_t> memory(16 * 100), out(16 * 64, 7);
  for (size_t i = 0; i < memory.size(); ++i) memory[i] = static_cast<uint8_t>(i);
  const ShapeConfig wide = ShapeConfig{}.set(3, 16, 64), narrow = ShapeConfig{}.set(3, 2, 8);
  tile_file::configure(&wide);
  tile_file::load(3, memory.data(), 100);
  tile_file::store(3, out.data(), 64);
  for (int i = 0; i < 16 * 64; ++i) ASSERT_EQ(out[i], memory[i / 64 * 100 + i % 64]);
  tile_file::zero(3);
  tile_file::store(3, out.data(), 64);
  for (const uint8_t x : out) ASSERT_EQ(x, 0);
  std::fill(out.begin(), out.end(), 7);
  tile_file::load(3, memory.data(), 100);
  tile_file::configure(&narrow);  // forgets it
  tile_file::store(3, out.data(), 64);
  for (int i = 0; i < 16 * 64; ++i) ASSERT_EQ(out[i], i < 128 && i % 64 < 8 ? 0 : 7);
}

using EmulatedTilesDeathTest = EmulatedTiles;

TEST_F(EmulatedTilesDeathTest, WhatTheProcessorRefusesEndsTheProgram) {
  GTEST_FLAG_SET(death_test_style, "fast");
  alignas(64) uint8_t memory[1024] = {};
  const auto with = [](const ShapeConfig& config, auto use) {
    tile_file::configure(&config);
    use();
  };
  const auto product = [] { tile_file::dot_bf16(0, 1, 2); };
  EXPECT_DEATH(tile_file::zero(0), "tilezero: no configuration");
  EXPECT_DEATH(with(ShapeConfig{}.set(0, 17, 64), [] {}), "ldtilecfg: a tile is larger");
  EXPECT_DEATH(with(ShapeConfig{}.set(0, 16, 65), [] {}), "ldtilecfg: a tile is larger");
  EXPECT_DEATH(with(ShapeConfig{}.set(0, 0, 64), [] {}),
               "ldtilecfg: a tile has rows or columns alone");
  EXPECT_DEATH(with(ShapeConfig{}.set(8, 16, 64), [] {}), "ldtilecfg: a tile beyond");
  EXPECT_DEATH(with(ShapeConfig{{2}}, [] {}), "ldtilecfg: the palette");
  EXPECT_DEATH(with(ShapeConfig{{1, 0, 1}}, [] {}), "ldtilecfg: reserved");
  EXPECT_DEATH(with(TileShape{4, 4, 4}.config(), [&] { tile_file::load(3, memory, 64); }),
               "tileloadd: the tile is not configured .tile 3");
  EXPECT_DEATH(with(TileShape{4, 4, 4}.config(), [] { tile_file::dot_bf16(0, 1, 1); }),
               "tdpbf16ps: .*twice");
  EXPECT_DEATH(with(TileShape{4, 4, 4}.config().set(0, 5, 16), product), "rows are not those of A");
  EXPECT_DEATH(with(TileShape{4, 4, 4}.config().set(0, 4, 20), product),
               "columns are not those of B");
  EXPECT_DEATH(with(TileShape{4, 4, 4}.config().set(2, 5, 16), product),
               "B's rows are not A's columns");
  EXPECT_DEATH(with(TileShape{4, 4, 4}.config().set(1, 4, 17), product), "multiple of 4");
  EXPECT_DEATH(with(TileShape{4, 4, 4}.config(),
                    [&] {
                      tile_file::release();
                      tile_file::store(0, memory, 64);
                    }),
               "tilestored: no configuration");
}

}  // namespace
}  // namespace penstock
#endif  // PENSTOCK_AMX_EMULATION
