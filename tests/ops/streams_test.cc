// Operations on several streams and on rows as a whole, of every backend, against plain loops.
#include <algorithm>
#include <cmath>

#include "ops/ops_under_test.h"

namespace penstock {
namespace {

class Streams : public ::testing::TestWithParam<OpsUnderTest> {};

void check_mixed(Ops& ops, int n_from, int n_to, int width, int rows) {
  ops.begin_step(nullptr);
  const auto count = [&](int cols) { return static_cast<size_t>(rows) * cols; };
  const std::vector<float> from = random_floats(count(n_from * width), 1),
                           by = random_floats(count(n_from * n_to), 2),
                           to = random_floats(count(n_to * width), 3);
  const Tensor out = tensor_of(ops, to, rows, n_to * width);
  ops.add_mixed(tensor_of(ops, from, rows, n_from * width), tensor_of(ops, by, rows, n_from * n_to),
                width, out);
  const Values got = read(ops, out);
  for (int t = 0; t < rows; ++t) {
    for (int i = 0; i < n_to * width; ++i) {
      double wanted = to[t * n_to * width + i];
      for (int p = 0; p < n_from; ++p)
        wanted += static_cast<double>(by[t * n_from * n_to + i / width * n_from + p]) *
                  from[(t * n_from + p) * width + i % width];
      ASSERT_NEAR(got.at(t, i), wanted, 1e-5) << t << ", " << i;
    }
  }
}

TEST_P(Streams, AreMixedByTheTokensOwnWeights) {
  const auto ops = GetParam().make();
  check_mixed(*ops, 4, 4, 24, 9);
  check_mixed(*ops, 3, 3, 37, 1);
  check_mixed(*ops, 1, 4, 130, 6);
}

TEST_P(Streams, GetTheMagnitudeOfAnother) {
  const auto ops = GetParam().make();
  ops->begin_step(nullptr);
  constexpr int kCols = 37;
  std::vector<float> a = random_floats(3 * kCols, 1);
  const std::vector<float> b = random_floats(3 * kCols, 2, 5.0f);
  std::fill_n(a.begin() + kCols, kCols, 0.0f);                // none
  for (int i = 0; i < kCols; ++i) a[2 * kCols + i] *= 1e-4f;  // less than the least
  const Tensor x = tensor_of(*ops, a, 3, kCols);
  ops->match_magnitude(x, tensor_of(*ops, b, 3, kCols), 1e-5f);
  const Values got = read(*ops, x);
  for (int t = 0; t < 3; ++t) {
    double own = 0, wanted = 0;
    for (int i = 0; i < kCols; ++i) {
      own += std::pow(a[t * kCols + i], 2) / kCols;
      wanted += std::pow(b[t * kCols + i], 2) / kCols;
    }
    const double factor = std::sqrt(wanted / std::max(own, 1e-5));
    for (int i = 0; i < kCols; ++i) EXPECT_NEAR(got.at(t, i), a[t * kCols + i] * factor, 1e-4) << t;
  }
}

TEST_P(Streams, OnlyWhatStandsOutIsKept) {
  const auto ops = GetParam().make();
  ops->begin_step(nullptr);
  constexpr int kCols = 70;
  std::vector<float> values = random_floats(3 * kCols, 4);
  std::fill_n(values.begin() + kCols, kCols, 3.0f);  // nothing does
  for (const float deviations : {1.6448536f, 0.0f, -0.5f}) {
    const Tensor x = tensor_of(*ops, values, 3, kCols);
    ops->keep_above(x, deviations);
    const Values got = read(*ops, x);
    for (int t = 0; t < 3; ++t) {
      double mean = 0, variance = 0;
      for (int i = 0; i < kCols; ++i) mean += values[t * kCols + i] / kCols;
      for (int i = 0; i < kCols; ++i) variance += std::pow(values[t * kCols + i] - mean, 2) / kCols;
      const double cutoff = mean + deviations * std::sqrt(variance);
      for (int i = 0; i < kCols; ++i)
        EXPECT_NEAR(got.at(t, i), std::max(values[t * kCols + i] - cutoff, 0.0), 1e-5)
            << t << ", " << i;
    }
  }
}

TEST_P(Streams, ColumnsAreScaled) {
  const auto ops = GetParam().make();
  ops->begin_step(nullptr);
  const std::vector<float> a = random_floats(3 * 70, 1), b = random_floats(70, 2);
  const auto factors = ops->pack_vector(b).value();
  const Tensor x = tensor_of(*ops, a, 3, 70);
  ops->scale_columns(x, *factors);
  const Values got = read(*ops, x);
  for (size_t i = 0; i < a.size(); ++i) EXPECT_EQ(got.all[i], a[i] * b[i % 70]);
}

INSTANTIATE_TEST_SUITE_P(Backends, Streams, ::testing::ValuesIn(ops_under_test()),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace penstock
