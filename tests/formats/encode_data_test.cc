// Our encoders against llama.cpp's: one model that it quantized to every type. The full-precision
// weights are not there; the Q6_K file stands for them, and its own error (measured on normal
// weights, which these are) is taken off.
#include <gtest/gtest.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "formats/weight_source.h"
#include "support/test_data.h"

namespace penstock {
namespace {

std::vector<float> decode(QuantType type, const std::byte* bytes, int64_t n) {
  std::vector<float> values(static_cast<size_t>(n));
  dequantize_row(type, bytes, values.data(), n);
  return values;
}

double squared_error(const std::vector<float>& a, const std::vector<float>& b) {
  double sum = 0;
  for (size_t i = 0; i < a.size(); ++i) sum += std::pow(double{a[i]} - double{b[i]}, 2);
  return sum;
}

TEST(EncodeData, IsAsCloseAsLlamaCpp) {
  REQUIRE_TEST_DATA("quant/gguf");
  constexpr double kQ6Error = 0.017;  // relative, of the Q6_K file
  const auto reference = open_weights(test_data_dir() / "quant/gguf/tiny-q6_k.gguf");
  ASSERT_TRUE(reference.has_value()) << reference.error().message;
  int n_types = 0;
  for (const std::string file :
       {"q2_k", "q3_k_m", "q4_1", "q4_k_m", "q5_1", "q5_k_m", "iq4_nl", "iq4_xs", "mxfp4_moe"}) {
    const auto source = open_weights(test_data_dir() / ("quant/gguf/tiny-" + file + ".gguf"));
    ASSERT_TRUE(source.has_value()) << source.error().message;
    double signal = 0, ours = 0, theirs = 0;
    const TensorInfo* encoded = nullptr;
    for (const std::string name : {"ffn_gate", "ffn_up", "ffn_down"}) {
      encoded = (*source)->find("blk.0." + name + ".weight");
      const TensorInfo* plain = (*reference)->find("blk.0." + name + ".weight");
      ASSERT_TRUE(encoded != nullptr && plain != nullptr && encoded->shape == plain->shape);
      const int64_t n = plain->n_elements();
      const std::vector<float> values = decode(plain->type, plain->bytes.data(), n);
      std::vector<std::byte> bytes(encoded->bytes.size());
      quantize_row(encoded->type, values.data(), bytes.data(), n);
      signal += squared_error(values, std::vector<float>(values.size()));
      ours += squared_error(values, decode(encoded->type, bytes.data(), n));
      theirs += squared_error(values, decode(encoded->type, encoded->bytes.data(), n));
    }
    const double ratio = std::sqrt(ours / (theirs - kQ6Error * kQ6Error * signal));
    std::printf("%s: error %.4f of the signal, %.3f of llama.cpp's\n", file.c_str(),
                std::sqrt(ours / signal), ratio);
    EXPECT_LE(ratio, 1.01) << file;
    EXPECT_GE(ratio, 0.85) << file;
    ++n_types;
  }
  EXPECT_EQ(n_types, 9);
}

}  // namespace
}  // namespace penstock
