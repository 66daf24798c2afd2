// Real checkpoints open, and their tensors decode.
#include <gtest/gtest.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "formats/weight_source.h"
#include "support/test_data.h"

namespace penstock {
namespace {

namespace fs = std::filesystem;

std::unique_ptr<WeightSource> open(const fs::path& path) {
  auto source = open_weights(path);
  EXPECT_TRUE(source.has_value()) << source.error().message;
  return source ? std::move(*source) : nullptr;
}

std::vector<float> decode(const TensorInfo& tensor) {
  std::vector<float> values(static_cast<size_t>(tensor.n_elements()));
  dequantize_row(tensor.type, tensor.bytes.data(), values.data(), tensor.n_elements());
  return values;
}

TEST(OpenData, GgufAndDirectoryHoldTheSameEmbedding) {
  REQUIRE_TEST_DATA("models/stories260K-hf");
  const auto gguf = open(test_data_dir() / "models/stories260K-f32.gguf");
  const auto hf = open(test_data_dir() / "models/stories260K-hf");
  ASSERT_TRUE(gguf && hf);
  EXPECT_EQ(gguf->naming(), Naming::kGguf);
  EXPECT_EQ(hf->naming(), Naming::kHuggingFace);
  EXPECT_EQ(gguf->config().at("llama.block_count"), 5);
  EXPECT_EQ(gguf->config().at("tokenizer.ggml.tokens").size(), 512u);
  EXPECT_EQ(hf->config().at("num_hidden_layers"), 5);
  EXPECT_TRUE(hf->side_file("tokenizer.model").has_value());
  EXPECT_FALSE(hf->side_file("../models/tok512.bin").has_value());
  EXPECT_FALSE(gguf->side_file("tok512.model").has_value());
  const TensorInfo* a = gguf->find("token_embd.weight");
  const TensorInfo* b = hf->find("model.embed_tokens.weight");
  ASSERT_TRUE(a != nullptr && b != nullptr);
  EXPECT_EQ(a->shape, (std::vector<int64_t>{512, 64}));
  EXPECT_EQ(a->shape, b->shape);
  EXPECT_EQ(decode(*a), decode(*b));
  gguf->drop(*a);
  EXPECT_EQ(decode(*a), decode(*b));
}

TEST(OpenData, EveryQuantizedGgufDecodesToFiniteWeights) {
  REQUIRE_TEST_DATA("quant/gguf");
  int n_files = 0;
  for (const auto& entry : fs::directory_iterator(test_data_dir() / "quant/gguf")) {
    SCOPED_TRACE(entry.path().string());
    auto source = open_weights(entry.path());
    ASSERT_TRUE(source.has_value()) << source.error().message;
    for (const TensorInfo& tensor : (*source)->tensors()) {
      double sum = 0;
      for (const float value : decode(tensor)) sum += value * value;
      const double rms = std::sqrt(sum / static_cast<double>(tensor.n_elements()));
      EXPECT_GT(rms, 1e-4) << tensor.name;
      EXPECT_LT(rms, 100) << tensor.name;
    }
    ++n_files;
  }
  EXPECT_GE(n_files, 13);
}

TEST(OpenData, EveryQuantizedDirectoryOpens) {
  REQUIRE_TEST_DATA("quant");
  for (const auto& entry : fs::directory_iterator(test_data_dir() / "quant")) {
    if (!fs::exists(entry.path() / "config.json")) continue;
    const auto source = open_weights(entry.path());
    ASSERT_TRUE(source.has_value()) << source.error().message;
    EXPECT_FALSE((*source)->tensors().empty());
  }
}

TEST(OpenData, VocabularyFilesOpen) {
  REQUIRE_TEST_DATA("tokenizers/ggml-vocab");
  for (const auto& entry : fs::directory_iterator(test_data_dir() / "tokenizers/ggml-vocab")) {
    if (entry.path().extension() != ".gguf") continue;
    const auto source = open_weights(entry.path());
    ASSERT_TRUE(source.has_value()) << source.error().message;
    EXPECT_GT((*source)->config().at("tokenizer.ggml.tokens").size(), 1000u);
  }
}

}  // namespace
}  // namespace penstock
