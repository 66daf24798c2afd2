// In batch-invariant mode a request's tokens and log-probabilities are the same bits whatever else
// runs, however its prompt is cut, whether its prefix was cached, and whether it was preempted.
// Tiny random checkpoints of real architectures.
#include <gtest/gtest.h>

#include "engine/collector.h"
#include "support/test_data.h"

namespace penstock {
namespace {

// "NAME" or "NAME/bfloat16": with states in BF16.
EngineConfig config_of(const std::string& model, EngineConfig config = {}) {
  const size_t slash = model.find('/');
  config.model = tests_dir().string() + "/golden/models/" + model.substr(0, slash);
  if (slash != std::string::npos) config.mamba_ssm_cache_dtype = model.substr(slash + 1);
  return config;
}

std::unique_ptr<Engine> open(const std::string& model, const EngineConfig& given = {}) {
  EngineConfig config = config_of(model, given);
  config.batch_invariant = true;
  if (config.threads == 0) config.threads = 1;
  if (config.max_num_seqs == 0) config.max_num_seqs = 8;
  auto engine = Engine::open(config);
  EXPECT_TRUE(engine.has_value()) << engine.error().message;
  return std::move(engine).value();
}

std::vector<Request> requests_for(const Engine& engine) {
  std::vector<Request> requests;
  const int vocab_size = engine.info().vocab_size;
  const int common = engine.info().max_model_len >= 128 ? 40 : 20;
  for (int i = 0; i < 6; ++i) {
    // Two families with a common prefix that ends inside a block.
    std::vector<TokenId> prompt = prompt_of(common, i % 2, vocab_size);
    for (int j = 0; j < 3 + 4 * i; ++j) prompt.push_back((i * 11 + j * 5) % vocab_size);
    Request request = request_of(prompt, 14 + i, 100 + i);
    request.sampling.ignore_eos = true;
    request.sampling.logprobs = 2;
    // random weights have one favourite token
    request.sampling.temperature = i == 3 ? 0.0f : 10.0f;
    requests.push_back(request);
  }
  return requests;
}

struct Produced {
  std::vector<TokenId> tokens;
  std::vector<float> logprobs;
  bool operator==(const Produced&) const = default;
};

Produced text_of(const Collector& sink) {
  const Collected::Sequence& sequence = sink.result.sequences.at(0);
  return {sequence.tokens, sequence.logprobs};
}

std::vector<Produced> one_by_one(Engine& engine, const std::vector<Request>& requests) {
  std::vector<Produced> texts;
  for (const Request& request : requests) {
    const auto sink = std::make_shared<Collector>();
    EXPECT_TRUE(engine.submit(request, sink));
    while (engine.step()) {
    }
    texts.push_back(text_of(*sink));
  }
  return texts;
}

std::vector<Produced> together(Engine& engine, const std::vector<Request>& requests,
                               int steps_between = 0) {
  std::vector<std::shared_ptr<Collector>> sinks;
  for (const Request& request : requests) {
    sinks.push_back(std::make_shared<Collector>());
    EXPECT_TRUE(engine.submit(request, sinks.back()));
    for (int i = 0; i < steps_between; ++i) engine.step();
  }
  while (engine.step()) {
  }
  std::vector<Produced> texts;
  for (const auto& sink : sinks) texts.push_back(text_of(*sink));
  return texts;
}

class Exactness : public ::testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    EngineConfig config;
    config.enable_prefix_caching = false;
    const auto engine = open(GetParam(), config);
    requests_ = requests_for(*engine);
    alone_ = one_by_one(*engine, requests_);
    block_bytes_ = engine->info().kv_bytes / engine->info().n_blocks;
  }
  std::vector<Request> requests_;
  std::vector<Produced> alone_;
  int64_t block_bytes_ = 0;
};

TEST_P(Exactness, AloneEqualsBatched) {
  EXPECT_EQ(together(*open(GetParam()), requests_), alone_);
  EXPECT_EQ(together(*open(GetParam()), requests_, 3), alone_);
}

TEST_P(Exactness, CachedEqualsComputed) {
  const auto engine = open(GetParam());
  EXPECT_EQ(one_by_one(*engine, requests_), alone_);
  EXPECT_EQ(one_by_one(*engine, requests_), alone_);
  EXPECT_GT(engine->metrics().prompt_tokens_cached.value, 6 * 16);
}

TEST_P(Exactness, EveryChunkSizeIsTheSame) {
  for (const int chunk : {1, 2, 3, 7, 16, 17, 31}) {
    EngineConfig config;
    config.max_num_batched_tokens = chunk;
    config.max_num_seqs = 1;
    EXPECT_EQ(together(*open(GetParam(), config), requests_), alone_) << chunk;
  }
}

TEST_P(Exactness, PreemptedEqualsUndisturbed) {
  EngineConfig config;
  config.max_model_len = static_cast<int>(requests_.back().prompt.size()) + 20;
  config.kv_cache_memory = block_bytes_ * (config.max_model_len / 16 + 4);
  const auto engine = open(GetParam(), config);
  EXPECT_EQ(together(*engine, requests_), alone_);
  EXPECT_GT(engine->metrics().num_preemptions.value, 0);
}

TEST_P(Exactness, ThreadCountsAreTheSame) {
  EngineConfig config;
  config.threads = 2;
  EXPECT_EQ(together(*open(GetParam(), config), requests_), alone_);
  config.threads = 3;
  EXPECT_EQ(together(*open(GetParam(), config), requests_), alone_);
}

TEST_P(Exactness, ParallelSamplesEqualLoneOnes) {
  Request request = requests_[0];
  request.sampling.n = 4;
  const auto sink = std::make_shared<Collector>();
  const auto engine = open(GetParam());
  ASSERT_TRUE(engine->submit(request, sink));
  while (engine->step()) {
  }
  EXPECT_EQ(text_of(*sink), alone_[0]);
  EXPECT_NE(sink->result.sequences.at(1).tokens, alone_[0].tokens);
}

// Models with states: their prefixes go on from snapshots, all else is as above.
class StateExactness : public Exactness {};

TEST_P(StateExactness, AloneEqualsBatchedInAnyChunks) {
  EXPECT_EQ(together(*open(GetParam()), requests_), alone_);
  EXPECT_EQ(together(*open(GetParam()), requests_, 3), alone_);
  for (const int chunk : {1, 2, 3, 7, 16, 17}) {
    EngineConfig config;
    config.max_num_batched_tokens = std::max(chunk, 2);
    config.max_num_seqs = std::min(chunk, 2);
    config.threads = 1 + chunk % 3;
    EXPECT_EQ(together(*open(GetParam(), config), requests_), alone_) << chunk;
  }
}

TEST_P(StateExactness, CachedEqualsComputed) {
  EngineConfig config;
  config.state_snapshot_interval = 16;
  const auto engine = open(GetParam(), config);
  EXPECT_EQ(one_by_one(*engine, requests_), alone_);
  EXPECT_EQ(one_by_one(*engine, requests_), alone_);
  EXPECT_GT(engine->metrics().prompt_tokens_cached.value, 6 * 16);
}

TEST_P(StateExactness, PreemptedEqualsUndisturbed) {
  for (const char* store : {"", "memory:16M"}) {
    EngineConfig config;
    config.kv_store = store;
    config.policy = "priority";
    config.max_num_seqs = 2;
    std::vector<Request> requests = requests_;
    for (size_t i = 0; i < requests.size(); ++i)
      requests[i].priority = static_cast<Priority>(2 - i / 2);
    const auto engine = open(GetParam(), config);
    EXPECT_EQ(together(*engine, requests, 4), alone_) << store;
    // Where a store is asked first, they may come one after the other.
    if (config.kv_store.empty()) {
      EXPECT_GT(engine->metrics().num_preemptions.value, 0);
    }
  }
}

TEST_P(StateExactness, SamplesGoOnFromCopies) {
  Request request = requests_[0];
  request.sampling.n = 4;
  const auto sink = std::make_shared<Collector>();
  const auto engine = open(GetParam());
  ASSERT_TRUE(engine->submit(request, sink));
  while (engine->step()) {
  }
  EXPECT_EQ(text_of(*sink), alone_[0]);
  EXPECT_NE(sink->result.sequences.at(1).tokens, alone_[0].tokens);
}

TEST_P(StateExactness, DraftedEqualsDecoded) {
  for (const char* length : {"1", "3", "7", "auto"}) {
    EngineConfig config;
    config.spec = "ngram";
    config.spec_length = length;
    const auto engine = open(GetParam(), config);
    EXPECT_EQ(together(*engine, requests_), alone_) << length;
    EXPECT_EQ(one_by_one(*engine, requests_), alone_) << length;
    // Where no draft pays none is made, and nothing is found where nothing comes again.
    if (std::string_view(length) == "auto" || std::string_view(GetParam()).starts_with("lara"))
      continue;
    EXPECT_GT(engine->metrics().spec_decode_num_draft_tokens.value, 0) << length;
  }
}

TEST_P(StateExactness, GuessesOfItsOwnFirstLayersAreRefusedByName) {
  EngineConfig config = config_of(GetParam());
  config.spec = "early-exit";
  config.spec_exit_layer = 1;
  const auto engine = Engine::open(config);
  ASSERT_FALSE(engine.has_value());
  EXPECT_NE(engine.error().message.find("spec early-exit: architecture "), std::string::npos);
}

INSTANTIATE_TEST_SUITE_P(
    Models, StateExactness,
    ::testing::Values("lfm2", "lfm2_moe", "lfm2_long_tail", "qwen3_next", "qwen3_5_moe",
                      "qwen3_5_text_plain", "granitemoehybrid", "bamba_biases", "mamba2",
                      "mamba2_groups", "nemotron_h", "nemotron_h_moe_groups",
                      "nemotron_h_moe_latent", "falcon_h1", "falcon_h1_biases", "kimi_linear",
                      "kimi_linear_odd", "mamba", "falcon_mamba", "jamba", "olmo_hybrid",
                      "lara_mini", "recurrent_gemma", "recurrent_gemma_wide", "zamba2",
                      "zamba2_adapters", "qwen4_exp", "qwen4_exp_plain", "glm5_next", "deepseek_v4",
                      "deepseek_v4_yarn", "zaya", "zaya_sliding", "rwkv6", "rwkv6_heads", "rwkv7"),
    [](const auto& info) { return std::string(info.param); });

// One of each kind of recurrence.
INSTANTIATE_TEST_SUITE_P(StatesInBf16, StateExactness,
                         ::testing::Values("lfm2/bfloat16", "qwen3_next/bfloat16",
                                           "granitemoehybrid/bfloat16", "mamba2/bfloat16",
                                           "kimi_linear/bfloat16", "jamba/bfloat16",
                                           "recurrent_gemma/bfloat16", "zamba2/bfloat16",
                                           "qwen4_exp/bfloat16", "glm5_next/bfloat16",
                                           "deepseek_v4/bfloat16", "zaya/bfloat16",
                                           "rwkv6/bfloat16", "rwkv7/bfloat16"),
                         [](const auto& info) {
                           const std::string model(info.param);
                           return model.substr(0, model.find('/'));
                         });

INSTANTIATE_TEST_SUITE_P(
    Models, Exactness,
    ::testing::Values("llama3", "mistral", "gemma3", "gpt2", "qwen3_moe", "gpt_oss", "deepseek_v3",
                      "deepseek_v32", "glm_moe_dsa", "minimax_m3", "minimax_m3_text",
                      "mistral_large4", "mistral_large4_groups", "dots3_note", "axk2", "muse_spark",
                      "dots3_note_plain", "gemma4", "gemma4_experts", "gemma3n", "gemma3n_apart",
                      "gemma4_unified", "diffllama", "apertus1p5", "cohere_compass"),
    [](const auto& info) { return std::string(info.param); });

}  // namespace
}  // namespace penstock
