// Vectors on CUDA's emulated device: those of the CPU, and memory that is refused ends the call
// only.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>

#include "emulation/cuda/trouble.h"
#include "engine/open/embedder.h"
#include "support/test_data.h"

namespace penstock {
namespace {

using Vectors = std::vector<std::vector<float>>;

class CudaEmbedder : public testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    if (const auto made = make_ops("cuda_emulated", {.n_threads = 1}); !made)
      GTEST_SKIP() << made.error().message;
  }
  void TearDown() override { cuda::fail_emulated_call(0); }
  static std::unique_ptr<Embedder> open(const std::string& backend) {
    EngineConfig config;
    config.backend = backend, config.threads = 1, config.batch_invariant = true;
    auto source = open_weights(tests_dir() / "golden" / "encoders" / GetParam());
    EXPECT_TRUE(source) << source.error().message;
    auto opened = Embedder::open(std::move(*source), config);
    EXPECT_TRUE(opened) << opened.error().message;
    return std::move(opened).value();
  }
  static std::vector<EmbedderInput> inputs(int vocab) {
    std::vector<EmbedderInput> all(3);
    for (int i = 0; i < 3; ++i) {
      for (int t = 0; t < 4 + 9 * i; ++t)
        all[static_cast<size_t>(i)].tokens.push_back((t * 11 + i * 7 + 4) % vocab);
      all[static_cast<size_t>(i)].n_first_type = 3;
    }
    return all;
  }
};

TEST_P(CudaEmbedder, GivesTheVectorsOfTheCpu) {
  const Pooling poolings[] = {Pooling::kMean, Pooling::kCls, Pooling::kLast};
  const auto cpu = open("cpu"), device = open("cuda_emulated");
  const std::vector<EmbedderInput> all = inputs(cpu->vocab_size());
  const Vectors want = cpu->embed(all, poolings).value();
  const auto got = device->embed(all, poolings);
  ASSERT_TRUE(got) << got.error().message;
  ASSERT_EQ(got->size(), want.size());
  for (size_t i = 0; i < want.size(); ++i) {
    ASSERT_EQ((*got)[i].size(), want[i].size());
    for (size_t j = 0; j < want[i].size(); ++j)
      ASSERT_NEAR((*got)[i][j], want[i][j], 1e-4) << i << " " << j;
  }
}

TEST_P(CudaEmbedder, MemoryThatIsRefusedEndsOneCall) {
  const Pooling poolings[] = {Pooling::kMean};
  const std::vector<EmbedderInput> all = inputs(40);
  Vectors want;
  {
    const auto untroubled = open("cuda_emulated");
    cuda::fail_emulated_call(0, cuda::EmulatedCalls::kMemory);
    want = untroubled->embed(all, poolings).value();
  }
  const int64_t n_calls = cuda::fail_emulated_call(0);
  ASSERT_GT(n_calls, 0);
  for (int64_t at = 1; at <= n_calls; ++at) {
    const auto device = open("cuda_emulated");
    cuda::fail_emulated_call(at, cuda::EmulatedCalls::kMemory);
    const auto refused = device->embed(all, poolings);
    ASSERT_FALSE(refused) << at;
    EXPECT_EQ(refused.error().code, ErrorCode::kResourceExhausted);
    EXPECT_THAT(refused.error().message, testing::HasSubstr("refused"));
    cuda::fail_emulated_call(0);
    EXPECT_EQ(device->embed(all, poolings).value(), want) << at;
  }
}

INSTANTIATE_TEST_SUITE_P(Tiny, CudaEmbedder,
                         testing::Values("bert", "deberta_v2", "embedding_gemma", "jina_v2",
                                         "modernbert", "mpnet", "nomic_bert", "xlm_roberta"),
                         [](const auto& info) { return info.param; });

}  // namespace
}  // namespace penstock
