// Synthetic layers of every method and bit width: what was packed by the formula of the format
// comes back, and damaged layers give one error.
#include "formats/prequantized.h"

#include <gmock/gmock.h>
#include <rapidcheck.h>
#include <rapidcheck/gtest.h>

#include <nlohmann/json.hpp>
#include <numeric>
#include <random>

#include "formats/gguf_writer.h"
#include "formats/hf_config.h"
#include "formats/safetensors_writer.h"
#include "formats/temp_dir.h"

namespace penstock {
namespace {

using nlohmann::json;
using testing::HasSubstr;

// A checkpoint directory in the making: tensors of any element type.
class Checkpoint {
 public:
  template <class T>
  void add(const std::string& name, QuantType type, std::vector<int64_t> shape,
           const std::vector<T>& values) {
    const auto* begin = reinterpret_cast<const std::byte*>(values.data());
    tensors_.push_back({name, type, std::move(shape), {begin, begin + values.size() * sizeof(T)}});
  }

  // The layer "l", or the message of the error.
  Result<std::optional<GroupedMatrix>> open(const json& quantization) {
    return open_with({{"quantization_config", quantization}});
  }

  // The same with a whole config.json.
  Result<std::optional<GroupedMatrix>> open_with(const json& config) {
    SafetensorsWriter writer;
    for (const auto& tensor : tensors_) writer.add_tensor(tensor.name, tensor.type, tensor.shape);
    auto file = writer.create(dir_ / "model.safetensors");
    if (!file) return tl::unexpected(file.error());
    for (const auto& tensor : tensors_) {
      if (const Status status = file->write(tensor.name, tensor.bytes); !status)
        return tl::unexpected(status.error());
    }
    if (const Status status = file->finish(); !status) return tl::unexpected(status.error());
    write_bytes(dir_ / "config.json", config.dump());
    auto source = open_weights(dir_.path());
    if (!source) return tl::unexpected(source.error());
    source_ = std::move(*source);
    const auto checkpoint = open_prequantized(*source_);
    if (!checkpoint) return tl::unexpected(checkpoint.error());
    return (*checkpoint)->find_linear("l");
  }

  // A file beside the weights.
  void add_file(const std::string& name, const json& content) {
    write_bytes(dir_ / name, content.dump());
  }

  std::string error(const json& quantization) {
    const auto layer = open(quantization);
    return layer ? std::string() : layer.error().message;
  }

 private:
  struct Tensor {
    std::string name;
    QuantType type;
    std::vector<int64_t> shape;
    std::vector<std::byte> bytes;
  };
  TempDir dir_;
  std::vector<Tensor> tensors_;
  std::unique_ptr<WeightSource> source_;
};

// A layer as numbers: codes and zeros below 2^bits, scales per row and group.
struct Plan {
  int rows, cols, bits, group_size;
  std::vector<int> codes;     // [rows, cols]
  std::vector<int> zeros;     // [rows, n_groups]
  std::vector<float> scales;  // [rows, n_groups]
  std::vector<int> group_of;  // [cols]

  int n_groups() const { return cols / group_size; }
  float value(int r, int c) const {
    const auto at = static_cast<size_t>(r * n_groups() + group_of[static_cast<size_t>(c)]);
    return scales[at] * static_cast<float>(codes[static_cast<size_t>(r * cols + c)] - zeros[at]);
  }
};

Plan random_plan(int rows, int cols, int bits, int group_size, bool shuffled, unsigned seed) {
  std::mt19937 random(seed);
  Plan plan = {rows, cols, bits, group_size, {}, {}, {}, {}};
  std::uniform_int_distribution<int> code(0, (1 << bits) - 1);
  std::uniform_int_distribution<int> zero(1, (1 << bits) - 1);
  std::uniform_real_distribution<float> scale(0.5f, 2.0f);
  for (int i = 0; i < rows * cols; ++i) plan.codes.push_back(code(random));
  for (int i = 0; i < rows * plan.n_groups(); ++i) plan.zeros.push_back(zero(random));
  for (int i = 0; i < rows * plan.n_groups(); ++i) plan.scales.push_back(scale(random));
  for (int c = 0; c < cols; ++c) plan.group_of.push_back(c / group_size);
  if (shuffled) std::shuffle(plan.group_of.begin(), plan.group_of.end(), random);
  return plan;
}

void check_values(const GroupedMatrix& matrix, const Plan& plan) {
  RC_ASSERT(matrix.rows == plan.rows);
  RC_ASSERT(matrix.cols == plan.cols);
  std::vector<float> values(static_cast<size_t>(plan.rows * plan.cols));
  matrix.dequantize(0, plan.rows, values.data());
  for (int r = 0; r < plan.rows; ++r) {
    for (int c = 0; c < plan.cols; ++c)
      RC_ASSERT(values[static_cast<size_t>(r * plan.cols + c)] == plan.value(r, c));
  }
  // A panel of rows gives the same codes as all rows.
  std::vector<uint8_t> all(values.size());
  std::vector<uint8_t> panel(static_cast<size_t>(plan.cols));
  matrix.codes(0, plan.rows, all.data());
  matrix.codes(plan.rows - 1, 1, panel.data());
  RC_ASSERT(std::equal(panel.begin(), panel.end(), all.end() - plan.cols));
}

// Puts `bits` bits into a stream of 32-bit words whose word i is words[i * stride].
void put_bits(std::vector<uint32_t>& words, size_t first, size_t stride, size_t bit, int bits,
              uint32_t value) {
  for (int b = 0; b < bits; ++b) {
    const size_t at = bit + static_cast<size_t>(b);
    words[first + at / 32 * stride] |= (value >> b & 1) << (at % 32);
  }
}

template <class T>
std::vector<T> by_group(const std::vector<T>& values, int rows, int n_groups) {
  std::vector<T> out;
  for (int g = 0; g < n_groups; ++g) {
    for (int r = 0; r < rows; ++r) out.push_back(values[static_cast<size_t>(r * n_groups + g)]);
  }
  return out;
}

void add_gptq(Checkpoint& checkpoint, const Plan& plan, bool v2) {
  const auto rows = static_cast<size_t>(plan.rows);
  const size_t words_down = static_cast<size_t>(plan.cols * plan.bits / 32);
  const size_t words_across = static_cast<size_t>(plan.rows * plan.bits / 32);
  std::vector<uint32_t> qweight(words_down * rows);
  std::vector<uint32_t> qzeros(static_cast<size_t>(plan.n_groups()) * words_across);
  const auto bits = static_cast<size_t>(plan.bits);
  for (int r = 0; r < plan.rows; ++r) {
    for (int c = 0; c < plan.cols; ++c) {
      put_bits(qweight, static_cast<size_t>(r), rows, static_cast<size_t>(c) * bits, plan.bits,
               static_cast<uint32_t>(plan.codes[static_cast<size_t>(r * plan.cols + c)]));
    }
    for (int g = 0; g < plan.n_groups(); ++g) {
      const int zero = plan.zeros[static_cast<size_t>(r * plan.n_groups() + g)] - (v2 ? 0 : 1);
      put_bits(qzeros, static_cast<size_t>(g) * words_across, 1, static_cast<size_t>(r) * bits,
               plan.bits, static_cast<uint32_t>(zero));
    }
  }
  const auto groups = static_cast<int64_t>(plan.n_groups());
  checkpoint.add("l.qweight", QuantType::kI32, {static_cast<int64_t>(words_down), plan.rows},
                 qweight);
  checkpoint.add("l.qzeros", QuantType::kI32, {groups, static_cast<int64_t>(words_across)}, qzeros);
  checkpoint.add("l.scales", QuantType::kF32, {groups, plan.rows},
                 by_group(plan.scales, plan.rows, plan.n_groups()));
  checkpoint.add("l.g_idx", QuantType::kI32, {plan.cols}, plan.group_of);
}

json gptq_config(int bits, int group_size, bool v2 = false) {
  return {{"quant_method", "gptq"},
          {"bits", bits},
          {"group_size", group_size},
          {"checkpoint_format", v2 ? "gptq_v2" : "gptq"}};
}

RC_GTEST_PROP(Gptq, EveryBitWidth, ()) {
  const int bits = *rc::gen::element(2, 3, 4, 8);
  const int group_size = *rc::gen::element(32, 64);
  const bool v2 = *rc::gen::arbitrary<bool>();
  const Plan plan = random_plan(32, group_size * *rc::gen::inRange(1, 4), bits, group_size,
                                *rc::gen::arbitrary<bool>(), *rc::gen::arbitrary<unsigned>());
  Checkpoint checkpoint;
  add_gptq(checkpoint, plan, v2);
  const auto layer = checkpoint.open(gptq_config(bits, group_size, v2));
  RC_ASSERT(layer.has_value() && layer->has_value());
  check_values(**layer, plan);
}

TEST(Gptq, DamagedLayersAreRefused) {
  const Plan plan = random_plan(32, 64, 4, 32, false, 1);
  const auto with = [&](const std::function<void(Plan&)>& change, const json& config) {
    Plan changed = plan;
    change(changed);
    Checkpoint checkpoint;
    add_gptq(checkpoint, changed, false);
    return checkpoint.error(config);
  };
  const auto same = [](Plan&) {};
  EXPECT_EQ(with(same, gptq_config(4, 32)), "");
  EXPECT_THAT(with(same, gptq_config(4, 48)), HasSubstr("group size"));
  EXPECT_THAT(with(same, gptq_config(4, 64)), HasSubstr("qzeros: expected [1, 4], got [2, 4]"));
  EXPECT_THAT(with(same, gptq_config(5, 32)), HasSubstr("whole codes"));
  EXPECT_THAT(with(same, gptq_config(8, 32)), HasSubstr("qzeros"));
  EXPECT_THAT(with(same, gptq_config(9, 32)), HasSubstr("expected 2 to 8, got 9"));
  EXPECT_THAT(with([](Plan& p) { p.group_of[3] = 1; }, gptq_config(4, 32)), HasSubstr("g_idx"));
  EXPECT_THAT(with([](Plan& p) { p.group_of[3] = -1; }, gptq_config(4, 32)), HasSubstr("g_idx"));
  EXPECT_THAT(with([](Plan& p) { p.group_of[3] = 1 << 30; }, gptq_config(4, 32)),
              HasSubstr("g_idx"));
  Checkpoint alone;
  alone.add("l.qweight", QuantType::kI32, {8, 32}, std::vector<int32_t>(256));
  EXPECT_THAT(alone.error(gptq_config(4, 32)), HasSubstr("expected tensor qzeros"));
  json marlin = gptq_config(4, 32);
  marlin["checkpoint_format"] = "marlin";
  EXPECT_THAT(with(same, marlin), HasSubstr("\"marlin\""));
}

// Layers of other bits and groups than the file's usual ones, as GPTQModel ("dynamic") and AutoRound
// ("extra_config") write them.
TEST(Gptq, LayersOfMixedFilesTellTheirBits) {
  for (const auto& [bits, group_size] : {std::pair(8, 32), std::pair(2, 64), std::pair(4, 16)}) {
    const Plan plan = random_plan(32, 64, bits, group_size, false, 7);
    for (const char* key : {"dynamic", "extra_config"}) {
      Checkpoint checkpoint;
      add_gptq(checkpoint, plan, false);
      json config = gptq_config(4, 32);
      config[key] = {{"+:.*l$", {{"bits", bits}, {"group_size", group_size}}}};
      const auto layer = checkpoint.open(config);
      ASSERT_TRUE(layer.has_value() && layer->has_value()) << layer.error().message;
      check_values(**layer, plan);
    }
  }
  Checkpoint damaged;
  damaged.add("l.qweight", QuantType::kI32, {8, 32}, std::vector<int32_t>(256));
  damaged.add("l.qzeros", QuantType::kI32, {3, 7}, std::vector<int32_t>(21));
  damaged.add("l.scales", QuantType::kF32, {2, 32}, std::vector<float>(64, 1));
  json config = gptq_config(4, 32);
  config["dynamic"] = {{"+:l", {{"bits", 8}}}};
  EXPECT_THAT(damaged.error(config), HasSubstr("qzeros: expected [2, 4], got [3, 7]"));
}

TEST(AutoRound, IsGptqOrAwqUnderAnotherName) {
  const Plan plan = random_plan(32, 64, 4, 32, false, 3);
  Checkpoint checkpoint;
  add_gptq(checkpoint, plan, false);
  json config = {{"quant_method", "auto-round"},
                 {"packing_format", "auto_round:auto_gptq"},
                 {"data_type", "int"},
                 {"bits", 4},
                 {"group_size", 32},
                 {"sym", true}};
  const auto layer = checkpoint.open(config);
  ASSERT_TRUE(layer.has_value() && layer->has_value()) << layer.error().message;
  check_values(**layer, plan);
  config["packing_format"] = "auto_round:llm_compressor";
  EXPECT_THAT(checkpoint.error(config), HasSubstr("auto_round:llm_compressor"));
  config["packing_format"] = "auto_round:auto_gptq", config["data_type"] = "mx_fp";
  EXPECT_THAT(checkpoint.error(config), HasSubstr("mx_fp"));
}

RC_GTEST_PROP(Awq, RowsInterleave, ()) {
  const Plan plan = random_plan(*rc::gen::element(8, 32), 64, 4, *rc::gen::element(16, 64), false,
                                *rc::gen::arbitrary<unsigned>());
  constexpr int kOrder[8] = {0, 2, 4, 6, 1, 3, 5, 7};  // the row in nibble i of a word
  const auto pack = [&](const std::vector<int>& values, int n) {
    // values [rows, n] to words [n, rows / 8]
    std::vector<uint32_t> words(static_cast<size_t>(n * plan.rows / 8));
    for (int j = 0; j < n; ++j) {
      for (int r = 0; r < plan.rows; r += 8) {
        for (int i = 0; i < 8; ++i) {
          const auto value =
              static_cast<uint32_t>(values[static_cast<size_t>((r + kOrder[i]) * n + j)]);
          words[static_cast<size_t>(j * plan.rows / 8 + r / 8)] |= value << (4 * i);
        }
      }
    }
    return words;
  };
  Checkpoint checkpoint;
  const int64_t groups = plan.n_groups();
  checkpoint.add("l.qweight", QuantType::kI32, {plan.cols, plan.rows / 8},
                 pack(plan.codes, plan.cols));
  checkpoint.add("l.qzeros", QuantType::kI32, {groups, plan.rows / 8},
                 pack(plan.zeros, plan.n_groups()));
  checkpoint.add("l.scales", QuantType::kF32, {groups, plan.rows},
                 by_group(plan.scales, plan.rows, plan.n_groups()));
  const auto layer = checkpoint.open({{"quant_method", "awq"},
                                      {"bits", 4},
                                      {"group_size", plan.group_size},
                                      {"version", "gemm"},
                                      {"zero_point", true}});
  RC_ASSERT(layer.has_value() && layer->has_value());
  check_values(**layer, plan);
}

json compressed_config(int bits, const json& activations = nullptr) {
  return {{"quant_method", "compressed-tensors"},
          {"config_groups",
           {{"group_0",
             {{"weights", {{"num_bits", bits}, {"type", "int"}}},
              {"input_activations", activations}}}}}};
}

RC_GTEST_PROP(CompressedTensors, PackedWords, ()) {
  const int bits = *rc::gen::inRange(2, 9);
  const int group_size = *rc::gen::element(16, 24);
  const bool ordered = *rc::gen::arbitrary<bool>();
  Plan plan = random_plan(*rc::gen::inRange(1, 12), group_size * 3, bits, group_size, ordered,
                          *rc::gen::arbitrary<unsigned>());
  const bool asymmetric = *rc::gen::arbitrary<bool>();
  if (!asymmetric) plan.zeros.assign(plan.zeros.size(), 1 << (bits - 1));
  const int per_word = 32 / bits;
  const int words = (plan.cols + per_word - 1) / per_word;
  const int zero_rows = (plan.rows + per_word - 1) / per_word;
  std::vector<uint32_t> packed(static_cast<size_t>(plan.rows * words));
  std::vector<uint32_t> zeros(static_cast<size_t>(zero_rows * plan.n_groups()));
  for (int r = 0; r < plan.rows; ++r) {
    for (int c = 0; c < plan.cols; ++c) {
      packed[static_cast<size_t>(r * words + c / per_word)] |=
          static_cast<uint32_t>(plan.codes[static_cast<size_t>(r * plan.cols + c)])
          << (c % per_word * bits);
    }
    for (int g = 0; g < plan.n_groups(); ++g) {
      zeros[static_cast<size_t>(r / per_word * plan.n_groups() + g)] |=
          static_cast<uint32_t>(plan.zeros[static_cast<size_t>(r * plan.n_groups() + g)])
          << (r % per_word * bits);
    }
  }
  Checkpoint checkpoint;
  checkpoint.add("l.weight_packed", QuantType::kI32, {plan.rows, words}, packed);
  checkpoint.add("l.weight_shape", QuantType::kI64, {2},
                 std::vector<int64_t>{plan.rows, plan.cols});
  checkpoint.add("l.weight_scale", QuantType::kF32, {plan.rows, plan.n_groups()}, plan.scales);
  if (ordered) checkpoint.add("l.weight_g_idx", QuantType::kI32, {plan.cols}, plan.group_of);
  if (asymmetric)
    checkpoint.add("l.weight_zero_point", QuantType::kI32, {zero_rows, plan.n_groups()}, zeros);
  const auto layer = checkpoint.open(compressed_config(bits));
  RC_ASSERT(layer.has_value() && layer->has_value());
  RC_ASSERT(asymmetric || (*layer)->is_symmetric());
  check_values(**layer, plan);
}

TEST(CompressedTensors, Int8StaticWithZeroPoint) {
  Checkpoint checkpoint;
  checkpoint.add("l.weight", QuantType::kI8, {2, 3}, std::vector<int8_t>{-128, 0, 127, 5, -6, 7});
  checkpoint.add("l.weight_scale", QuantType::kF32, {2, 1}, std::vector<float>{0.5f, 2.0f});
  checkpoint.add("l.weight_zero_point", QuantType::kI8, {2, 1}, std::vector<int8_t>{-8, 3});
  checkpoint.add("l.input_scale", QuantType::kF32, {1}, std::vector<float>{0.125f});
  const auto layer = checkpoint.open(compressed_config(
      8, {{"num_bits", 8}, {"type", "int"}, {"dynamic", false}, {"symmetric", true}}));
  ASSERT_TRUE(layer.has_value() && layer->has_value()) << layer.error().message;
  std::vector<float> values(6);
  (*layer)->dequantize(0, 2, values.data());
  EXPECT_THAT(values, testing::ElementsAre(-60, 4, 67.5f, 4, -18, 8));
  EXPECT_EQ((*layer)->activations.kind, ActivationCoding::Kind::kInt8Static);
  EXPECT_EQ((*layer)->activations.static_scale, 0.125f);
}

TEST(BlockFp8, ScalesAreOfBlocks) {
  Checkpoint checkpoint;
  const std::vector<uint8_t> one_and_two = {0x38, 0x40, 0x38, 0x40, 0x38, 0x40,
                                            0x38, 0x40, 0x38, 0x40, 0x38, 0x40};
  checkpoint.add("l.weight", QuantType::kF8E4M3, {3, 4}, one_and_two);
  checkpoint.add("l.weight_scale_inv", QuantType::kF32, {2, 2},
                 std::vector<float>{1, 10, 100, 1000});
  const auto layer = checkpoint.open({{"quant_method", "fp8"}, {"weight_block_size", {2, 2}}});
  ASSERT_TRUE(layer.has_value() && layer->has_value()) << layer.error().message;
  std::vector<float> values(12);
  (*layer)->dequantize(0, 3, values.data());
  EXPECT_THAT(values, testing::ElementsAre(1, 2, 10, 20, 1, 2, 10, 20, 100, 200, 1000, 2000));
}

// The last blocks hold fewer rows and columns.
TEST(BlockFp8, ScalesOfCutBlocks) {
  Checkpoint checkpoint;
  checkpoint.add("l.weight", QuantType::kF8E4M3, {3, 6}, std::vector<uint8_t>(18, 0x38));
  checkpoint.add("l.weight_scale_inv", QuantType::kF32, {2, 2},
                 std::vector<float>{1, 10, 100, 1000});
  const json config = {{"quant_method", "fp8"}, {"weight_block_size", {2, 4}}};
  const auto layer = checkpoint.open(config);
  ASSERT_TRUE(layer.has_value() && layer->has_value()) << layer.error().message;
  std::vector<float> values(18);
  (*layer)->dequantize(0, 3, values.data());
  EXPECT_THAT(values, testing::ElementsAre(1, 1, 1, 1, 10, 10, 1, 1, 1, 1, 10, 10, 100, 100, 100,
                                           100, 1000, 1000));
  Checkpoint wrong;
  wrong.add("l.weight", QuantType::kF8E4M3, {3, 6}, std::vector<uint8_t>(18, 0x38));
  wrong.add("l.weight_scale_inv", QuantType::kF32, {2, 3}, std::vector<float>(6, 1));
  EXPECT_THAT(wrong.error(config), HasSubstr("rows of scales"));
}

// DeepSeek V4: exponents of two, and experts in E2M1 with a scale for each 32 inputs of a row.
TEST(BlockFp8, ScalesArePowersOfTwo) {
  const json config = {{"quant_method", "fp8"}, {"weight_block_size", {2, 2}}};
  Checkpoint checkpoint;
  checkpoint.add("l.weight", QuantType::kF8E4M3, {3, 2}, std::vector<uint8_t>(6, 0x40));
  checkpoint.add("l.scale", QuantType::kU8, {2, 1}, std::vector<uint8_t>{130, 124});
  const auto layer = checkpoint.open(config);
  ASSERT_TRUE(layer.has_value() && layer->has_value()) << layer.error().message;
  std::vector<float> values(6);
  (*layer)->dequantize(0, 3, values.data());
  EXPECT_THAT(values, testing::ElementsAre(16, 16, 16, 16, 0.25f, 0.25f));

  Checkpoint experts;
  std::vector<int8_t> codes(2 * 32);
  for (size_t i = 0; i < codes.size(); ++i) codes[i] = static_cast<int8_t>(0xf1);  // 0.5, -6
  experts.add("l.weight", QuantType::kI8, {2, 32}, codes);
  experts.add("l.scale", QuantType::kU8, {2, 2}, std::vector<uint8_t>{127, 128, 126, 129});
  const auto expert = experts.open(config);
  ASSERT_TRUE(expert.has_value() && expert->has_value()) << expert.error().message;
  std::vector<float> rows(2 * 64);
  (*expert)->dequantize(0, 2, rows.data());
  const float scales[] = {1, 2, 0.5f, 4};
  for (size_t i = 0; i < rows.size(); ++i)
    EXPECT_EQ(rows[i], (i % 2 == 0 ? 0.5f : -6.0f) * scales[i / 32]) << i;
  Checkpoint wrong;
  wrong.add("l.weight", QuantType::kI8, {2, 32}, codes);
  wrong.add("l.scale", QuantType::kU8, {2, 3}, std::vector<uint8_t>(6, 127));
  EXPECT_THAT(wrong.error(config), HasSubstr("rows of scales"));
}

// weight_scale of vLLM's and fbgemm's files: one for the matrix, or one for each row.
TEST(Fp8, ScalesOfMatricesAndRows) {
  const std::vector<uint8_t> codes = {0x38, 0x40, 0xb8, 0x30, 0x38, 0x40};  // 1 2 -1 0.5 1 2
  const auto with = [&](std::vector<int64_t> shape, const std::vector<float>& scales,
                        const json& config) {
    Checkpoint checkpoint;
    checkpoint.add("l.weight", QuantType::kF8E4M3, {3, 2}, codes);
    checkpoint.add("l.weight_scale", QuantType::kF32, std::move(shape), scales);
    checkpoint.add("l.input_scale", QuantType::kF32, {1}, std::vector<float>{0.5f});
    const auto layer = checkpoint.open(config);
    EXPECT_TRUE(layer.has_value() && layer->has_value()) << layer.error().message;
    std::vector<float> values(6);
    if (layer.has_value() && layer->has_value()) (*layer)->dequantize(0, 3, values.data());
    return values;
  };
  const json fp8 = {{"quant_method", "fp8"}, {"activation_scheme", "static"}};
  const json fbgemm = {{"quant_method", "fbgemm_fp8"}, {"activation_scale_ub", 1200.0}};
  const json nvidia = {{"quant_method", "modelopt"}, {"quant_algo", "FP8"}};
  EXPECT_THAT(with({}, {4}, fp8), testing::ElementsAre(4, 8, -4, 2, 4, 8));
  EXPECT_THAT(with({1}, {4}, nvidia), testing::ElementsAre(4, 8, -4, 2, 4, 8));
  EXPECT_THAT(with({3, 1}, {4, 2, 1}, fbgemm), testing::ElementsAre(4, 8, -2, 1, 1, 2));
  EXPECT_THAT(with({3}, {4, 2, 1}, nvidia), testing::ElementsAre(4, 8, -2, 1, 1, 2));
  Checkpoint wrong;
  wrong.add("l.weight", QuantType::kF8E4M3, {3, 2}, codes);
  wrong.add("l.weight_scale", QuantType::kF32, {2}, std::vector<float>{1, 2});
  EXPECT_THAT(wrong.error(fp8), HasSubstr("rows of scales"));
}

// NVFP4: E2M1 in pairs, a scale in F8 for each 16 inputs, and one number for the matrix.
TEST(ModelOptimizer, PairsOfE2M1) {
  for (const bool bytes : {false, true}) {  // of F8 scales
    Checkpoint checkpoint;
    checkpoint.add("l.weight", QuantType::kU8, {2, 16}, std::vector<uint8_t>(32, 0xf1));  // 0.5 -6
    const std::vector<uint8_t> scales = {0x38, 0x40, 0x30, 0x48};  // 1 2 0.5 4
    checkpoint.add("l.weight_scale", bytes ? QuantType::kU8 : QuantType::kF8E4M3, {2, 2}, scales);
    checkpoint.add("l.weight_scale_2", QuantType::kF32, {}, std::vector<float>{0.25f});
    checkpoint.add("l.input_scale", QuantType::kF32, {}, std::vector<float>{3});
    const auto layer = checkpoint.open({{"quant_method", "modelopt"},
                                        {"quant_algo", "MIXED_PRECISION"},
                                        {"quantized_layers", {{"l", {{"quant_algo", "NVFP4"}}}}}});
    ASSERT_TRUE(layer.has_value() && layer->has_value()) << layer.error().message;
    EXPECT_EQ((*layer)->group_size, 16);
    std::vector<float> values(2 * 32);
    (*layer)->dequantize(0, 2, values.data());
    const float wanted[] = {0.25f, 0.5f, 0.125f, 1};
    for (size_t i = 0; i < values.size(); ++i)
      EXPECT_EQ(values[i], (i % 2 == 0 ? 0.5f : -6.0f) * wanted[i / 16]) << i;
  }
}

TEST(ModelOptimizer, ScalesArePowersOfTwo) {
  Checkpoint checkpoint;
  checkpoint.add("l.weight", QuantType::kF8E4M3, {1, 64}, std::vector<uint8_t>(64, 0x40));
  checkpoint.add("l.weight_scale", QuantType::kU8, {1, 2}, std::vector<uint8_t>{128, 126});
  const auto layer = checkpoint.open({{"quant_method", "modelopt"}, {"quant_algo", "MXFP8"}});
  ASSERT_TRUE(layer.has_value() && layer->has_value()) << layer.error().message;
  std::vector<float> values(64);
  (*layer)->dequantize(0, 1, values.data());
  EXPECT_EQ(values[31], 4.0f);
  EXPECT_EQ(values[32], 1.0f);
}

// Settings are in config.json, also one level deeper, or in a file beside it.
TEST(ModelOptimizer, SettingsAreFoundWhereFilesHaveThem) {
  const json inner = {{"quant_algo", "fp8"}, {"kv_cache_quant_algo", "FP8"}};
  for (const bool apart : {false, true}) {
    Checkpoint checkpoint;
    checkpoint.add("l.weight", QuantType::kF8E4M3, {1, 2}, std::vector<uint8_t>{0x38, 0x40});
    checkpoint.add("l.weight_scale", QuantType::kF32, {}, std::vector<float>{2});
    if (apart)
      checkpoint.add_file("hf_quant_config.json",
                          {{"producer", {{"name", "modelopt"}}}, {"quantization", inner}});
    const auto layer = checkpoint.open_with(
        apart ? json::object()
              : json{{"quantization_config",
                      {{"quant_method", "modelopt"}, {"quantization", inner}}}});
    ASSERT_TRUE(layer.has_value() && layer->has_value()) << layer.error().message;
    EXPECT_EQ((*layer)->scales[0], 2.0f);
  }
}

TEST(ModelOptimizer, WhatChangesInputsAndOtherKindsAreRefused) {
  Checkpoint checkpoint;
  checkpoint.add("l.weight", QuantType::kF8E4M3, {1, 2}, std::vector<uint8_t>(2));
  checkpoint.add("l.weight_scale", QuantType::kF32, {1}, std::vector<float>{1});
  checkpoint.add("l.pre_quant_scale", QuantType::kF32, {2}, std::vector<float>{1, 2});
  const auto error = [&](json config) {
    config["quant_method"] = "modelopt";
    return checkpoint.error(config);
  };
  EXPECT_THAT(error({{"quant_algo", "FP8"}}), HasSubstr("pre_quant_scale"));
  EXPECT_THAT(error({{"quant_algo", "W4A8_AWQ"}}), HasSubstr("got \"W4A8_AWQ\""));
  EXPECT_THAT(error({{"quant_algo", 8}}), HasSubstr("quant_algo: expected one of FP8"));
  EXPECT_THAT(error({{"quant_algo", "MIXED_PRECISION"},
                     {"quantized_layers", {{"l", {{"quant_algo", "INT8_SQ"}}}}}}),
              HasSubstr("got \"INT8_SQ\""));
}

// Rotations in weights are in the file's numbers; those of inputs would have to be computed.
TEST(CompressedTensors, RotationsThatActWhileTheModelRunsAreRefused) {
  const auto error = [](const json& transforms) {
    Checkpoint checkpoint;
    checkpoint.add("l.weight", QuantType::kI8, {1, 2}, std::vector<int8_t>{1, 2});
    checkpoint.add("l.weight_scale", QuantType::kF32, {1}, std::vector<float>{1});
    json config = compressed_config(8);
    config["transform_config"] = transforms;
    return checkpoint.error(config);
  };
  const auto at = [](const char* location) {
    const json apply = json::array({{{"location", "weight_input"}, {"targets", {"Linear"}}},
                                    {{"location", location}, {"targets", {"Linear"}}}});
    return json{{"config_groups", {{"R4", {{"type", "hadamard"}, {"apply", apply}}}}}};
  };
  for (const json& none : {json(), json::object(), json{{"config_groups", nullptr}}})
    EXPECT_EQ(error(none), "") << none;
  EXPECT_EQ(error(at("weight_output")), "");
  for (const char* location : {"input", "output", "q_attn", "k_cache"})
    EXPECT_THAT(error(at(location)), HasSubstr("acts while the model runs")) << location;
}

TEST(BitNet, FourRowsInAByte) {
  for (const bool divide : {true, false}) {
    Checkpoint checkpoint;
    // The example of transformers' unpack_weights.
    checkpoint.add("l.weight", QuantType::kU8, {2, 2},
                   std::vector<uint8_t>{0b10100001, 0b00011000, 0b10010000, 0b00001010});
    checkpoint.add("l.weight_scale", QuantType::kF32, {1}, std::vector<float>{4});
    json config = {{"quant_method", "bitnet"}};
    if (!divide) config["linear_class"] = "autobitlinear";
    const auto layer = checkpoint.open(config);
    ASSERT_TRUE(layer.has_value() && layer->has_value()) << layer.error().message;
    std::vector<float> values(16);
    (*layer)->dequantize(0, 8, values.data());
    for (float& value : values) value *= divide ? 4.0f : 0.25f;
    EXPECT_THAT(values,
                testing::ElementsAre(0, -1, -1, 1, -1, 1, -1, 1, 1, 0, 0, -1, 1, -1, 1, -1));
  }
}

// Blocks are those of the flat weight: with 9 inputs they begin and end anywhere in a row, and 27
// codes end in the middle of a byte.
TEST(BitsAndBytes, BlocksCrossRows) {
  for (const int cols : {9, 40, 96}) {
    Checkpoint checkpoint;
    const int n = 3 * cols, block = 64;
    std::vector<uint8_t> bytes(static_cast<size_t>((n + 1) / 2));
    std::vector<float> absmax, map, expected;
    for (int i = 0; i < 16; ++i) map.push_back(static_cast<float>(i) - 7.5f);
    for (int i = 0; i < n; i += block) absmax.push_back(static_cast<float>(1 + i));
    for (int i = 0; i < n; ++i) {
      const int code = i * 7 % 16;
      bytes[static_cast<size_t>(i / 2)] |= static_cast<uint8_t>(i % 2 == 0 ? code << 4 : code);
      expected.push_back(map[static_cast<size_t>(code)] * absmax[static_cast<size_t>(i / block)]);
    }
    checkpoint.add("l.weight", QuantType::kU8, {static_cast<int64_t>(bytes.size()), 1}, bytes);
    checkpoint.add("l.weight.absmax", QuantType::kF32, {static_cast<int64_t>(absmax.size())},
                   absmax);
    checkpoint.add("l.weight.quant_map", QuantType::kF32, {16}, map);
    const std::string state = json({{"shape", {3, cols}}, {"blocksize", block}}).dump();
    checkpoint.add("l.weight.quant_state.bitsandbytes__nf4", QuantType::kU8,
                   {static_cast<int64_t>(state.size())},
                   std::vector<char>(state.begin(), state.end()));
    const auto layer = checkpoint.open({{"quant_method", "bitsandbytes"}, {"load_in_4bit", true}});
    ASSERT_TRUE(layer.has_value() && layer->has_value()) << layer.error().message;
    std::vector<float> values(static_cast<size_t>(n));
    (*layer)->dequantize(0, 3, values.data());
    EXPECT_EQ(values, expected) << cols;
    std::vector<float> last(static_cast<size_t>(cols));
    (*layer)->dequantize(2, 1, last.data());
    EXPECT_TRUE(std::equal(last.begin(), last.end(), expected.end() - cols)) << cols;
  }
}

TEST(BitsAndBytes, DamagedStateIsRefused) {
  const auto error = [](const std::string& state, size_t n_absmax = 2) {
    Checkpoint checkpoint;
    checkpoint.add("l.weight", QuantType::kU8, {64, 1}, std::vector<uint8_t>(64, 0x0f));
    checkpoint.add("l.weight.absmax", QuantType::kF32, {static_cast<int64_t>(n_absmax)},
                   std::vector<float>(n_absmax, 2));
    checkpoint.add("l.weight.quant_map", QuantType::kF32, {16}, std::vector<float>(16, 0.5f));
    checkpoint.add("l.weight.quant_state.bitsandbytes__nf4", QuantType::kU8,
                   {static_cast<int64_t>(state.size())},
                   std::vector<char>(state.begin(), state.end()));
    return checkpoint.error({{"quant_method", "bitsandbytes"}, {"load_in_4bit", true}});
  };
  EXPECT_EQ(error(R"({"shape":[2,64],"blocksize":64})"), "");
  EXPECT_THAT(error(R"({"shape":[2,64],"blocksize":32})"), HasSubstr("expected 4 scales, got 2"));
  EXPECT_EQ(error(R"({"shape":[4,32],"blocksize":64})"), "");
  EXPECT_THAT(error(R"({"shape":[3,40],"blocksize":64})"),
              HasSubstr("expected 120 codes, got 64 bytes"));
  EXPECT_THAT(error(R"({"shape":[2,128],"blocksize":64})"), HasSubstr("expected 4 scales, got 2"));
  EXPECT_THAT(error(R"({"shape":[1,128],"blocksize":64})"), "");
  EXPECT_THAT(error(R"({"shape":[2,-64],"blocksize":64})"), HasSubstr("quant_state"));
  EXPECT_THAT(error(R"({"shape":[2,64],"blocksize":0})"), HasSubstr("quant_state"));
  EXPECT_THAT(error(R"({"shape":[2147483647,2147483647],"blocksize":1})"), HasSubstr("expected"));
  EXPECT_THAT(error("not json"), HasSubstr("quant_state"));
  EXPECT_THAT(error("[1]"), HasSubstr("quant_state"));
}

// Layers of two matrices of 3 rows: the file with the numbers that `scales` are, or the message of
// the error.
Result<std::optional<GroupedMatrix>> open_gguf_nvfp4_layer(const TempDir& dir,
                                                           const std::vector<std::byte>& blocks,
                                                           const std::vector<float>& scales,
                                                           std::unique_ptr<WeightSource>& source) {
  GgufWriter writer;
  writer.set("general.architecture", "test");
  writer.add_tensor("l.weight", QuantType::kNVFP4, {2, 3, 128});
  if (!scales.empty())
    writer.add_tensor("l.scale", QuantType::kF32, {static_cast<int64_t>(scales.size())});
  auto file = writer.create(dir / "m.gguf").value();
  EXPECT_TRUE(file.write("l.weight", blocks));
  if (!scales.empty()) {
    EXPECT_TRUE(file.write("l.scale", std::as_bytes(std::span(scales))));
  }
  EXPECT_TRUE(file.finish());
  source = open_weights(dir / "m.gguf").value();
  return open_prequantized(*source).value()->find_linear("l");
}

TEST(GgufNvfp4, IsTimesTheNumberOfEachMatrix) {
  const TempDir dir;
  std::mt19937 random(5);
  std::vector<std::byte> blocks(quant_bytes(QuantType::kNVFP4, 2 * 3 * 128));
  for (std::byte& byte : blocks) byte = static_cast<std::byte>(random());
  std::unique_ptr<WeightSource> source;
  const auto layer = open_gguf_nvfp4_layer(dir, blocks, {0.5f, 3.0f}, source);
  ASSERT_TRUE(layer && *layer) << layer.error().message;
  EXPECT_EQ((*layer)->rows, 6);
  std::vector<float> values(size_t{6} * 128), plain(values.size());
  (*layer)->dequantize(0, 6, values.data());
  dequantize_row(QuantType::kNVFP4, blocks.data(), plain.data(),
                 static_cast<int64_t>(plain.size()));
  for (size_t i = 0; i < values.size(); ++i)
    EXPECT_EQ(values[i], plain[i] * (i < 384 ? 0.5f : 3.0f)) << i;

  // an encoding like any other
  EXPECT_FALSE(open_gguf_nvfp4_layer(dir, blocks, {}, source).value().has_value());
  EXPECT_THAT(open_gguf_nvfp4_layer(dir, blocks, {1, 2, 3}, source).error().message,
              HasSubstr("expected one number for each of 2 matrices, got 3"));
}

TEST(Prequantized, UnknownMethodsAreRefusedAndPlainOnesIgnored) {
  Checkpoint checkpoint;
  EXPECT_THAT(checkpoint.error({{"quant_method", "aqlm"}}), HasSubstr("expected one of gptq, awq"));
  EXPECT_THAT(checkpoint.error({{"quant_method", 5}}), HasSubstr("got \"\""));
  EXPECT_THAT(checkpoint.error("text"), HasSubstr("expected an object, got string"));
  EXPECT_THAT(checkpoint.error({{"quant_method", "compressed-tensors"}}),
              HasSubstr("config_groups"));
  EXPECT_THAT(checkpoint.error({{"quant_method", "awq"}, {"bits", 3}}),
              HasSubstr("expected 4 bits"));
  const auto absent = checkpoint.open(gptq_config(4, 128));
  ASSERT_TRUE(absent.has_value());
  EXPECT_FALSE(absent->has_value());
}

// Multimodal checkpoints may say it of their text model only, older ones under another name.
TEST(Prequantized, TheConfigurationIsFoundWhereFilesHaveIt) {
  const json unknown = {{"quant_method", "aqlm"}};
  for (const json& config :
       {json{{"quantization_config", unknown}}, json{{"compression_config", unknown}},
        json{{"text_config", {{"quantization_config", unknown}}}},
        json{{"thinker_config", {{"text_config", {{"quantization_config", unknown}}}}}},
        json{{"quantization_config", nullptr},
             {"text_config", {{"quantization_config", unknown}}}}}) {
    Checkpoint checkpoint;
    const auto opened = checkpoint.open_with(config);
    ASSERT_FALSE(opened.has_value()) << config;
    EXPECT_THAT(opened.error().message, HasSubstr("quant_method: expected one of")) << config;
    json plain = config;
    erase_quantization_config(plain);
    EXPECT_EQ(quantization_config_of(plain), nullptr) << plain;
  }
}

}  // namespace
}  // namespace penstock
