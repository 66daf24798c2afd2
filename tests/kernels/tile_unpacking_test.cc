// Weights unpacked between the products of tiles: the same bits as unpacked before them; and who
// chooses.
#include "kernels/tile_unpacking.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdlib>
#include <random>
#include <span>
#include <vector>

#include "kernels/gemm_kernels.h"
#include "kernels/pack/panel_pack.h"

namespace penstock {
namespace {

struct AlignedBytes {
  explicit AlignedBytes(size_t n, std::minstd_rand* random = nullptr) : memory(n + 64) {
    if (random == nullptr) return;
    // No half is infinite or not a number: of every second byte the top bit of the exponent is
    // clear.
    for (size_t i = 0; i < n; ++i)
      data()[i] = static_cast<uint8_t>((*random)() >> 8 & (i % 2 == 1 ? 0xbf : 0xff));
  }
  uint8_t* data() {
    return reinterpret_cast<uint8_t*>((reinterpret_cast<uintptr_t>(memory.data()) + 63) &
                                      ~uintptr_t{63});
  }
  std::vector<uint8_t> memory;
};

struct ProductShape {
  int n_rows, outputs, cols;
};

// Any bytes are panels; `between` must make of them what `before` does.
class BothForms {
 public:
  BothForms(const TileKernels& tiles, PanelType type, const ProductShape& shape, bool int8)
      : tiles_(tiles), shape_(shape), random_(static_cast<unsigned>(type) + 1) {
    const PanelSize size = panel_size(type, shape.cols);
    const int n_panels = (shape.outputs + kPanelRows - 1) / kPanelRows;
    panels_ = AlignedBytes(size.bytes * static_cast<size_t>(n_panels), &random_);
    w_.data = panels_.data(), w_.panel_bytes = size.bytes, w_.type = type;
    w_.rows = shape.outputs, w_.cols = shape.cols, w_.padded_cols = size.padded_cols;
    for (uint8_t& level : w_.levels) level = static_cast<uint8_t>(random_() >> 8);
    std::vector<float> x(static_cast<size_t>(shape.n_rows) * static_cast<size_t>(shape.cols));
    for (float& v : x)
      v = static_cast<float>(static_cast<int>(random_() >> 8 & 1023) - 512) / 256.0f;
    const int padded = (shape.cols + 255) / 256 * 256;
    const FloatRows rows{x.data(), shape.cols};
    if (int8) {
      packed_ = AlignedBytes(tiles.int8_tile_bytes(shape.n_rows, padded));
      tiles.pack_int8(rows, shape.n_rows, 0, shape.n_rows, shape.cols, padded,
                      {ActivationRounding::Kind::kPerRow}, packed_.data());
    } else {
      packed_ = AlignedBytes(tiles.bf16_tile_bytes(shape.n_rows, padded));
      tiles.pack_bf16(rows, shape.n_rows, 0, shape.n_rows, shape.cols, padded, packed_.data());
    }
  }

  std::vector<float> run(TileKernels::TileGemm gemm, int stride) {
    const size_t n_out = static_cast<size_t>(shape_.n_rows) * static_cast<size_t>(stride);
    AlignedBytes out_bytes(n_out * sizeof(float));
    const std::span out(reinterpret_cast<float*>(out_bytes.data()), n_out);
    std::ranges::fill(out, -77.0f);
    AlignedBytes scratch(tiles_.scratch_bytes);
    // two calls, as two workers would make them
    const int n = w_.n_panels(), first = std::min(3, n);
    for (const auto& [begin, end] : {std::pair{0, first}, std::pair{first, n}})
      if (begin < end)
        gemm(w_, packed_.data(), shape_.n_rows, begin, end, {out.data(), stride, nullptr},
             scratch.data());
    return {out.begin(), out.end()};
  }

 private:
  const TileKernels& tiles_;
  ProductShape shape_;
  std::minstd_rand random_;
  AlignedBytes panels_{0}, packed_{0};
  PanelMatrix w_;
};

bool same_float(float a, float b) {
  return (std::isnan(a) && std::isnan(b)) ||
         std::bit_cast<uint32_t>(a) == std::bit_cast<uint32_t>(b);
}

// The product by tiles with weights unpacked before those of tiles or between them; null where
// there is none.
TileKernels::TileGemm product(const TileKernels& tiles, int type, int n_rows, bool int8,
                              bool between) {
  const GemmPlan* plan = find_plan(tiles.plans, panel_kind(static_cast<PanelType>(type), int8),
                                   n_rows, {.unpack_between = between});
  const auto path = int8 ? GemmPath::kInt8RowTiles : GemmPath::kBf16Tiles;
  if (plan == nullptr || plan->path != path ||
      (between && plan->where != GemmWhere::kUnpackBetween))
    return nullptr;
  return tiles.tiles[type][plan - tiles.plans.data()];
}

// padding: of every row of the output.
void expect_same_bits(const TileKernels& tiles, int type, const ProductShape& shape, bool int8,
                      int padding = 3) {
  const auto before = product(tiles, type, shape.n_rows, int8, false);
  const auto between = product(tiles, type, shape.n_rows, int8, true);
  if (between == nullptr) return;
  BothForms forms(tiles, static_cast<PanelType>(type), shape, int8);
  const int stride = shape.outputs + padding;
  const auto expected = forms.run(before, stride), got = forms.run(between, stride);
  int n_numbers = 0;
  for (size_t i = 0; i < got.size(); ++i) {
    ASSERT_TRUE(same_float(got[i], expected[i]))
        << "panel type " << type << ", " << i << ": " << got[i] << " " << expected[i];
    n_numbers += std::isfinite(got[i]) && got[i] != 0.0f && got[i] != -77.0f;
  }
  EXPECT_GT(n_numbers, static_cast<int>(got.size()) / 2) << "panel type " << type;
}

// Panels in several blocks, an odd one at the end; whole slices, a part of one, one that is no
// multiple of four tiles; rows in several blocks, and so few that a part of the slice is unpacked
// behind the products.
TEST(TileUnpacking, BetweenProductsGivesTheSameBits) {
  bool tested = false;
  for (const KernelTable& table : available_kernels()) {
    if (!has_both_unpackings(table)) continue;
    tested = true;
    for (int type = 0; type < kPanelTypeCount; ++type) {
      for (const ProductShape& shape : {ProductShape{300, 37, 1024}, ProductShape{70, 299, 1472},
                                        ProductShape{33, 16, 32}, ProductShape{577, 330, 768}}) {
        expect_same_bits(*table.tiles, type, shape, false);
        expect_same_bits(*table.tiles, type, shape, true);
      }
    }
  }
  if (!tested) GTEST_SKIP() << "no tiles, and this processor lacks AVX-512 BF16 to emulate them";
}

// An output of 4 MiB whose lines are whole goes around the caches.
TEST(TileUnpacking, StreamedOutputsAreTheSameBits) {
  for (const KernelTable& table : available_kernels()) {
    if (!has_both_unpackings(table)) continue;
    expect_same_bits(*table.tiles, static_cast<int>(panel_type(QuantType::kQ4_K)), {512, 2048, 256},
                     false, 0);
    expect_same_bits(*table.tiles, static_cast<int>(PanelType::kTernaryRow), {600, 1776, 640}, true,
                     0);
  }
}

TEST(TileUnpacking, IsForcedByTheEnvironment) {
  for (const KernelTable& table : available_kernels()) {
    const bool both = has_both_unpackings(table);
    setenv("PENSTOCK_UNPACK", "between", 1);
    EXPECT_EQ(tile_unpacking(table).value().time, both ? UnpackTime::kBetween : UnpackTime::kBefore)
        << table.name;
    setenv("PENSTOCK_UNPACK", "before", 1);
    EXPECT_EQ(tile_unpacking(table).value().time, UnpackTime::kBefore) << table.name;
    setenv("PENSTOCK_UNPACK", "auto", 1);
    EXPECT_EQ(tile_unpacking(table).value().measured, both && !table.emulated) << table.name;
    setenv("PENSTOCK_UNPACK", "later", 1);
    EXPECT_EQ(tile_unpacking(table).error().message,
              "PENSTOCK_UNPACK: expected before, between or auto, got 'later'");
    unsetenv("PENSTOCK_UNPACK");
  }
}

TEST(TileUnpacking, TheFasterOneIsChosen) {
  for (const KernelTable& table : available_kernels()) {
    if (!has_both_unpackings(table)) continue;
    const TileUnpacking measured = measure_unpacking(*table.tiles);
    EXPECT_GT(measured.before, 1e6) << table.name;
    EXPECT_GT(measured.between, 1e6) << table.name;
    EXPECT_EQ(measured.time == UnpackTime::kBetween, measured.between > measured.before)
        << table.name;
  }
}

}  // namespace
}  // namespace penstock
