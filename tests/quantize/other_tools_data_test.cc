// Checkpoints that other tools quantized go into packed kernels, and a real BitNet file into a
// directory.
#include <gtest/gtest.h>

#include <cmath>

#include "formats/prequantized.h"
#include "formats/temp_dir.h"
#include "kernels/pack/panel_pack.h"
#include "model/runner.h"
#include "quantize/quantize.h"
#include "support/test_data.h"

namespace penstock {
namespace {

namespace fs = std::filesystem;

// Every layer that a tool quantized reaches the kernels as codes, none as decoded numbers.
TEST(OtherTools, LayersStayCodes) {
  REQUIRE_TEST_DATA("quant");
  int n_layers = 0;
  for (const auto& entry : fs::directory_iterator(test_data_dir() / "quant")) {
    if (!fs::exists(entry.path() / "config.json")) continue;
    SCOPED_TRACE(entry.path().filename());
    const auto source = open_weights(entry.path());
    ASSERT_TRUE(source) << source.error().message;
    const auto checkpoint = open_prequantized(**source);
    ASSERT_TRUE(checkpoint) << checkpoint.error().message;
    if (*checkpoint == nullptr) continue;
    for (const TensorInfo& tensor : (*source)->tensors()) {
      const std::string name(tensor.name);
      const size_t end = name.find("_proj.");
      if (end == std::string::npos) continue;
      const auto layer = (*checkpoint)->find_linear(name.substr(0, end + 5));
      ASSERT_TRUE(layer) << layer.error().message;
      ASSERT_TRUE(layer->has_value()) << name;
      EXPECT_FALSE(grouped_shape(**layer).decoded) << name;
      ++n_layers;
    }
  }
  EXPECT_GE(n_layers, 14 * 7);
}

testing::Rows logits_of(const fs::path& path) {
  const auto ops = make_ops("cpu", {.n_threads = 1, .batch_invariant = true}).value();
  const auto source = open_weights(path).value();
  const auto model = Model::load(*source, *ops).value();
  std::vector<int> tokens;
  for (int i = 0; i < 24; ++i) tokens.push_back((i * 7 + 3) % 500);
  return testing::Runner(*model, *ops).run(0, tokens);
}

TEST(OtherTools, BitLlamaAsADirectory) {
  REQUIRE_TEST_DATA("models");
  const TempDir dir;
  QuantizeJob job;
  job.in = test_data_dir() / "models" / "bitllama-3m-tq2_0.gguf";
  job.out = dir / "directory";
  job.threads = 1;
  job.recipe.type = "ternary";
  const auto there = quantize(job);
  ASSERT_TRUE(there) << there.error().message;
  const testing::Rows original = logits_of(job.in), returned = logits_of(job.out);
  // Some kernels round activations by groups for the file and by rows for the directory.
  double difference = 0, norm = 0;
  for (size_t i = 0; i < original.size(); ++i) {
    for (size_t j = 0; j < original[i].size(); ++j) {
      difference += std::pow(original[i][j] - returned[i][j], 2);
      norm += std::pow(original[i][j], 2);
    }
  }
  EXPECT_LT(std::sqrt(difference / norm), 0.05);
  // Ternary numbers are for the layers only: the embedding, which is the output here too, would be
  // lost.
  job.in = job.out;
  job.out = dir / "back.gguf";
  job.recipe.type = "tq2_0";
  ASSERT_TRUE(quantize(job));
  const auto source = open_weights(job.out).value();
  EXPECT_EQ(source->find("blk.0.attn_q.weight")->type, QuantType::kTQ2_0);
  EXPECT_EQ(source->find("token_embd.weight")->type, QuantType::kQ6_K);
}

}  // namespace
}  // namespace penstock
