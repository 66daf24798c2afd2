#include "model/sources/four_bits.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "model/sources/synthetic.h"

namespace penstock {
namespace {

std::vector<float> values_of(const TensorInfo& tensor) {
  std::vector<float> values(static_cast<size_t>(tensor.n_elements()));
  dequantize_row(tensor.type, tensor.bytes.data(), values.data(), tensor.n_elements());
  return values;
}

TEST(FourBits, RoundsMatricesOnlyAndKeepsTheirValues) {
  const auto inner = make_synthetic_source("tiny", "q8_0").value();
  const auto light = make_four_bit_source(*inner);
  ASSERT_NE(light, nullptr);
  int n_rounded = 0;
  for (const TensorInfo& tensor : inner->tensors()) {
    const TensorInfo* found = light->find(tensor.name);
    ASSERT_NE(found, nullptr) << tensor.name;
    EXPECT_EQ(found->shape, tensor.shape) << tensor.name;
    if (tensor.shape.size() < 2) {
      EXPECT_EQ(found->bytes.data(), tensor.bytes.data()) << tensor.name;
      continue;
    }
    EXPECT_EQ(found->type, QuantType::kQ4_0) << tensor.name;
    EXPECT_LT(found->bytes.size(), tensor.bytes.size() * 3 / 5) << tensor.name;
    EXPECT_EQ(light->find(tensor.name)->bytes.data(), found->bytes.data()) << "rounded once";
    const std::vector<float> exact = values_of(tensor), rounded = values_of(*found);
    double error = 0, size = 0;
    for (size_t i = 0; i < exact.size(); ++i)
      error += std::pow(exact[i] - rounded[i], 2), size += std::pow(exact[i], 2);
    EXPECT_LT(error, 0.02 * size) << tensor.name;
    ++n_rounded;
  }
  EXPECT_GT(n_rounded, 4);
  EXPECT_EQ(light->find("no such tensor"), nullptr);
}

TEST(FourBits, NothingWhereNothingIsLeftToRound) {
  const auto small = make_synthetic_source("tiny", "q4_0").value();
  EXPECT_EQ(make_four_bit_source(*small), nullptr);
}

}  // namespace
}  // namespace penstock
