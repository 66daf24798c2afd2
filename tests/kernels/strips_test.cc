// Strip products of every instruction set against plain loops.
#include "kernels/strip_kernels.h"

#include <gtest/gtest.h>

#include <random>
#include <vector>

#include "kernels/kernel_table.h"

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

template <class T>
std::vector<double> plain_product(int n, const T* a, const T* b, int width) {
  std::vector<double> sums(static_cast<size_t>(kStripRows * width));
  for (int i = 0; i < kStripRows; ++i) {
    for (int j = 0; j < width; ++j) {
      for (int k = 0; k < n; ++k)
        sums[static_cast<size_t>(i * width + j)] +=
            static_cast<double>(a[k * width + i]) * b[k * width + j];
    }
  }
  return sums;
}

TEST(StripKernels, EveryInstructionSet) {
  for (const KernelTable& table : available_kernels()) {
    for (const int n : {0, 1, 7, 64}) {
      const auto a = random_values<float>(64 * 32 + 32, 1), b = random_values<float>(64 * 32, 2);
      std::vector<float> c = random_values<float>(8 * 32, 3);
      const std::vector<float> before = c;
      table.strips->add_f32(n, a.data() + 8, b.data(), c.data());
      const std::vector<double> sums = plain_product(n, a.data() + 8, b.data(), 32);
      for (size_t i = 0; i < c.size(); ++i)
        ASSERT_NEAR(c[i], before[i] + sums[i], 1e-4) << table.name << " " << n;
      const auto x = random_values<double>(64 * 16 + 16, 4), y = random_values<double>(64 * 16, 5);
      std::vector<double> z = random_values<double>(8 * 16, 6);
      const std::vector<double> old = z;
      table.strips->subtract_f64(n, x.data() + 8, y.data(), z.data());
      const std::vector<double> products = plain_product(n, x.data() + 8, y.data(), 16);
      for (size_t i = 0; i < z.size(); ++i)
        ASSERT_NEAR(z[i], old[i] - products[i], 1e-12) << table.name << " " << n;
    }
  }
}

}  // namespace
}  // namespace penstock
