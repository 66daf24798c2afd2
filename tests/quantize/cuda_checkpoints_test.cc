// Whole checkpoints of GPTQ, AWQ, compressed-tensors, bitsandbytes, BitNet and FP8 in blocks, as
// directories, on CUDA's emulated device: the logits are those that the same weights give in F32 on
// the CPU.
#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>

#include "formats/safetensors_writer.h"
#include "formats/temp_dir.h"
#include "model/arch/read_config.h"
#include "model/sources/synthetic.h"
#include "quantize/golden_models.h"
#include "quantize/quantize.h"
#include "support/plain_ops.h"

namespace penstock {
namespace {

namespace fs = std::filesystem;
using testing::Rows;

struct CheckpointCase {
  const char* name;
  const char* type;
  const char* layout;
  int group;  // 0: whole rows
  bool asymmetric = false;
  const char* method = "rtn";
  const char* act_order = "";
  // Levels of an uneven codebook are rounded to BF16; rounding an activation to 8 bits may go the
  // other way where sums differ.
  double most = 1e-4;
};
void PrintTo(const CheckpointCase& of, std::ostream* out) { *out << of.name; }

// A directory in F32 with random weights.
fs::path plain_directory(const TempDir& dir) {
  ModelConfig config = read_config(*open_weights(testing::golden("llama2")).value()).value();
  config.n_layers = 1;
  config.model_dim = 64, config.ffn_dim = 128;
  config.n_heads = 4, config.n_kv_heads = 2;
  config.head_dim = config.ropes[0].rotary_dim = 16;
  config.attention.scale = 0.25f;
  config.vocab_size = 64;
  config.name = "plain";
  EXPECT_TRUE(write_gguf(*make_synthetic_source(config, "f32").value(), dir / "plain.gguf"));
  QuantizeJob job;
  job.in = dir / "plain.gguf", job.out = dir / "plain";
  job.recipe.type = "f32";
  const auto done = quantize(job);
  EXPECT_TRUE(done) << done.error().message;
  return job.out;
}

Rows logits_with(const fs::path& path, Ops& ops) {
  const auto source = open_weights(path);
  EXPECT_TRUE(source) << source.error().message;
  if (!source) return {};
  return testing::logits_of_prompt(**source, ops);
}

void expect_same_logits(const fs::path& path, Ops& ops, double most) {
  PlainOps plain;
  const Rows want = logits_with(path, plain), got = logits_with(path, ops);
  ASSERT_EQ(want.size(), 6u);
  ASSERT_EQ(got.size(), want.size());
  EXPECT_LT(testing::relative(want, got), most);
}

class CudaCheckpoints : public ::testing::TestWithParam<CheckpointCase> {
 protected:
  void SetUp() override {
    auto made = make_ops("cuda_emulated", {.n_threads = 1});
    if (!made) GTEST_SKIP() << made.error().message;
    ops_ = std::move(*made);
  }
  std::unique_ptr<Ops> ops_;
};

TEST_P(CudaCheckpoints, GiveTheLogitsOfTheSameWeightsInF32) {
  const TempDir dir;
  const CheckpointCase& c = GetParam();
  QuantizeJob job;
  job.in = plain_directory(dir), job.out = dir / "out";
  job.recipe.type = c.type, job.recipe.layout = c.layout, job.recipe.method = c.method;
  job.recipe.group_size = c.group, job.recipe.asymmetric = c.asymmetric,
  job.recipe.act_order = c.act_order;
  for (int s = 0; s < 4; ++s) {
    auto& sample = job.samples.emplace_back();
    for (int i = 0; i < 24; ++i) sample.push_back(static_cast<TokenId>((i * (2 * s + 7) + 3) % 64));
  }
  const auto report = quantize(job);
  ASSERT_TRUE(report) << report.error().message;
  if (std::string_view(c.act_order) == "group") {
    const auto written = open_weights(job.out).value();
    EXPECT_EQ(written->config().at("quantization_config").at("desc_act"), true);
  }
  expect_same_logits(job.out, *ops_, c.most);
}

INSTANTIATE_TEST_SUITE_P(
    All, CudaCheckpoints,
    ::testing::Values(
        CheckpointCase{"gptq_4_bits_16", "int4", "gptq", 16},
        CheckpointCase{"gptq_4_bits_32_zeros", "int4", "gptq", 32, true},
        CheckpointCase{"gptq_4_bits_64_zeros", "int4", "gptq", 64, true},
        CheckpointCase{"gptq_4_bits_rows", "int4", "gptq", 0},
        CheckpointCase{"gptq_act_order", "int4", "gptq", 16, true, "gptq", "group"},
        CheckpointCase{"gptq_act_order_rows", "int4", "gptq", 0, false, "gptq", "static"},
        CheckpointCase{"gptq_8_bits_act_order", "int8", "gptq", 32, false, "gptq", "group"},
        CheckpointCase{"gptq_8_bits", "int8", "gptq", 16},
        CheckpointCase{"gptq_6_bits", "int6", "gptq", 16},
        CheckpointCase{"gptq_5_bits_rows_zeros", "int5", "gptq", 0, true},
        CheckpointCase{"gptq_3_bits_zeros", "int3", "gptq", 16, true},
        CheckpointCase{"gptq_2_bits_zeros", "int2", "gptq", 16, true},
        CheckpointCase{"awq_16", "int4", "awq", 16, true},
        CheckpointCase{"awq_64", "int4", "awq", 64, true},
        CheckpointCase{"awq_rows", "int4", "awq", 0, true},
        CheckpointCase{"awq_scaled", "int4", "awq", 32, true, "awq"},
        CheckpointCase{"compressed_4_bits_zeros", "int4", "compressed-tensors", 16, true},
        CheckpointCase{"compressed_4_bits_rows", "int4", "compressed-tensors", 0},
        CheckpointCase{"compressed_7_bits", "int7", "compressed-tensors", 32},
        CheckpointCase{"compressed_8_bits_rows_zeros", "int8", "compressed-tensors", 0, true},
        CheckpointCase{"compressed_fp8", "fp8", "", 0},
        CheckpointCase{"bitsandbytes_nf4", "nf4", "bitsandbytes", 32, false, "rtn", "", 5e-3},
        CheckpointCase{"bitsandbytes_fp4", "fp4", "bitsandbytes", 64, false, "rtn", "", 5e-3},
        CheckpointCase{"w8a8", "w8a8", "", 0, false, "rtn", "", 1e-2},
        CheckpointCase{"w8a8_static", "w8a8-static", "", 0, false, "smoothquant", "", 1e-2},
        CheckpointCase{"ternary", "ternary", "", 0, false, "rtn", "", 1e-2}),
    [](const auto& info) { return info.param.name; });

// A copy of a directory whose matrices of layers are F8 with a scale for each block of so many rows
// and inputs.
void write_block_fp8(const fs::path& from, const fs::path& to, int64_t block_rows,
                     int64_t block_cols) {
  const auto source = open_weights(from).value();
  struct Written {
    std::string name;
    QuantType type;
    std::vector<int64_t> shape;
    std::vector<std::byte> bytes;
  };
  std::vector<Written> all;
  for (const TensorInfo& tensor : source->tensors()) {
    const bool codes = tensor.shape.size() == 2 && tensor.name.find("layers.") != std::string::npos;
    all.push_back(
        {tensor.name, tensor.type, tensor.shape, {tensor.bytes.begin(), tensor.bytes.end()}});
    if (!codes) continue;
    const int64_t rows = tensor.shape[0], cols = tensor.shape[1];
    const int64_t across = (cols + block_cols - 1) / block_cols,
                  down = (rows + block_rows - 1) / block_rows;
    const auto* const values = reinterpret_cast<const float*>(tensor.bytes.data());
    std::vector<float> scales(static_cast<size_t>(across * down)),
        scaled(static_cast<size_t>(rows * cols));
    const auto scale_of = [&](int64_t r, int64_t c) -> float& {
      return scales[static_cast<size_t>(r / block_rows * across + c / block_cols)];
    };
    for (int64_t r = 0; r < rows; ++r)
      for (int64_t c = 0; c < cols; ++c)
        scale_of(r, c) = std::max(scale_of(r, c), std::fabs(values[r * cols + c]) / 448.0f);
    for (int64_t r = 0; r < rows; ++r)
      for (int64_t c = 0; c < cols; ++c)
        scaled[static_cast<size_t>(r * cols + c)] = values[r * cols + c] / scale_of(r, c);
    Written& written = all.back();
    written.type = QuantType::kF8E4M3;
    written.bytes.resize(scaled.size());
    quantize_row(QuantType::kF8E4M3, scaled.data(), written.bytes.data(), rows * cols);
    const auto scale_bytes = std::as_bytes(std::span(scales));
    all.push_back({tensor.name + "_scale_inv",
                   QuantType::kF32,
                   {down, across},
                   {scale_bytes.begin(), scale_bytes.end()}});
  }
  fs::create_directory(to);
  auto config = nlohmann::json::parse(std::ifstream(from / "config.json"));
  config["quantization_config"] = {{"quant_method", "fp8"},
                                   {"weight_block_size", {block_rows, block_cols}}};
  write_bytes(to / "config.json", config.dump());
  SafetensorsWriter writer;
  for (const Written& each : all) writer.add_tensor(each.name, each.type, each.shape);
  auto file = writer.create(to / "model.safetensors").value();
  for (const Written& each : all) ASSERT_TRUE(file.write(each.name, each.bytes));
  ASSERT_TRUE(file.finish());
}

TEST(CudaCheckpointsOfBlocks, Fp8GivesTheLogitsOfTheSameWeightsInF32) {
  const auto made = make_ops("cuda_emulated", {.n_threads = 1});
  if (!made) GTEST_SKIP() << made.error().message;
  const TempDir dir;
  const fs::path plain = plain_directory(dir);
  for (const auto& [rows, cols] : {std::pair{128, 128}, {16, 32}, {48, 48}}) {
    const std::string name = "fp8-" + std::to_string(rows) + "-" + std::to_string(cols);
    write_block_fp8(plain, dir / name, rows, cols);
    SCOPED_TRACE(name);
    expect_same_logits(dir / name, **made, 1e-4);
  }
}

}  // namespace
}  // namespace penstock
