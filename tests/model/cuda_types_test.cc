// Whole models with weights of every type on CUDA's emulated device: the logits are those that the
// same weights give in F32.
#include <gtest/gtest.h>

#include <cmath>

#include "emulation/cuda/trouble.h"
#include "formats/weight_source.h"
#include "model/arch/read_config.h"
#include "model/runner.h"
#include "model/sources/ftype.h"
#include "model/sources/synthetic.h"
#include "model/sources/synthetic_layers.h"
#include "ops/cuda/cuda_ops.h"
#include "support/plain_ops.h"
#include "support/test_data.h"

namespace penstock {
namespace {

using testing::Rows;

// Levels of an uneven codebook are rounded to BF16; rounding an activation to 8 bits may go the
// other way where sums differ.
double most_error(const std::string& type) {
  if (type == "nf4") return 5e-3;
  return type == "w8a8" ? 1e-2 : 1e-4;
}

std::vector<std::string> cuda_type_names() {
  std::vector<std::string> names;
  for (const FileType& type : file_types()) names.emplace_back(type.name);
  for (const QuantTypeInfo& info : quant_types())
    if (can_quantize(info.type)) names.emplace_back(info.name);
  for (const LayerCoding& coding : layer_codings()) names.emplace_back(coding.name);
  std::ranges::sort(names);
  names.erase(std::ranges::unique(names).begin(), names.end());
  return names;
}

ModelConfig small_config(const char* architecture) {
  const auto source = open_weights(tests_dir() / "golden" / "models" / architecture).value();
  ModelConfig config = read_config(*source).value();
  config.n_layers = 1;
  if (!config.layers.empty()) config.layers.resize(1);
  config.model_dim = config.ffn_dim = 256;
  if (config.experts.count > 0) config.experts.ffn_dim = 256;
  config.n_heads = 4, config.n_kv_heads = 2;
  config.head_dim = config.ropes[0].rotary_dim = 64;
  config.attention.scale = 0.125f;
  config.vocab_size = 64;
  config.name = "small";
  return config;
}

Rows logits_of(const ModelConfig& config, const std::string& type, Ops& ops) {
  const auto source = make_synthetic_source(config, type);
  EXPECT_TRUE(source) << source.error().message;
  return testing::logits_of_prompt(**source, ops);
}

class CudaTypes : public ::testing::TestWithParam<std::string> {};

// Relative to the length of all logits.
double error_of(const ModelConfig& config, const std::string& type, Ops& ops) {
  PlainOps plain;
  const Rows want = logits_of(config, type, plain), got = logits_of(config, type, ops);
  EXPECT_EQ(got.size(), want.size());
  double error = 0, size = 0;
  for (size_t i = 0; i < want.size() && i < got.size(); ++i) {
    for (size_t j = 0; j < want[i].size(); ++j)
      error += std::pow(got[i][j] - want[i][j], 2), size += std::pow(want[i][j], 2);
    EXPECT_EQ(std::ranges::max_element(got[i]) - got[i].begin(),
              std::ranges::max_element(want[i]) - want[i].begin())
        << i;
  }
  EXPECT_GT(size, 0);
  return std::sqrt(error / size);
}

TEST_P(CudaTypes, GiveTheLogitsOfTheSameWeightsInF32) {
  const auto made = make_ops("cuda_emulated", {.n_threads = 1});
  if (!made) GTEST_SKIP() << made.error().message;
  EXPECT_LT(error_of(small_config("llama2"), GetParam(), **made), most_error(GetParam()));
}

TEST(CudaTypesOfExperts, GiveTheLogitsOfTheSameWeightsInF32) {
  const auto made = make_ops("cuda_emulated", {.n_threads = 1});
  if (!made) GTEST_SKIP() << made.error().message;
  for (const char* type : {"f32", "q4_k", "mxfp4", "iq3_s", "int4-zeros", "nf4", "fp8"})
    EXPECT_LT(error_of(small_config("mixtral"), type, **made), most_error(type)) << type;
}

class CudaLayers : public ::testing::TestWithParam<std::string> {};

// In steps of few rows a norm is taken by the products that read it, and so on: all bits are those
// of one operation after the other.
TEST_P(CudaLayers, PartsInOneGiveTheBitsOfTheirOperations) {
  const auto made = make_ops("cuda_emulated", {.n_threads = 1});
  if (!made) GTEST_SKIP() << made.error().message;
  ModelConfig config =
      read_config(*open_weights(tests_dir() / "golden" / "models" / GetParam()).value()).value();
  config.name = "small";
  Rows logits[2];
  for (const bool fuses : {false, true}) {
    static_cast<cuda::CudaOps&>(**made).fuse(fuses);
    logits[fuses] = logits_of(config, "bf16", **made);
  }
  EXPECT_FALSE(logits[0].empty());
  EXPECT_EQ(logits[0], logits[1]);
}

// Kernels of a step of one token for each layer of a Llama, whose sequence has no more than a
// piece: with all parts in one, with rotating and storing by itself, and by the operations one by
// one.
TEST(CudaLayerLaunches, ALayerOfATokenIsFiveKernels) {
  const auto made = make_ops("cuda_emulated", {.n_threads = 1, .eager = true});
  if (!made) GTEST_SKIP() << made.error().message;
  auto& ops = static_cast<cuda::CudaOps&>(**made);
  if (!ops.device().emulated()) GTEST_SKIP() << "a GPU does not count launches";
  const auto launches_of = [&](int n_layers) {
    ModelConfig config = small_config("llama2");
    config.n_layers = n_layers;
    if (!config.layers.empty())
      config.layers.resize(static_cast<size_t>(n_layers), config.layers[0]);
    const auto source = make_synthetic_source(config, "q8_0").value();
    const auto model = Model::load(*source, ops).value();
    testing::Runner runner(*model, ops, 64, 16, KvDType::kF16);
    const int prompt[] = {3, 1, 41, 5, 9, 2, 6}, next = 26;
    runner.run(0, prompt);
    cuda::fail_emulated_call(0, cuda::EmulatedCalls::kLaunches);
    runner.run(0, {&next, 1});
    return cuda::fail_emulated_call(0);
  };
  const auto launches_of_a_layer = [&] { return launches_of(2) - launches_of(1); };
  EXPECT_EQ(launches_of_a_layer(), 5);
  ops.attention().fuse_stores(false);
  EXPECT_EQ(launches_of_a_layer(), 6);
  ops.fuse(false);
  EXPECT_EQ(launches_of_a_layer(), 12);
}

// Of a prompt, chunks behind it and a single token.
Rows logits_of_chunks(const WeightSource& source, Ops& ops, KvDType dtype) {
  const auto model = Model::load(source, ops);
  EXPECT_TRUE(model) << model.error().message;
  testing::Runner runner(**model, ops, 64, 16, dtype);
  Rows rows;
  for (const auto& [from, n] : {std::pair{0, 5}, {5, 21}, {26, 10}, {36, 1}}) {
    std::vector<int> tokens;
    for (int i = 0; i < n; ++i) tokens.push_back(1 + (from + i) * 7 % 29);
    for (auto& row : runner.run(0, tokens)) rows.push_back(std::move(row));
  }
  return rows;
}

// Caches of 16 bits, which kernels of their own attend: windows, softcaps and sinks, prompts behind
// a context and single tokens, beside the CPU, which rounds keys and values alike and nothing else.
// Storing within attention changes no bit.
TEST(CudaCaches, Of16BitsGiveWhatTheyGiveOnTheCpu) {
  const auto made = make_ops("cuda_emulated", {.n_threads = 1});
  if (!made) GTEST_SKIP() << made.error().message;
  const auto cpu = make_ops("cpu", {.n_threads = 1, .batch_invariant = true}).value();
  for (const char* architecture :
       {"gemma2", "gemma3", "gpt_oss", "granitemoe_swa", "llama_mqa", "qwen3"}) {
    ModelConfig config =
        read_config(*open_weights(tests_dir() / "golden" / "models" / architecture).value())
            .value();
    config.head_dim = 16, config.name = "small";
    for (RopeConfig& rope : config.ropes) rope.rotary_dim = std::min(16, 2 * rope.rotary_dim);
    const auto source = make_synthetic_source(config, "f32").value();
    const Rows want = logits_of_chunks(*source, *cpu, KvDType::kF16);
    auto& ops = static_cast<cuda::CudaOps&>(**made);
    Rows got[2];
    for (const bool fuses : {false, true}) {
      ops.attention().fuse_stores(fuses);
      got[fuses] = logits_of_chunks(*source, ops, KvDType::kF16);
    }
    EXPECT_LT(testing::relative_error(got[1], want), 1e-3) << architecture;
    EXPECT_EQ(got[0], got[1]) << architecture;
    // Rounding is what the two differ by: of the cache it shows.
    EXPECT_GT(testing::relative_error(logits_of_chunks(*source, *cpu, KvDType::kF32), want), 1e-6)
        << architecture;
  }
}

// Of 4 bits: heads and latents, windows and sinks. Codes go the other way where sums differ by the last
// bits, so the two are as near as that makes them, beside what rounding costs.
TEST(CudaCaches, Of4BitsAreNearThoseOfTheCpu) {
  const auto made = make_ops("cuda_emulated", {.n_threads = 1});
  if (!made) GTEST_SKIP() << made.error().message;
  const auto cpu = make_ops("cpu", {.n_threads = 1, .batch_invariant = true}).value();
  for (const char* architecture : {"llama3", "gemma3", "gpt_oss", "deepseek_v3"}) {
    const auto source = open_weights(tests_dir() / "golden" / "models" / architecture).value();
    const Rows want = logits_of_chunks(*source, *cpu, KvDType::kI4);
    const double cost =
        testing::relative_error(want, logits_of_chunks(*source, *cpu, KvDType::kF32));
    EXPECT_GT(cost, 0.02) << architecture;
    EXPECT_LT(testing::relative_error(logits_of_chunks(*source, **made, KvDType::kI4), want),
              0.1 * cost)
        << architecture;
  }
}

INSTANTIATE_TEST_SUITE_P(Some, CudaLayers,
                         ::testing::Values("llama2", "gpt2", "gpt_neox", "gemma2", "gemma3",
                                           "granitemoe_swa", "gpt_oss", "mixtral", "qwen2_moe",
                                           "deepseek_v3", "falcon_h1", "qwen3_next",
                                           "granitemoehybrid", "lfm2"),
                         [](const auto& info) { return info.param; });

INSTANTIATE_TEST_SUITE_P(All, CudaTypes, ::testing::ValuesIn(cuda_type_names()),
                         [](const auto& info) {
                           std::string name = info.param;
                           std::ranges::replace(name, '-', '_');
                           return name;
                         });

}  // namespace
}  // namespace penstock
