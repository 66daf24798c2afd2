// Random models of known shapes: they load, and the file that is written is the model in memory.
#include "model/sources/synthetic.h"
#include "model/arch/read_config.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>

#include "model/load/load_weights.h"
#include "model/runner.h"
#include "model/sources/ftype.h"
#include "support/test_data.h"

namespace penstock {
namespace {

using testing::Rows;
using testing::Runner;

// Every architecture's shape, cut down to two layers and a small vocabulary.
ModelConfig small(const char* shape) {
  ModelConfig config = config_from_shape(shape).value();
  config.n_layers = 2;
  config.layers.resize(2);
  config.vocab_size = 512;
  config.model_dim = 256;
  config.ffn_dim = config.ffn_dim > 0 ? 512 : 0;
  config.experts.ffn_dim = config.experts.count > 0 ? 256 : 0;
  config.experts.count = std::min(config.experts.count, 8);
  config.experts.routing.n_active = std::min(config.experts.routing.n_active, 2);
  config.n_heads = 4;
  config.n_kv_heads = std::min(config.n_kv_heads, 2);
  config.head_dim = 64;
  config.max_seq_len = 128;
  config.attention.scale = 0.125f;
  if (config.positions.learned) config.n_kv_heads = 4;
  for (RopeConfig& rope : config.ropes) rope.rotary_dim = 64;
  for (LayerConfig& layer : config.layers) layer.window = std::min(layer.window, 16);
  return config;
}

Rows run(const WeightSource& source) {
  const auto ops = make_ops("cpu", {.n_threads = 1}).value();
  const auto model = Model::load(source, *ops);
  EXPECT_TRUE(model) << model.error().message;
  Runner runner(**model, *ops, 4);
  const std::vector<int> tokens = {3, 99, 412, 7, 8, 9};
  return runner.run(0, tokens);
}

class Synthetic : public ::testing::TestWithParam<const char*> {};

TEST_P(Synthetic, ReadsBackAndRuns) {
  const ModelConfig config = small(GetParam());
  const auto source = make_synthetic_source(config, "q4_k_m").value();
  const ModelConfig read = read_config(*source).value();
  EXPECT_EQ(read.n_parameters(), config.n_parameters());
  EXPECT_EQ(read.layers.back().window, config.layers.back().window);
  EXPECT_EQ(read.residual.norms, config.residual.norms);
  EXPECT_EQ(read.ffn.activation.kind, config.ffn.activation.kind);
  EXPECT_EQ(read.embedding.tied, config.embedding.tied);
  EXPECT_FLOAT_EQ(read.attention.scale, config.attention.scale);
  int64_t bytes = 0;
  for (const TensorInfo& tensor : source->tensors())
    bytes += static_cast<int64_t>(tensor.bytes.size());
  EXPECT_EQ(synthetic_weight_bytes(config, "q4_k_m").value(), bytes);

  const Rows logits = run(*source);
  for (const float logit : logits.back()) ASSERT_TRUE(std::isfinite(logit));
  EXPECT_GT(testing::max_difference({logits[0]}, {logits[1]}), 0.0f);
}

TEST_P(Synthetic, TheWrittenFileIsTheSameModel) {
  const auto source = make_synthetic_source(small(GetParam()), "q8_0").value();
  const std::filesystem::path path = std::filesystem::path(::testing::TempDir()) /
                                     (std::string("synthetic_") + GetParam() + ".gguf");
  ASSERT_TRUE(write_gguf(*source, path));
  const auto file = open_weights(path);
  ASSERT_TRUE(file) << file.error().message;
  EXPECT_EQ(testing::max_difference(run(*source), run(**file)), 0.0f);
  std::filesystem::remove(path);
}

INSTANTIATE_TEST_SUITE_P(Shapes, Synthetic,
                         ::testing::Values("llama-3.2-1b", "mistral-7b", "mixtral-8x7b",
                                           "granite-4-tiny", "lfm2-1.2b", "gpt-oss-20b",
                                           "qwen3.5-0.8b", "qwen2.5-0.5b", "qwen3-8b",
                                           "qwen3-30b-a3b", "gemma-2-2b", "gemma-3-1b",
                                           "phi-3-mini", "gpt2"),
                         [](const auto& info) {
                           std::string name = info.param;
                           for (char& c : name)
                             c = std::isalnum(static_cast<unsigned char>(c)) ? c : '_';
                           return name;
                         });

// llama.cpp loads no gpt-oss without them.
TEST(SyntheticSource, GptOssHasTheBiasesOfPublishedFiles) {
  const auto source = make_synthetic_source(small("gpt-oss-20b"), "mxfp4").value();
  for (const char* name : {"attn_q", "attn_k", "attn_v", "attn_output", "ffn_gate_inp",
                           "ffn_gate_exps", "ffn_up_exps", "ffn_down_exps"}) {
    const auto& tensors = source->tensors();
    const std::string wanted = fmt::format("blk.0.{}.bias", name);
    EXPECT_TRUE(std::ranges::any_of(tensors, [&](const TensorInfo& t) { return t.name == wanted; }))
        << wanted;
  }
}

// Whether there is a gate and how positions come in are two things: models with either and without
// the other exist.
TEST(FeedForward, TheGateIsASwitchOfItsOwn) {
  for (const char* shape : {"llama-3.2-1b", "gpt2"}) {
    ModelConfig gated = small(shape), plain = small(shape);
    gated.ffn.gated = true, plain.ffn.gated = false;
    EXPECT_EQ(gated.n_parameters() - plain.n_parameters(), 2 * 256 * 512) << shape;
    const auto ops = make_ops("cpu", {.n_threads = 1}).value();
    for (const ModelConfig& config : {gated, plain}) {
      const auto source = make_synthetic_source(config, "f32").value();
      EXPECT_EQ(source->find("blk.0.ffn_gate.weight") != nullptr, config.ffn.gated) << shape;
      const auto layer = load_layer(*source, config, *ops, 0);
      ASSERT_TRUE(layer) << shape << ": " << layer.error().message;
      EXPECT_EQ(layer->dense.gate.weight != nullptr, config.ffn.gated) << shape;
      EXPECT_NE(layer->dense.up.weight, nullptr) << shape;
    }
  }
}

TEST(FileType, EveryTypeAndItsFallback) {
  for (const FileType& ftype : file_types()) {
    for (const int cols : {256, 896, 48}) {
      const QuantType type =
          choose_type(ftype, {.n_layers = 24, .tied = false}, WeightRole::kQ, 0, cols);
      EXPECT_EQ(cols % quant_info(type).block_size, 0) << ftype.name;
    }
  }
  const FileType q4 = find_file_type("Q4_K_M").value();
  EXPECT_EQ(choose_type(q4, {.n_layers = 32, .tied = false}, WeightRole::kQ, 0, 4096),
            QuantType::kQ4_K);
  EXPECT_EQ(choose_type(q4, {.n_layers = 32, .tied = false}, WeightRole::kOutput, 0, 4096),
            QuantType::kQ6_K);
  EXPECT_EQ(choose_type(q4, {.n_layers = 32, .tied = true}, WeightRole::kEmbedding, 0, 4096),
            QuantType::kQ6_K);
  EXPECT_EQ(choose_type(q4, {.n_layers = 32, .tied = false}, WeightRole::kQ, 0, 896),
            QuantType::kQ5_0);
  int n_more = 0;
  for (int i = 0; i < 32; ++i)
    n_more += choose_type(q4, {.n_layers = 32, .tied = false}, WeightRole::kDown, i, 14336) ==
              QuantType::kQ6_K;
  EXPECT_EQ(n_more, 16);
  EXPECT_THAT(find_file_type("q9").error().message, ::testing::HasSubstr("q4_k_m"));
}

// What llama.cpp gives every matrix under every name (make_file_types.py).
TEST(FileType, MixesAsLlamaCppDoes) {
  const std::map<std::string, WeightRole> roles = {{"token_embd", WeightRole::kEmbedding},
                                                   {"output", WeightRole::kOutput},
                                                   {"attn_q", WeightRole::kQ},
                                                   {"attn_k", WeightRole::kK},
                                                   {"attn_v", WeightRole::kV},
                                                   {"attn_output", WeightRole::kO},
                                                   {"ffn_gate", WeightRole::kGateUp},
                                                   {"ffn_up", WeightRole::kGateUp},
                                                   {"ffn_down", WeightRole::kDown},
                                                   {"attn_qkv", WeightRole::kQkv},
                                                   {"attn_q_a", WeightRole::kLatent},
                                                   {"attn_q_b", WeightRole::kLatent},
                                                   {"attn_kv_a_mqa", WeightRole::kLatent},
                                                   {"attn_k_b", WeightRole::kLatent},
                                                   {"attn_v_b", WeightRole::kLatent},
                                                   {"ffn_gate_exps", WeightRole::kGateUp},
                                                   {"ffn_up_exps", WeightRole::kGateUp},
                                                   {"ffn_down_exps", WeightRole::kDown}};
  const std::map<std::string, MixedModel> models = {
      {"shared2", {.n_layers = 16, .heads_per_kv_head = 2}},
      {"shared4", {.n_layers = 16, .heads_per_kv_head = 4}},
      {"layers80", {.n_layers = 80, .heads_per_kv_head = 4}},
      {"experts8", {.n_layers = 16, .heads_per_kv_head = 2, .n_experts = 8}},
      {"fused", {.n_layers = 16}},
      {"latents", {.n_layers = 16, .heads_per_kv_head = 8, .n_experts = 4}}};
  std::ifstream file(tests_dir() / "model/golden_file_types.txt");
  std::set<std::string> names;
  int n_lines = 0;
  for (std::string line; std::getline(file, line); ++n_lines) {
    std::istringstream words(line);
    std::string name, of, tensor, type;
    words >> name >> of >> tensor;
    names.insert(name);
    const MixedModel& model = models.at(of);
    const FileType ftype = find_file_type(name).value();
    for (int layer = 0; layer < model.n_layers; ++layer) {
      words >> type;  // the last one goes on
      EXPECT_EQ(choose_type(ftype, model, roles.at(tensor), layer, 256),
                find_quant_type(type)->type)
          << line << ", layer " << layer;
    }
  }
  EXPECT_EQ(names.size(), file_types().size());
  EXPECT_EQ(n_lines, (4 * 9 + 6 + 11) * static_cast<int>(names.size()));
}

TEST(FileType, ImportanceAndExpertsChangeTheMixture) {
  const FileType low = find_file_type("IQ2_M").value(), three = find_file_type("IQ3_XXS").value();
  const MixedModel plain{.n_layers = 16}, weighed{.n_layers = 16, .weighed = true};
  EXPECT_EQ(choose_type(three, plain, WeightRole::kDown, 0, 256), QuantType::kQ4_K);
  EXPECT_EQ(choose_type(three, weighed, WeightRole::kDown, 0, 256), QuantType::kIQ3_XXS);
  const MixedModel eight{.n_layers = 16, .n_experts = 8};
  EXPECT_EQ(choose_type(three, eight, WeightRole::kV, 0, 256), QuantType::kQ8_0);
  EXPECT_EQ(choose_type(low, eight, WeightRole::kV, 0, 256), QuantType::kQ4_K);
  EXPECT_EQ(choose_type(low, eight, WeightRole::kO, 0, 256), QuantType::kQ5_K);
  EXPECT_EQ(choose_type(low, eight, WeightRole::kDown, 0, 256), QuantType::kIQ3_S);
}

TEST(FileType, SizesOfPublishedFiles) {
  // Bytes of the tensors of published Q4_K_M files: Llama 2 7B 4.08 GB, Llama 3.1 8B 4.92 GB.
  const auto gb = [](const char* shape) {
    return static_cast<double>(
               synthetic_weight_bytes(config_from_shape(shape).value(), "q4_k_m").value()) /
           1e9;
  };
  EXPECT_NEAR(gb("llama-2-7b"), 4.08, 0.01);
  EXPECT_NEAR(gb("llama-3.1-8b"), 4.92, 0.01);
}

}  // namespace
}  // namespace penstock
