// Passes over logits of every instruction set: the same bits as the scalar ones.
#include "kernels/scan_kernels.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <numeric>
#include <random>
#include <vector>

#include "kernels/kernel_table.h"

namespace penstock {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();

std::vector<float> logits_of(int n, uint32_t seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> value(0, seed % 2 == 0 ? 5.0f : 0.1f);
  std::vector<float> row(static_cast<size_t>(n));
  for (float& each : row) {
    each = value(random);
    const auto odd = random() % 64;
    if (odd == 0) each = -kInf;
    if (odd == 1) each = std::numeric_limits<float>::quiet_NaN();
    if (odd == 2) each = -1000;
    if (odd == 3) each = std::round(each);  // equal ones
  }
  if (n > 0) row[static_cast<size_t>(n) / 2] = 20;
  return row;
}

TEST(ScanKernels, EveryInstructionSetGivesTheBitsOfTheScalarOnes) {
  const ScanKernels& plain = *available_kernels().front().scans;
  for (const KernelTable& table : available_kernels()) {
    SCOPED_TRACE(table.name);
    const ScanKernels& scans = *table.scans;
    for (const int n : {0, 1, 3, 15, 16, 17, 63, 64, 65, 1023, 1024, 1025, 5000}) {
      const std::vector<float> row = logits_of(n, static_cast<uint32_t>(n));
      const size_t n_blocks = (row.size() + kScanBlock - 1) / kScanBlock,
                   n_pieces = (row.size() + kSumPiece - 1) / kSumPiece;
      std::vector<float> maxima[2] = {std::vector<float>(n_blocks), std::vector<float>(n_blocks)};
      const float max = plain.block_max(row.data(), n, maxima[0].data());
      EXPECT_EQ(scans.block_max(row.data(), n, maxima[1].data()), max);
      EXPECT_EQ(maxima[0], maxima[1]);
      const ScanScale scale{20, 1 / 0.7f};
      std::vector<double> pieces[2] = {std::vector<double>(n_pieces),
                                       std::vector<double>(n_pieces)};
      const double sum = plain.sum_exp(row.data(), n, scale, pieces[0].data());
      EXPECT_EQ(scans.sum_exp(row.data(), n, scale, pieces[1].data()), sum);
      EXPECT_EQ(scans.sum_exp(row.data(), n, scale, nullptr), sum);
      EXPECT_EQ(pieces[0], pieces[1]);
      std::vector<float> weights[2] = {std::vector<float>(row.size()),
                                       std::vector<float>(row.size())};
      plain.exp(row.data(), n, scale, weights[0].data());
      scans.exp(row.data(), n, scale, weights[1].data());
      EXPECT_EQ(weights[0], weights[1]);
      for (const auto& [low, high] :
           {std::pair{-28.0f, -25.0f}, std::pair{-kInf, 0.0f}, std::pair{-3.0f, -kInf}}) {
        std::vector<int> inside[2] = {std::vector<int>(row.size() + 1),
                                      std::vector<int>(row.size() + 1)};
        ScanSplit split[2] = {{low, high, inside[0].data(), -1, pieces[0].data()},
                              {low, high, inside[1].data(), -1, pieces[1].data()}};
        const double above = plain.split(row.data(), n, scale, split[0]);
        EXPECT_EQ(scans.split(row.data(), n, scale, split[1]), above);
        EXPECT_EQ(std::accumulate(pieces[1].begin(), pieces[1].end(), 0.0), above);
        EXPECT_EQ(pieces[0], pieces[1]);
        ASSERT_EQ(split[0].n_inside, split[1].n_inside);
        for (int i = 0; i < split[0].n_inside; ++i)
          EXPECT_EQ(inside[0][static_cast<size_t>(i)], inside[1][static_cast<size_t>(i)]);
        std::vector<float> cut[2] = {row, row};
        const float rest = plain.cut(cut[0].data(), n, scale, low, maxima[0].data());
        EXPECT_EQ(scans.cut(cut[1].data(), n, scale, low, maxima[1].data()), rest);
        EXPECT_EQ(cut[0], cut[1]);
        EXPECT_EQ(maxima[0], maxima[1]);
      }
      for (const float x : {-1.0f, 0.0f, 20.0f})
        EXPECT_EQ(scans.count_greater(row.data(), n, x), plain.count_greater(row.data(), n, x));
    }
  }
}

TEST(ScanKernels, WeightsAreExponentials) {
  const ScanKernels& plain = *available_kernels().front().scans;
  std::vector<float> row;
  for (float x = 0; x > -86; x -= 0.37f) row.push_back(x);
  std::vector<float> weights(row.size());
  plain.exp(row.data(), static_cast<int>(row.size()), {0, 1}, weights.data());
  double sum = 0;
  for (size_t i = 0; i < row.size(); ++i) {
    EXPECT_NEAR(weights[i] / std::exp(static_cast<double>(row[i])), 1, 1e-5) << row[i];
    sum += static_cast<double>(weights[i]);
  }
  EXPECT_NEAR(plain.sum_exp(row.data(), static_cast<int>(row.size()), {0, 1}, nullptr), sum,
              1e-6 * sum);
  std::vector<int> inside(row.size());
  std::vector<double> pieces((row.size() + kSumPiece - 1) / kSumPiece);
  ScanSplit split{-2, -1, inside.data(), 0, pieces.data()};
  plain.split(row.data(), static_cast<int>(row.size()), {0, 1}, split);
  for (int i = 0; i < split.n_inside; ++i) {
    EXPECT_LE(row[static_cast<size_t>(inside[static_cast<size_t>(i)])], -1);
    EXPECT_GE(row[static_cast<size_t>(inside[static_cast<size_t>(i)])], -2);
  }
  EXPECT_EQ(split.n_inside, 3);
}

}  // namespace
}  // namespace penstock
