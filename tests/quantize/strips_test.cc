// What is built on strip products, against Eigen.
#include "quantize/methods/strips.h"

#include <gtest/gtest.h>

#include <Eigen/Cholesky>
#include <cmath>
#include <random>

namespace penstock {
namespace {

template <class T>
std::vector<T> random_values(size_t n, uint32_t seed) {
  std::mt19937 random(seed);
  std::normal_distribution<T> normal;
  std::vector<T> values(n);
  for (T& value : values) value = normal(random);
  return values;
}

Eigen::MatrixXd positive_definite(int n) {
  const auto values = random_values<double>(static_cast<size_t>(n) * static_cast<size_t>(2 * n), 7);
  const Eigen::Map<const Eigen::MatrixXd> x(values.data(), n, 2 * n);
  return x * x.transpose();
}

TEST(Cholesky, IsEigens) {
  ThreadPool pool(3);
  for (const int n : {16, 48, 64, 160}) {
    const Eigen::MatrixXd a = positive_definite(n);
    StripMatrix<double> r(n, n);
    for (int i = 0; i < n; ++i) {
      for (int j = i; j < n; ++j) r(i, j) = a(i, j);
    }
    ASSERT_TRUE(cholesky(pool, r));
    const Eigen::MatrixXd wanted = a.llt().matrixU();
    for (int i = 0; i < n; ++i) {
      for (int j = i; j < n; ++j) ASSERT_NEAR(r(i, j), wanted(i, j), 1e-9 * n) << n;
    }
  }
}

TEST(Cholesky, SaysWhatHasNone) {
  ThreadPool pool(2);
  for (const double bad : {0.0, -1.0, std::nan(""), HUGE_VAL}) {
    for (const int at : {0, 63, 64, 95}) {
      StripMatrix<double> a(96, 96);
      for (int i = 0; i < 96; ++i) a(i, i) = i == at ? bad : 2.0;
      EXPECT_FALSE(cholesky(pool, a)) << bad << " at " << at;
    }
  }
}

TEST(Gram, IsTheSumOfOuterProducts) {
  ThreadPool pool(3);
  for (const int cols : {5, 32, 100}) {
    constexpr int kRows = 300;
    const auto values = random_values<float>(static_cast<size_t>(kRows * cols), 8);
    StripMatrix<float> x(kRows, cols);
    for (int i = 0; i < kRows; ++i) {
      for (int j = 0; j < cols; ++j) x(i, j) = values[static_cast<size_t>(i * cols + j)];
    }
    StripMatrix<float> gram(x.n_strips() * kStripFloats, cols);
    add_gram(pool, x, kRows, gram);
    add_gram(pool, x, kRows, gram);
    for (int i = 0; i < cols; ++i) {
      for (int j = i; j < cols; ++j) {
        double sum = 0;
        for (int t = 0; t < kRows; ++t) sum += 2.0 * x(t, i) * x(t, j);
        ASSERT_NEAR(gram(i, j), sum, 1e-3) << cols;
      }
    }
  }
}

TEST(QuadraticForm, OfPartsOfAMatrix) {
  const Eigen::MatrixXf h = positive_definite(80).cast<float>();
  for (const auto& [first, n] : {std::pair{0, 80}, {8, 36}, {3, 5}}) {
    const QuadraticForm form(h, first, n);
    StripMatrix<float> d(form.padded(), 32);
    const auto values = random_values<float>(80 * 32, 9);
    for (int i = 0; i < n; ++i) {
      for (int r = 0; r < 32; ++r) d(i, r) = values[static_cast<size_t>(i * 32 + r)];
    }
    float sums[32];
    form.evaluate(d.at(0, 0), sums);
    for (int r = 0; r < 32; ++r) {
      double wanted = 0;
      for (int i = 0; i < n; ++i) {
        for (int j = 0; j < n; ++j)
          wanted += static_cast<double>(d(i, r)) * h(first + i, first + j) * d(j, r);
      }
      EXPECT_NEAR(sums[r], wanted, 1e-4 * wanted);
    }
  }
}

}  // namespace
}  // namespace penstock
