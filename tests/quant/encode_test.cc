#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "quant/all.h"
#include "quant/golden.h"
#include "support/test_data.h"

namespace penstock {
namespace {

std::vector<std::byte> read_encoded(const std::string& name) {
  std::ifstream file(tests_dir().string() + "/quant/encoded/" + name + ".bin", std::ios::binary);
  EXPECT_TRUE(file.is_open()) << name;
  const std::vector<char> bytes((std::istreambuf_iterator<char>(file)), {});
  std::vector<std::byte> out(bytes.size());
  std::memcpy(out.data(), bytes.data(), bytes.size());
  return out;
}

std::vector<float> encode_input() {
  const std::vector<std::byte> bytes = read_encoded("input");
  std::vector<float> values(bytes.size() / 4);
  std::memcpy(values.data(), bytes.data(), bytes.size());
  return values;
}

std::vector<std::byte> encode(QuantType type, const std::vector<float>& values,
                              const float* importance = nullptr) {
  std::vector<std::byte> out(quant_bytes(type, static_cast<int64_t>(values.size())));
  quantize_row(type, values.data(), out.data(), static_cast<int64_t>(values.size()), importance);
  return out;
}

std::vector<float> decode(QuantType type, const std::vector<std::byte>& bytes) {
  const QuantTypeInfo& info = quant_info(type);
  std::vector<float> out(bytes.size() / static_cast<size_t>(info.block_bytes) *
                         static_cast<size_t>(info.block_size));
  dequantize_row(type, bytes.data(), out.data(), static_cast<int64_t>(out.size()));
  return out;
}

double rmse(const std::vector<float>& a, const std::vector<float>& b,
            const float* weights = nullptr) {
  double sum = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    const double difference = double{a[i]} - double{b[i]};
    sum += difference * difference * (weights != nullptr ? weights[i] : 1.0f);
  }
  return std::sqrt(sum / static_cast<double>(a.size()));
}

class SameAsReference : public testing::TestWithParam<QuantType> {};

TEST_P(SameAsReference, EncodesToTheSameBytes) {
  const std::vector<float> input = encode_input();
  const std::vector<std::byte> want = read_encoded(std::string(quant_info(GetParam()).name));
  const std::vector<std::byte> got = encode(GetParam(), input);
  ASSERT_EQ(got.size(), want.size());
  const auto block_bytes = static_cast<size_t>(quant_info(GetParam()).block_bytes);
  for (size_t i = 0; i < got.size(); ++i) {
    ASSERT_EQ(got[i], want[i]) << "block " << i / block_bytes << " byte " << i % block_bytes;
  }
}
INSTANTIATE_TEST_SUITE_P(Canonical, SameAsReference,
                         testing::Values(QuantType::kQ4_0, QuantType::kQ4_1, QuantType::kQ5_0,
                                         QuantType::kQ5_1, QuantType::kQ8_0, QuantType::kTQ1_0,
                                         QuantType::kTQ2_0, QuantType::kBF16, QuantType::kF16),
                         type_name);

TEST(Mxfp4, IsAtLeastAsCloseAsTheReferenceInEveryBlock) {
  const std::vector<float> input = encode_input();
  const std::vector<float> reference = decode(QuantType::kMXFP4, read_encoded("mxfp4"));
  const std::vector<float> ours = decode(QuantType::kMXFP4, encode(QuantType::kMXFP4, input));
  double reference_total = 0;
  double our_total = 0;
  for (size_t block = 0; block < input.size(); block += 32) {
    double reference_error = 0;
    double our_error = 0;
    for (size_t i = block; i < block + 32; ++i) {
      reference_error += std::pow(reference[i] - input[i], 2);
      our_error += std::pow(ours[i] - input[i], 2);
    }
    EXPECT_LE(our_error, reference_error * 1.000001) << block;
    reference_total += reference_error;
    our_total += our_error;
  }
  EXPECT_LT(our_total, 0.99 * reference_total);
}

std::vector<float> normal(size_t n, unsigned seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> distribution;
  std::vector<float> values(n);
  for (float& value : values) value = distribution(random);
  return values;
}

struct Bound {
  QuantType type;
  double rmse;  // for weights of unit variance
};
class NormalWeights : public testing::TestWithParam<Bound> {};

TEST_P(NormalWeights, ErrorIsBounded) {
  const std::vector<float> input = normal(1 << 16, 3);
  const double error = rmse(input, decode(GetParam().type, encode(GetParam().type, input)));
  std::printf("%s rmse %.5f\n", std::string(quant_info(GetParam().type).name).c_str(), error);
  EXPECT_LT(error, GetParam().rmse);
  EXPECT_GT(error, 0.9 * GetParam().rmse);  // the bounds are tight
}
INSTANTIATE_TEST_SUITE_P(
    All, NormalWeights,
    testing::Values(Bound{QuantType::kQ2_K, 0.275}, Bound{QuantType::kQ3_K, 0.149},
                    Bound{QuantType::kQ4_K, 0.072}, Bound{QuantType::kQ5_K, 0.0355},
                    Bound{QuantType::kQ6_K, 0.0175}, Bound{QuantType::kQ8_0, 0.0055},
                    Bound{QuantType::kQ4_0, 0.088}, Bound{QuantType::kQ4_1, 0.08},
                    Bound{QuantType::kQ5_0, 0.0435}, Bound{QuantType::kQ5_1, 0.0385},
                    Bound{QuantType::kIQ4_NL, 0.0755}, Bound{QuantType::kIQ4_XS, 0.076},
                    Bound{QuantType::kMXFP4, 0.1135}, Bound{QuantType::kF8E4M3, 0.0272}),
    [](const auto& param) { return std::string(quant_info(param.param.type).name); });

// One matrix that llama.cpp encoded too (make_encoded.py), with importance and without: we are no
// further off.
TEST(Encode, IsAsCloseAsLlamaCpp) {
  constexpr size_t kRows = 8, kColumns = 1024;
  const std::vector<std::byte> bytes = read_encoded("weights");
  std::vector<float> weights(kRows * kColumns), importance(kColumns), everywhere;
  ASSERT_EQ(bytes.size(), 4 * (weights.size() + importance.size()));
  std::memcpy(weights.data(), bytes.data(), 4 * weights.size());
  std::memcpy(importance.data(), bytes.data() + 4 * weights.size(), 4 * importance.size());
  for (size_t r = 0; r < kRows; ++r)
    everywhere.insert(everywhere.end(), importance.begin(), importance.end());
  const std::vector<float> zeros(weights.size());
  std::ifstream file(tests_dir().string() + "/quant/encoded/llama_cpp_errors.txt");
  std::string name, theirs[2];
  int n_types = 0;
  while (file >> name >> theirs[0] >> theirs[1]) {
    ++n_types;
    const QuantTypeInfo* info = find_quant_type(name);
    ASSERT_NE(info, nullptr) << name;
    const double weighted =
        rmse(weights, decode(info->type, encode(info->type, weights, everywhere.data())),
             everywhere.data()) /
        rmse(weights, zeros, everywhere.data());
    const double plain =
        rmse(weights, decode(info->type, encode(info->type, weights))) / rmse(weights, zeros);
    std::printf("%-8s with importance %.5f (llama.cpp %s), without %.5f (%s)\n", name.c_str(),
                weighted, theirs[0].c_str(), plain, theirs[1].c_str());
    EXPECT_LE(weighted, 1.0001 * std::stod(theirs[0])) << name;
    if (theirs[1] == "nan") continue;
    EXPECT_LE(plain, 1.0001 * std::stod(theirs[1])) << name;
  }
  EXPECT_EQ(n_types, 22);
}

std::vector<QuantType> block_types() {
  std::vector<QuantType> types;
  for (const QuantTypeInfo& info : quant_types()) {
    if (info.block_size > 1) types.push_back(info.type);
  }
  return types;
}
class EveryBlockType : public testing::TestWithParam<QuantType> {};
INSTANTIATE_TEST_SUITE_P(All, EveryBlockType, testing::ValuesIn(block_types()), type_name);

TEST_P(EveryBlockType, HasAnEncoder) { EXPECT_TRUE(can_quantize(GetParam())); }

TEST_P(EveryBlockType, ZerosStayZero) {
  const std::vector<float> zeros(512, 0.0f);
  EXPECT_EQ(decode(GetParam(), encode(GetParam(), zeros)), zeros);
  const std::vector<float> none(512, 0.0f);
  EXPECT_EQ(decode(GetParam(), encode(GetParam(), zeros, none.data())), zeros);
}

// Values that a block can hold come back nearly or exactly as they were.
TEST_P(EveryBlockType, DecodedBlocksSurvive) {
  const QuantTypeInfo& info = quant_info(GetParam());
  const std::vector<float> input = decode(GetParam(), encode(GetParam(), normal(4096, 11)));
  const std::vector<float> again = decode(GetParam(), encode(GetParam(), input));
  const double signal = rmse(input, std::vector<float>(input.size()));
  const double first_error = rmse(normal(4096, 11), input);
  EXPECT_LT(rmse(input, again), std::max(0.25 * first_error, 1e-3 * signal)) << info.name;
}

// Importance moves the error to where it does not matter.
TEST_P(EveryBlockType, ImportanceLowersTheWeightedError) {
  const std::vector<float> input = normal(1 << 14, 5);
  std::vector<float> importance(input.size());
  for (size_t i = 0; i < input.size(); ++i) importance[i] = i % 5 == 0 ? 100.0f : 0.1f;
  const auto plain = decode(GetParam(), encode(GetParam(), input));
  const auto weighted = decode(GetParam(), encode(GetParam(), input, importance.data()));
  const double ratio =
      rmse(input, weighted, importance.data()) / rmse(input, plain, importance.data());
  std::printf("%s weighted error ratio %.4f\n", std::string(quant_info(GetParam()).name).c_str(),
              ratio);
  const QuantType type = GetParam();
  const bool searched =
      type != QuantType::kQ8_0 && type != QuantType::kTQ1_0 && type != QuantType::kTQ2_0;
  // Scales of MXFP4 are powers of two; the codes of Q1_0 are the signs.
  const double bound = type == QuantType::kMXFP4 ? 0.98 : type == QuantType::kQ1_0 ? 0.9999 : 0.95;
  EXPECT_LE(ratio, searched ? bound : 1.0);
}

// Extreme input gives some block, without undefined behaviour.
TEST_P(EveryBlockType, ExtremeValuesDoNotTrap) {
  for (const float extreme : {NAN, INFINITY, -INFINITY, 3e38f, 1e-42f, -1e-45f}) {
    std::vector<float> values = normal(256, 6);
    values[3] = extreme;
    EXPECT_EQ(encode(GetParam(), values).size(), quant_bytes(GetParam(), 256));
    EXPECT_EQ(encode(GetParam(), std::vector<float>(256, extreme)).size(),
              quant_bytes(GetParam(), 256));
  }
}

// One huge value costs the others at most their own magnitude.
TEST_P(EveryBlockType, AnOutlierStaysInItsBlock) {
  std::vector<float> values = normal(1024, 7);
  const std::vector<float> calm = decode(GetParam(), encode(GetParam(), values));
  values[5] = 1000;
  const std::vector<float> decoded = decode(GetParam(), encode(GetParam(), values));
  if (GetParam() != QuantType::kQ1_0) {  // which has one magnitude per block
    EXPECT_NEAR(decoded[5], 1000, 1000.0 / 4);
  }
  for (size_t i = 256; i < values.size(); ++i) EXPECT_EQ(decoded[i], calm[i]);
}

// The scale of the weights does not matter to the relative error (powers of two change exponents
// only).
TEST(Encode, ErrorIsInvariantUnderPowersOfTwo) {
  for (const QuantType type : block_types()) {
    const std::vector<float> values = normal(1024, static_cast<unsigned>(type) + 1);
    const double base = rmse(values, decode(type, encode(type, values)));
    for (int exponent = -4; exponent < 5; ++exponent) {
      std::vector<float> scaled = values;
      for (float& value : scaled) value = std::ldexp(value, exponent);
      const double error = std::ldexp(rmse(scaled, decode(type, encode(type, scaled))), -exponent);
      EXPECT_NEAR(error / base, 1, 0.05)  // half-precision scales may become subnormal
          << quant_info(type).name << " times 2^" << exponent;
    }
  }
}

}  // namespace
}  // namespace penstock
