// Units of 4-bit codes: the rotation, what rounding costs with and without it, and the INT8 form of every
// instruction set.
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <random>
#include <vector>

#include "kernels/attention_kernels.h"
#include "kernels/kernel_table.h"

namespace penstock {
namespace {

constexpr int kI4 = static_cast<int>(KvFormat::kI4);

std::vector<float> narrow_row(int n, unsigned seed) {
  std::mt19937 generator(seed);
  std::normal_distribution<float> normal;
  std::vector<float> x(static_cast<size_t>(n));
  for (float& v : x) v = normal(generator);
  return x;
}

double length_of_row(const std::vector<float>& x) {
  double sum = 0;
  for (const float v : x) sum += double{v} * v;
  return std::sqrt(sum);
}

double narrow_error(const std::vector<float>& x, const std::vector<float>& y) {
  double sum = 0;
  for (size_t i = 0; i < x.size(); ++i) sum += std::pow(double{x[i]} - y[i], 2);
  return std::sqrt(sum) / length_of_row(x);
}

struct NarrowShape {
  int head_dim, values_in_keys, value_dim;
};
constexpr NarrowShape kNarrowShapes[] = {{64, 0, 0},    {128, 0, 0}, {256, 0, 0},    {80, 0, 0},
                                         {96, 0, 0},    {12, 0, 0},  {20, 0, 12},    {576, 512, 0},
                                         {192, 0, 128}, {40, 32, 0}, {1088, 1024, 0}};

KvUnitLayout narrow_layout(const NarrowShape& shape) {
  return KvUnitLayout::make(KvFormat::kI4, shape.head_dim, shape.values_in_keys, shape.value_dim);
}

// Values of a token's key or value, rotated back.
std::vector<float> restored(const KernelTable& table, const KvUnitLayout& layout,
                            const std::vector<std::byte>& unit, int lane, bool of_key) {
  const AttentionKernels& kernels = *table.attention;
  const KvUnitLayout wide = layout.widened();
  std::vector<std::byte> widened(static_cast<size_t>(wide.bytes));
  kernels.widen(layout, wide, unit.data(), widened.data());
  float scale = 0;
  std::copy_n(widened.data() + (of_key ? wide.k_scales : wide.v_scales) + lane * 4, 4,
              reinterpret_cast<std::byte*>(&scale));
  std::vector<float> row(static_cast<size_t>(of_key ? layout.head_dim : layout.value_dim));
  for (int d = 0; d < static_cast<int>(row.size()); ++d) {
    const int64_t at =
        of_key ? int64_t{d / 4} * 64 + lane * 4 + d % 4
               : wide.v_offset + (int64_t{lane / 4} * wide.padded_value_dim + d) * 4 + lane % 4;
    row[static_cast<size_t>(d)] =
        scale * static_cast<float>(static_cast<int8_t>(widened[static_cast<size_t>(at)]));
  }
  kernels.rotate(row.data(), static_cast<int>(row.size()),
                 of_key ? layout.rotated : layout.rotated_values, true);
  return row;
}

TEST(NarrowUnits, RotationsAreHadamardMatricesWithSigns) {
  for (const KernelTable& table : available_kernels()) {
    for (const int n : {1, 2, 8, 16, 32, 64, 128, 256}) {
      // The rotated unit vectors are the columns: +1 or -1 over the root of n, the parity of i & d times
      // the sign of d.
      for (int d = 0; d < n; ++d) {
        std::vector<float> x(static_cast<size_t>(n));
        x[static_cast<size_t>(d)] = 1.0f;
        table.attention->rotate(x.data(), n, n, false);
        for (int i = 0; i < n; ++i) {
          const float parity = std::popcount(static_cast<unsigned>(i & d)) % 2 == 0 ? 1.0f : -1.0f;
          EXPECT_NEAR(x[static_cast<size_t>(i)], parity * x[0], 1e-6) << table.name << " " << n;
        }
        EXPECT_NEAR(std::fabs(x[0]), 1 / std::sqrt(n), 1e-6);
      }
    }
    for (const auto& [n, block] :
         {std::pair(96, 32), std::pair(80, 16), std::pair(576, 64), std::pair(12, 4)}) {
      const std::vector<float> x = narrow_row(n, 3);
      std::vector<float> y = x;
      table.attention->rotate(y.data(), n, block, false);
      EXPECT_NEAR(length_of_row(y), length_of_row(x), 1e-4);
      EXPECT_GT(narrow_error(x, y), 0.5);
      table.attention->rotate(y.data(), n, block, true);
      EXPECT_LT(narrow_error(x, y), 1e-6);
    }
  }
}

TEST(NarrowUnits, RoundingCostsLittleAlsoWithOutliers) {
  const KernelTable& scalar = available_kernels()[0];
  const KvUnitLayout layout = narrow_layout({128, 0, 0});
  double plain = 0, outliers = 0, worst = 0;
  constexpr int kRows = 200;
  for (unsigned seed = 0; seed < kRows; ++seed) {
    std::vector<float> x = narrow_row(128, seed), y = x;
    for (const size_t d : {size_t{3}, size_t{77}}) y[d] *= 25;
    std::vector<std::byte> unit(static_cast<size_t>(layout.bytes));
    scalar.attention->store[kI4](layout, x.data(), y.data(), unit.data(), 5);
    plain += narrow_error(x, restored(scalar, layout, unit, 5, true)) / kRows;
    const double of_outliers = narrow_error(y, restored(scalar, layout, unit, 5, false));
    outliers += of_outliers / kRows;
    worst = std::max(worst, of_outliers);
  }
  EXPECT_LT(plain, 0.1);
  EXPECT_LT(outliers, 0.1);
  EXPECT_LT(worst, 0.13);
}

TEST(NarrowUnits, EveryInstructionSetHasTheScalarBits) {
  for (const NarrowShape& shape : kNarrowShapes) {
    const KvUnitLayout layout = narrow_layout(shape), wide = layout.widened();
    const auto n_values = static_cast<size_t>(layout.value_dim);
    std::vector<std::byte> expected(static_cast<size_t>(layout.bytes)),
        widened(static_cast<size_t>(wide.bytes));
    for (const KernelTable& table : available_kernels()) {
      std::vector<std::byte> unit(static_cast<size_t>(layout.bytes)),
          own(static_cast<size_t>(wide.bytes));
      for (int lane = 0; lane < kUnitTokens; ++lane) {
        std::vector<float> k = narrow_row(layout.head_dim, 7u * static_cast<unsigned>(lane)),
                           v = narrow_row(static_cast<int>(n_values),
                                          7u * static_cast<unsigned>(lane) + 1);
        if (lane == 3) std::ranges::fill(k, 0.0f);
        if (lane == 4) k[0] = 1e20f, v[0] = -1e-20f;
        table.attention->store[kI4](layout, k.data(), v.data(), unit.data(), lane);
        const auto back = restored(table, layout, unit, lane, true);
        if (lane == 3) {
          EXPECT_EQ(length_of_row(back), 0);
        } else {
          EXPECT_LT(narrow_error(k, back), 0.15) << layout.head_dim << " " << lane;
        }
        if (!layout.values_in_keys && lane != 4) {
          EXPECT_LT(narrow_error(v, restored(table, layout, unit, lane, false)), 0.15)
              << layout.value_dim;
        }
      }
      table.attention->widen(layout, wide, unit.data(), own.data());
      if (&table == &available_kernels()[0]) expected = unit, widened = own;
      EXPECT_EQ(unit, expected) << table.name << " " << layout.head_dim;
      EXPECT_EQ(own, widened) << table.name << " " << layout.head_dim;
    }
  }
}

// A token's bytes are its own: neighbours stay as they are.
TEST(NarrowUnits, TokensAreStoredAndCopiedAlone) {
  const KernelTable& scalar = available_kernels()[0];
  for (const NarrowShape& shape : kNarrowShapes) {
    const KvUnitLayout layout = narrow_layout(shape);
    const auto fill = [&](std::vector<std::byte>& unit, int lane, unsigned seed) {
      const std::vector<float> k = narrow_row(layout.head_dim, seed),
                               v = narrow_row(layout.value_dim, seed + 1);
      scalar.attention->store[kI4](layout, k.data(), v.data(), unit.data(), lane);
    };
    std::vector<std::byte> unit(static_cast<size_t>(layout.bytes)), other = unit;
    for (int lane = 0; lane < kUnitTokens; ++lane)
      fill(unit, lane, static_cast<unsigned>(lane)),
          fill(other, lane, 1000u + static_cast<unsigned>(lane));
    const auto before = unit;
    copy_unit_token(layout, other.data(), 9, unit.data(), 2);
    for (int lane = 0; lane < kUnitTokens; ++lane) {
      const auto& from = lane == 2 ? other : before;
      for (const bool of_key : {true, false}) {
        if (!of_key && layout.values_in_keys) continue;
        EXPECT_EQ(restored(scalar, layout, unit, lane, of_key),
                  restored(scalar, layout, from, lane == 2 ? 9 : lane, of_key))
            << layout.head_dim << " " << lane;
      }
    }
    fill(unit, 2, 2);
    EXPECT_EQ(unit, before) << "stored over what was there";
  }
}

}  // namespace
}  // namespace penstock
