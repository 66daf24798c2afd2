// Quantization at load: the same bits as the checkpoint that `penstock quantize` writes, one matrix
// in memory at a time, and clear errors.
#include <gtest/gtest.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "formats/prequantized.h"
#include "formats/safetensors_writer.h"
#include "formats/temp_dir.h"
#include "model/arch/read_config.h"
#include "model/runner.h"
#include "model/sources/quantizing_source.h"
#include "model/sources/synthetic.h"
#include "quantize/golden_models.h"
#include "quantize/quantize.h"
#include "support/test_data.h"

namespace penstock {
namespace {

namespace fs = std::filesystem;
using testing::max_difference;
using testing::relative;
using testing::Rows;
using testing::Runner;

using testing::golden;
Rows logits_of(const WeightSource& source) {
  const auto ops = make_ops("cpu", {.n_threads = 1, .batch_invariant = true}).value();
  const auto model = Model::load(source, *ops);
  EXPECT_TRUE(model) << model.error().message;
  if (!model) return {};
  const std::vector<int> tokens = {3, 1, 4, 1, 5, 9, 2, 6, 5, 3, 5, 8, 9, 7, 9, 3};
  return Runner(**model, *ops).run(0, tokens);
}

Rows at_load(const fs::path& path, const std::string& type) {
  auto source = make_quantizing_source(open_weights(path).value(), type, 2);
  EXPECT_TRUE(source) << path << " " << type << ": " << source.error().message;
  return source ? logits_of(**source) : Rows{};
}

Rows by_file(const fs::path& in, const fs::path& out, const std::string& type, int group) {
  QuantizeJob job;
  job.in = in;
  job.out = out;
  job.recipe.type = type;
  job.recipe.group_size = group;
  const auto report = quantize(job);
  EXPECT_TRUE(report) << report.error().message;
  const auto source = open_weights(out);
  EXPECT_TRUE(source) << source.error().message;
  return source ? logits_of(**source) : Rows{};
}

// A directory in F32 with random weights and the golden model's architecture, in sizes that groups
// of 128 divide.
fs::path wide_directory(const TempDir& dir, const std::string& name) {
  ModelConfig config = read_config(*open_weights(golden(name)).value()).value();
  config.model_dim = config.ffn_dim = 128;
  if (config.experts.count > 0) config.experts.ffn_dim = 128;
  config.n_heads = 4;
  config.n_kv_heads = 2;
  config.head_dim = config.ropes[0].rotary_dim = 32;
  config.vocab_size = 64;
  config.name = "wide";
  EXPECT_TRUE(write_gguf(*make_synthetic_source(config, "f32").value(), dir / (name + ".gguf")));
  by_file(dir / (name + ".gguf"), dir / name, "f32", -1);
  return dir / name;
}

TEST(QuantizeAtLoad, GroupTypesAreTheFilesOfThatType) {
  const TempDir dir;
  for (const char* name : {"llama2", "mixtral", "qwen3_moe"}) {
    const fs::path full = wide_directory(dir, name);
    const Rows plain = logits_of(*open_weights(full).value());
    for (const char* type : {"int8", "int5", "int4", "int3", "int2", "nf4", "fp4", "w8a8", "fp8"}) {
      const Rows loaded = at_load(full, type),
                 written = by_file(full, dir / (name + std::string(type)), type, -1);
      EXPECT_EQ(loaded, written) << name << " " << type;
      EXPECT_GT(max_difference(loaded, plain), 0) << name << " " << type;
    }
  }
}

// Where the group does not divide the inputs, a smaller one or the whole row.
TEST(QuantizeAtLoad, AnySize) {
  for (const char* name : {"llama3", "phi3", "gemma2", "qwen3_moe", "gpt_neox", "bloom"}) {
    const Rows plain = logits_of(*open_weights(golden(name)).value());
    const double fine = relative(plain, at_load(golden(name), "int8")),
                 coarse = relative(plain, at_load(golden(name), "int4"));
    EXPECT_GT(fine, 0) << name;
    EXPECT_LT(fine, 0.1) << name;
    EXPECT_GT(coarse, fine) << name;
  }
}

TEST(QuantizeAtLoad, BlockTypesAreTheFilesOfThatType) {
  const TempDir dir;
  for (const char* name : {"llama3", "qwen3_moe"}) {
    const fs::path full = dir / (std::string(name) + "-f32.gguf");
    by_file(golden(name), full, "f32", -1);
    const Rows plain = logits_of(*open_weights(full).value());
    for (const char* type : {"q8_0", "q5_1", "q4_0", "iq4_nl", "q4_k_m"}) {
      const Rows loaded = at_load(full, type),
                 written = by_file(full, dir / (name + std::string(type) + ".gguf"), type, -1);
      EXPECT_EQ(loaded, written) << name << " " << type;
      EXPECT_GT(max_difference(loaded, plain), 0) << name << " " << type;
    }
    // Codes by group in a GGUF file, whose experts lie in one tensor.
    EXPECT_LT(relative(plain, at_load(full, "int8")), 0.1) << name;
  }
}

// The experts of a directory that lie in one tensor: as rows, as columns, interleaved, and one below the
// other. Their codes are those of a GGUF file, where each expert's rows are together, and whose other matrices
// have the same roles.
TEST(QuantizeAtLoad, ExpertsInOneTensor) {
  const TempDir dir;
  for (const std::string name :
       {"qwen3_5_moe", "gpt_oss", "llama4", "granitemoe_swa", "mistral4", "dbrx"}) {
    const auto source = open_weights(golden(name)).value();
    const Rows plain = logits_of(*source);
    for (const char* type : {"int8", "int4", "q8_0", "q4_0"}) {
      const auto quantized =
          make_quantizing_source(open_weights(golden(name)).value(), type, 2).value();
      // Every tensor that has a matrix of each expert.
      for (const TensorInfo& tensor : source->tensors()) {
        const bool of_experts =
            tensor.name.find("experts") != std::string::npos && !tensor.name.starts_with("mtp.") &&
            tensor.name.find("shared") == std::string::npos &&
            tensor.name.find("bias") == std::string::npos && tensor.shape.size() >= 2;
        EXPECT_EQ(quantized->encodes_experts(tensor), of_experts) << tensor.name << " " << type;
      }
    }
    const double fine = relative(plain, at_load(golden(name), "int8")),
                 coarse = relative(plain, at_load(golden(name), "int4"));
    EXPECT_GT(fine, 0) << name;
    EXPECT_LT(fine, 0.25) << name;
    EXPECT_GT(coarse, fine) << name;
    if (name != "llama4" && name != "granitemoe_swa") continue;
    const fs::path full = dir / (name + ".gguf");
    by_file(golden(name), full, "f32", -1);
    for (const char* type : {"q8_0", "q4_0", "int8"})
      EXPECT_LT(relative(at_load(full, type), at_load(golden(name), type)), 1e-4)
          << name << " " << type;
  }
}

// A rank has a part of the same codes.
TEST(QuantizeAtLoad, ExpertsInOneTensorAreEncodedWhole) {
  for (const std::string name : {"qwen3_5_moe", "gpt_oss"}) {
    const auto source =
        make_quantizing_source(open_weights(golden(name)).value(), "int4", 1).value();
    for (const TensorInfo& tensor : source->tensors()) {
      if (!source->encodes_experts(tensor)) continue;
      const std::vector<float> row(static_cast<size_t>(tensor.shape.back()), 0.25f);
      const auto made = source->encode_expert(
          tensor,
          {QuantType::kF32, 1, static_cast<int>(row.size()), std::as_bytes(std::span(row))});
      ASSERT_TRUE(made && made->grouped) << tensor.name;
      std::vector<float> back(row.size());
      made->grouped->dequantize(0, 1, back.data());
      for (const float value : back) EXPECT_NEAR(value, 0.25f, 0.02f);
      const std::vector<float> bad(row.size(), NAN);
      EXPECT_FALSE(source->encode_expert(tensor, {QuantType::kF32, 1, static_cast<int>(bad.size()),
                                                  std::as_bytes(std::span(bad))}));
    }
  }
}

TEST(QuantizeAtLoad, TransposedMatrices) {
  const Rows plain = logits_of(*open_weights(golden("gpt2")).value());
  const double fine = relative(plain, at_load(golden("gpt2"), "int8")),
               coarse = relative(plain, at_load(golden("gpt2"), "int4"));
  EXPECT_GT(fine, 0);
  EXPECT_LT(fine, 0.1);
  EXPECT_GT(coarse, fine);
}

TEST(QuantizeAtLoad, EncodesOnLookUpAndGivesBackOnDrop) {
  const auto plain = open_weights(golden("llama3")).value();
  const auto source =
      make_quantizing_source(open_weights(golden("llama3")).value(), "iq4_nl", 1).value();
  const std::string layer = "model.layers.0.self_attn.q_proj", name = layer + ".weight";
  const TensorInfo* tensor = source->find(name);
  ASSERT_NE(tensor, nullptr);
  EXPECT_EQ(tensor->type, QuantType::kIQ4_NL);
  const TensorInfo* original = plain->find(name);
  source->drop(*tensor);
  EXPECT_EQ(tensor->type, original->type);
  EXPECT_EQ(tensor->bytes.size(), original->bytes.size());
  EXPECT_EQ(source->find(name)->type, QuantType::kIQ4_NL);
  EXPECT_NE(source->find("model.norm.weight")->type, QuantType::kIQ4_NL);
  EXPECT_EQ(source->find("nothing"), nullptr);

  const auto grouped =
      make_quantizing_source(open_weights(golden("llama3")).value(), "int4", 1).value();
  ASSERT_NE(grouped->grouped_layers(), nullptr);
  const auto matrix = grouped->grouped_layers()->find_linear(layer).value();
  ASSERT_TRUE(matrix);
  EXPECT_TRUE(matrix->check(layer));
  EXPECT_EQ(matrix->bits, 4);
  tensor = grouped->find(name);
  EXPECT_EQ(tensor->bytes.data(), matrix->packed.data());
  grouped->drop(*tensor);
  EXPECT_EQ(tensor->bytes.size(), original->bytes.size());
  EXPECT_FALSE(grouped->grouped_layers()->find_linear("model.embed_tokens").value());
  EXPECT_FALSE(grouped->grouped_layers()->find_linear("nothing").value());
}

TEST(QuantizeAtLoad, RefusesWhatItCannotDo) {
  const auto error = [](const char* model, const char* type) {
    const auto source = make_quantizing_source(open_weights(golden(model)).value(), type, 1);
    return source ? ErrorCode::kInternal : source.error().code;
  };
  EXPECT_EQ(error("llama3", "q9"), ErrorCode::kInvalidArgument);
  EXPECT_EQ(error("llama3", "ternary"), ErrorCode::kInvalidArgument);
  EXPECT_EQ(error("llama3", "w8a8-static"), ErrorCode::kInvalidArgument);
  EXPECT_EQ(error("llama3", "f32"), ErrorCode::kUnsupported);
  EXPECT_EQ(error("gpt2", "q8_0"), ErrorCode::kUnsupported);
  EXPECT_EQ(error("bitnet_packed", "q8_0"), ErrorCode::kUnsupported);
  EXPECT_EQ(error("bitnet", "int8"), ErrorCode::kUnsupported);
}

TEST(QuantizeAtLoad, NamesAMatrixThatIsNotFinite) {
  const TempDir dir;
  fs::copy(golden("llama3"), dir / "m", fs::copy_options::recursive);
  const auto source = open_weights(golden("llama3")).value();
  SafetensorsWriter writer;
  const std::string bad = "model.layers.1.mlp.up_proj.weight";
  for (const TensorInfo& tensor : source->tensors())
    writer.add_tensor(tensor.name, tensor.type, tensor.shape);
  fs::remove(dir / "m" / "model.safetensors");
  auto file = writer.create(dir / "m" / "model.safetensors").value();
  for (const TensorInfo& tensor : source->tensors()) {
    std::vector<std::byte> bytes(tensor.bytes.begin(), tensor.bytes.end());
    // a NaN in any float type
    if (tensor.name == bad) std::fill_n(bytes.end() - 4, 4, std::byte{0xff});
    ASSERT_TRUE(file.write(tensor.name, bytes));
  }
  ASSERT_TRUE(file.finish());
  const auto quantized = make_quantizing_source(open_weights(dir / "m").value(), "int8", 2).value();
  const auto ops = make_ops("cpu", {.n_threads = 1}).value();
  const auto model = Model::load(*quantized, *ops);
  ASSERT_FALSE(model);
  EXPECT_EQ(model.error().code, ErrorCode::kCorruptFile);
  EXPECT_NE(model.error().message.find(bad), std::string::npos) << model.error().message;
}

}  // namespace
}  // namespace penstock
