// Weights in the CUDA backend's layout: what is read back is what the file says, and products are
// those of it.
#include <gtest/gtest.h>

#include <cmath>
#include <numeric>

#include "ops/ops_under_test.h"

namespace penstock {
namespace {

std::vector<std::byte> random_bytes(size_t n, unsigned seed) {
  std::minstd_rand generator(seed + 1);
  std::vector<std::byte> bytes(n);
  for (std::byte& b : bytes) b = static_cast<std::byte>(generator() >> 8);
  return bytes;
}

bool same(float a, float b) { return a == b || (std::isnan(a) && std::isnan(b)); }

// All rows of a weight.
Values rows_of(Ops& ops, const Weight& weight) {
  std::vector<TokenId> ids(static_cast<size_t>(weight.rows()));
  std::iota(ids.begin(), ids.end(), 0);
  const Batch batch{.tokens = ids};
  ops.begin_step(&batch);
  const Tensor out = ops.new_tensor(weight.rows(), weight.cols());
  ops.embed_tokens(weight, 1.0f, out);
  return read(ops, out);
}

class CudaWeights : public testing::TestWithParam<OpsUnderTest> {};

TEST_P(CudaWeights, HoldEveryTypeAsItIs) {
  const auto ops = GetParam().make();
  for (const QuantTypeInfo& type : quant_types()) {
    const int rows = 37, cols = type.block_size == 1 ? 100 : 3 * 256;
    const std::vector<std::byte> bytes = random_bytes(rows * quant_bytes(type.type, cols), 7);
    const auto weight = ops->pack({type.type, rows, cols, bytes});
    ASSERT_TRUE(weight.has_value()) << type.name;
    const Values got = rows_of(*ops, **weight);
    std::vector<float> expected(static_cast<size_t>(cols));
    for (int r = 0; r < rows; ++r) {
      dequantize_row(type.type,
                     bytes.data() + static_cast<size_t>(r) * quant_bytes(type.type, cols),
                     expected.data(), cols);
      for (int c = 0; c < cols; ++c)
        ASSERT_TRUE(same(got.at(r, c), expected[static_cast<size_t>(c)]))
            << type.name << " " << r << ", " << c << ": " << got.at(r, c) << ", expected "
            << expected[static_cast<size_t>(c)];
    }
  }
}

TEST_P(CudaWeights, ProductsAreThoseOfTheValues) {
  const auto ops = GetParam().make();
  for (const QuantTypeInfo& type : quant_types()) {
    if (!can_quantize(type.type)) continue;
    const int rows = 21, cols = type.block_size == 1 ? 200 : 512;
    std::vector<std::byte> bytes(rows * quant_bytes(type.type, cols));
    std::vector<float> values = random_floats(static_cast<size_t>(rows) * cols, 3);
    for (int r = 0; r < rows; ++r) {
      std::byte* const to = bytes.data() + static_cast<size_t>(r) * quant_bytes(type.type, cols);
      quantize_row(type.type, &values[static_cast<size_t>(r) * cols], to, cols);
      dequantize_row(type.type, to, &values[static_cast<size_t>(r) * cols], cols);
    }
    const auto weight = ops->pack({type.type, rows, cols, bytes}).value();
    for (const int n : {1, 11}) {
      ops->begin_step(nullptr);
      const std::vector<float> x = random_floats(static_cast<size_t>(n) * cols, 5);
      const LinearTarget target{weight.get(), nullptr, ops->new_tensor(n, rows)};
      ops->linear(tensor_of(*ops, x, n, cols), {&target, 1});
      const Values got = read(*ops, target.out);
      double error = 0, size = 0;
      for (int t = 0; t < n; ++t) {
        for (int r = 0; r < rows; ++r) {
          double sum = 0;
          for (int k = 0; k < cols; ++k)
            sum += static_cast<double>(values[static_cast<size_t>(r) * cols + k]) *
                   x[static_cast<size_t>(t) * cols + k];
          error += (got.at(t, r) - sum) * (got.at(t, r) - sum), size += sum * sum;
        }
      }
      EXPECT_LT(std::sqrt(error / size), 2e-5) << type.name << ", " << n << " rows";
    }
  }
}

GroupedMatrix random_grouped(int bits, int group, bool zeros, bool ordered,
                             std::vector<std::byte>& codes) {
  GroupedMatrix m;
  m.rows = 19, m.cols = 192, m.bits = bits, m.group_size = group;
  m.layout = CodeLayout::kWordsByRow;
  codes = random_bytes(GroupedMatrix::packed_bytes(m.layout, m.rows, m.cols, bits),
                       static_cast<unsigned>(bits));
  m.packed = codes;
  const auto n = static_cast<size_t>(m.rows) * static_cast<size_t>(m.n_groups());
  m.scales = random_floats(n, 11);
  m.uniform_zero = static_cast<int16_t>(1 << (bits - 1));
  if (zeros)
    for (size_t i = 0; i < n; ++i) m.zeros.push_back(static_cast<int16_t>(i * 7 % (1 << bits)));
  for (int i = 0; ordered && i < m.cols; ++i) m.input_order.push_back(i * 5 % m.cols);
  return m;
}

TEST_P(CudaWeights, GroupsAreAsTheyAre) {
  const auto ops = GetParam().make();
  for (const int bits : {2, 3, 4, 5, 6, 7, 8}) {
    for (const int group : {8, 16, 24, 32, 48, 64, 96, 192}) {
      for (const bool zeros : {false, true}) {
        for (const bool ordered : {false, true}) {
          std::vector<std::byte> codes;
          GroupedMatrix m = random_grouped(bits, group, zeros, ordered, codes);
          if (bits == 4 && !zeros)
            for (int i = 0; i < 16; ++i)
              m.codebook.push_back(std::sin(static_cast<float>(i))), m.uniform_zero = 0;
          ASSERT_TRUE(m.check("test").has_value()) << m.check("test").error().message;
          const auto weight = ops->pack_grouped(m, 2, 17).value();
          const Values got = rows_of(*ops, *weight);
          std::vector<float> expected(static_cast<size_t>(17) * m.cols);
          m.dequantize(2, 17, expected.data());
          ASSERT_EQ(got.all, expected) << bits << " bits, groups of " << group << ", zeros "
                                       << zeros << ", order " << ordered;
          ops->begin_step(nullptr);
          const std::vector<float> x = random_floats(static_cast<size_t>(m.cols), 5);
          const LinearTarget target{weight.get(), nullptr, ops->new_tensor(1, 17)};
          ops->linear(tensor_of(*ops, x, 1, m.cols), {&target, 1});
          const Values out = read(*ops, target.out);
          double error = 0, size = 0;
          for (int r = 0; r < 17; ++r) {
            double sum = 0;
            for (int k = 0; k < m.cols; ++k)
              sum += static_cast<double>(expected[static_cast<size_t>(r * m.cols + k)]) *
                     x[static_cast<size_t>(k)];
            error += (out.at(0, r) - sum) * (out.at(0, r) - sum), size += sum * sum;
          }
          // The codebook's levels are rounded to BF16.
          EXPECT_LT(std::sqrt(error / size), m.codebook.empty() ? 2e-5 : 4e-3)
              << bits << " bits, groups of " << group;
        }
      }
    }
  }
}

std::vector<OpsUnderTest> cuda_under_test() {
  std::vector<OpsUnderTest> all = ops_under_test();
  std::erase_if(all, [](const OpsUnderTest& ops) { return ops.is_cpu(); });
  return all;
}
INSTANTIATE_TEST_SUITE_P(Backends, CudaWeights, testing::ValuesIn(cuda_under_test()),
                         [](const auto& info) { return info.param.name; });
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(CudaWeights);

}  // namespace
}  // namespace penstock
