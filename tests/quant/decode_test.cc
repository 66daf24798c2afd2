#include <gmock/gmock.h>

#include <bit>
#include <cmath>

#include "quant/all.h"
#include "quant/golden.h"

namespace penstock {
namespace {

class DecodeGolden : public testing::TestWithParam<QuantType> {};

TEST_P(DecodeGolden, EqualsTheReferenceBitForBit) {
  const QuantTypeInfo& info = quant_info(GetParam());
  const Golden golden = load_golden(info);
  ASSERT_FALSE(golden.values.empty());
  std::vector<float> values(golden.values.size());
  dequantize_row(info.type, golden.blocks.data(), values.data(),
                 static_cast<int64_t>(values.size()));
  for (size_t i = 0; i < values.size(); ++i) {
    if (std::isnan(golden.values[i])) {
      ASSERT_TRUE(std::isnan(values[i])) << i;
    } else {
      ASSERT_EQ(values[i], golden.values[i]) << "element " << i;
    }
  }
}

// Every encoding that is not a plain number of the machine must have golden vectors.
std::vector<QuantType> types_with_golden() {
  std::vector<QuantType> types = {QuantType::kF8E4M3, QuantType::kF8E5M2};
  for (const QuantTypeInfo& info : quant_types()) {
    if (info.block_size > 1) types.push_back(info.type);
  }
  return types;
}
INSTANTIATE_TEST_SUITE_P(All, DecodeGolden, testing::ValuesIn(types_with_golden()), type_name);

// Codes, scales and offsets must say the same as decode, since packers use nothing else.
TEST(Codes, GiveTheDecodedValues) {
  int n_types = 0;
  for (const QuantTypeInfo& info : quant_types()) {
    quant::visit(info.type, [&](auto q) {
      using Q = decltype(q);
      if constexpr (quant::IntegerCoded<Q>) {
        ++n_types;
        const Golden golden = load_golden(info);
        for (size_t b = 0; b * Q::kBlockSize < golden.values.size(); ++b) {
          typename Q::Block block;
          std::memcpy(&block, golden.blocks.data() + b * sizeof(block), sizeof(block));
          uint8_t codes[Q::kBlockSize];
          float scales[quant::kGroups<Q>];
          float offsets[quant::kGroups<Q>] = {};
          Q::codes(block, codes, scales, offsets);
          for (int i = 0; i < Q::kBlockSize; ++i) {
            ASSERT_LT(codes[i], 1 << Q::kBits) << info.name;
            const int group = i / Q::kGroupSize;
            ASSERT_EQ(scales[group] * static_cast<float>(Q::level(codes[i])) + offsets[group],
                      golden.values[b * Q::kBlockSize + static_cast<size_t>(i)])
                << info.name << " element " << i;
          }
        }
      }
    });
  }
  EXPECT_EQ(n_types, 25);
}

TEST(QuantTypes, AreFoundByNameAndNumber) {
  ASSERT_NE(find_quant_type("Q4_K"), nullptr);
  EXPECT_EQ(find_quant_type("Q4_K")->type, QuantType::kQ4_K);
  EXPECT_EQ(find_quant_type("q4_k_m"), nullptr);
  EXPECT_EQ(find_quant_type(""), nullptr);
  ASSERT_NE(find_ggml_type(39), nullptr);
  EXPECT_EQ(find_ggml_type(39)->type, QuantType::kMXFP4);
  EXPECT_EQ(find_ggml_type(9), nullptr);
  EXPECT_EQ(find_ggml_type(0xffffffffu), nullptr);
  EXPECT_EQ(quant_bytes(QuantType::kQ6_K, 512), 420u);
}

TEST(Plain, NumbersDecodeAsTheyAre) {
  const auto decode = [](QuantType type, auto value) {
    float out = 0;
    dequantize_row(type, reinterpret_cast<const std::byte*>(&value), &out, 1);
    return out;
  };
  EXPECT_EQ(decode(QuantType::kF32, 1.5f), 1.5f);
  EXPECT_EQ(decode(QuantType::kF64, -2.25), -2.25f);
  EXPECT_EQ(decode(QuantType::kF16, uint16_t{0x3c00}), 1.0f);
  EXPECT_EQ(decode(QuantType::kBF16, uint16_t{0xc000}), -2.0f);
  EXPECT_EQ(decode(QuantType::kI8, int8_t{-128}), -128.0f);
  EXPECT_EQ(decode(QuantType::kI16, int16_t{-3}), -3.0f);
  EXPECT_EQ(decode(QuantType::kI32, int32_t{1 << 20}), 1048576.0f);
  EXPECT_EQ(decode(QuantType::kI64, int64_t{-7}), -7.0f);
  EXPECT_EQ(decode(QuantType::kU8, uint8_t{255}), 255.0f);
  EXPECT_EQ(decode(QuantType::kBool, uint8_t{1}), 1.0f);
}

// Each representable value survives, and the nearest one (even mantissa on ties) is chosen between
// neighbours.
TEST(Plain, Float8RoundsToNearestEven) {
  struct Case {
    float (*decode)(uint8_t);
    uint8_t (*encode)(float);
    int largest;
  };
  for (const Case& f8 : {Case{quant::decode_f8e4m3, quant::encode_f8e4m3, 0x7e},
                         Case{quant::decode_f8e5m2, quant::encode_f8e5m2, 0x7b}}) {
    for (int bits = 0; bits <= f8.largest; ++bits) {
      const float value = f8.decode(static_cast<uint8_t>(bits));
      EXPECT_EQ(f8.encode(value), bits);
      EXPECT_EQ(f8.encode(-value), bits | 0x80);
      if (bits == f8.largest) continue;
      const float next = f8.decode(static_cast<uint8_t>(bits + 1));
      const float middle = (value + next) / 2;
      EXPECT_EQ(f8.encode(middle), bits + bits % 2) << value;
      EXPECT_EQ(f8.encode(std::nextafter(middle, 0.0f)), bits) << value;
      EXPECT_EQ(f8.encode(std::nextafter(middle, 1e9f)), bits + 1) << value;
    }
    EXPECT_EQ(f8.encode(1e9f), f8.largest);
    EXPECT_EQ(f8.encode(-INFINITY), f8.largest | 0x80);
    EXPECT_TRUE(std::isnan(f8.decode(f8.encode(NAN))));
  }
}

}  // namespace
}  // namespace penstock
