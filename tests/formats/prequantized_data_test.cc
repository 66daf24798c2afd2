// Layers of checkpoints that other tools quantized decode to the values that reproduce those tools'
// logits (golden/prequantized.json, made and checked by make_prequantized.py).
#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <cstring>
#include <fstream>
#include <nlohmann/json.hpp>

#include "formats/prequantized.h"
#include "support/test_data.h"

namespace penstock {
namespace {

using nlohmann::json;

uint32_t crc32(const std::vector<float>& values) {
  static const auto kTable = [] {
    std::array<uint32_t, 256> table = {};
    for (uint32_t i = 0; i < 256; ++i) {
      uint32_t c = i;
      for (int k = 0; k < 8; ++k) c = (c >> 1) ^ ((c & 1) != 0 ? 0xedb88320u : 0);
      table[i] = c;
    }
    return table;
  }();
  uint32_t crc = 0xffffffffu;
  const auto* bytes = reinterpret_cast<const uint8_t*>(values.data());
  for (size_t i = 0; i < values.size() * 4; ++i) crc = kTable[(crc ^ bytes[i]) & 0xff] ^ (crc >> 8);
  return ~crc;
}

void check_layer(const Prequantized& checkpoint, const std::string& name, const json& want) {
  SCOPED_TRACE(name);
  const auto found = checkpoint.find_linear(name);
  ASSERT_TRUE(found.has_value()) << found.error().message;
  ASSERT_TRUE(found->has_value());
  const GroupedMatrix& matrix = **found;
  ASSERT_EQ(matrix.rows, want.at("shape").at(0));
  ASSERT_EQ(matrix.cols, want.at("shape").at(1));
  std::vector<float> values(static_cast<size_t>(matrix.rows) * static_cast<size_t>(matrix.cols));
  matrix.dequantize(0, matrix.rows, values.data());
  double magnitude = 0;
  for (float& value : values) {
    magnitude += std::fabs(value);
    value += 0.0f;  // +0 for -0
  }
  for (size_t i = 0; i < 4; ++i) EXPECT_FLOAT_EQ(values[i], want.at("first").at(i).get<float>());
  EXPECT_NEAR(magnitude / want.at("magnitude").get<double>(), 1, 1e-6);
  EXPECT_EQ(crc32(values), want.at("crc32").get<uint32_t>()) << "bits differ";
}

TEST(PrequantizedData, DecodesAsTheToolsThatMadeThem) {
  REQUIRE_TEST_DATA("quant");
  std::ifstream file(tests_dir().string() + "/formats/golden/prequantized.json");
  const json golden = json::parse(file);
  ASSERT_GE(golden.size(), 14u);
  for (const auto& [name, layers] : golden.items()) {
    SCOPED_TRACE(name);
    const auto source = open_weights(test_data_dir() / "quant" / name);
    ASSERT_TRUE(source.has_value()) << source.error().message;
    const auto checkpoint = open_prequantized(**source);
    ASSERT_TRUE(checkpoint.has_value()) << checkpoint.error().message;
    ASSERT_NE(*checkpoint, nullptr);
    for (const auto& [layer, want] : layers.items()) check_layer(**checkpoint, layer, want);
    const auto plain = (*checkpoint)->find_linear("lm_head");
    ASSERT_TRUE(plain.has_value());
    EXPECT_FALSE(plain->has_value());
  }
}

TEST(PrequantizedData, ActOrderIsAPermutationAndActivationsAreKnown) {
  REQUIRE_TEST_DATA("quant");
  const auto layer = [](const std::string& name) {
    const auto source = open_weights(test_data_dir() / "quant" / name);
    const auto checkpoint = open_prequantized(**source);
    return **(*checkpoint)->find_linear("model.layers.0.mlp.down_proj");
  };
  using Kind = ActivationCoding::Kind;
  EXPECT_FALSE(layer("tiny-gptq4_actorder").input_order.empty());
  EXPECT_TRUE(layer("tiny-gptq4").input_order.empty());
  EXPECT_TRUE(layer("tiny-gptq4").is_symmetric());
  EXPECT_TRUE(layer("tiny-gptq8").is_symmetric());
  EXPECT_FALSE(layer("tiny-autoawq").is_symmetric());
  EXPECT_TRUE(layer("tiny-ct-w8a8_rtn").is_symmetric());
  EXPECT_EQ(layer("tiny-gptq4_g32").group_size, 32);
  EXPECT_EQ(layer("tiny-ct-nvfp4").group_size, 16);
  EXPECT_EQ(layer("tiny-ct-w8a8_sq").activations.kind, Kind::kInt8PerToken);
  EXPECT_EQ(layer("tiny-ct-fp8_dyn").activations.kind, Kind::kF8E4M3PerToken);
  EXPECT_EQ(layer("tiny-bnb-int8").activations.outlier_threshold, 6.0f);
  EXPECT_EQ(layer("tiny-ct-w4a16_gptq").activations.kind, Kind::kNone);
  const auto plain = open_weights(test_data_dir() / "quant/tiny-hf");
  EXPECT_EQ(*open_prequantized(**plain), nullptr);
}

}  // namespace
}  // namespace penstock
