// Beam search against a plain one over the fake model, and against transformers' on tiny
// checkpoints.
#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "engine/engine_fixture.h"
#include "support/test_data.h"

namespace penstock {
namespace {

Request beams_of(std::vector<TokenId> prompt, int max_tokens, int n, int width) {
  Request request = request_of(std::move(prompt), max_tokens);
  request.sampling.use_beam_search = true;
  request.sampling.beam_width = width;
  request.sampling.n = n;
  return request;
}

void expect_naive(const FakeEngine& fake, const Request& request, const Collector& sink) {
  const std::vector<NaiveBeam> expected = fake.expected_beams(request);
  const double length_penalty = request.sampling.length_penalty;
  for (int i = 0; i < request.sampling.n; ++i) {
    const Collected::Sequence& got = sink.result.sequences.at(i);
    EXPECT_EQ(got.tokens, expected.at(i).tokens) << "beam " << i;
    EXPECT_NEAR(got.stats.beam_score, expected.at(i).score, 1e-4);
    double sum = 0;
    for (const float logprob : got.logprobs) sum += logprob;
    EXPECT_NEAR(sum / std::pow(got.tokens.size(), length_penalty), expected.at(i).score, 1e-4);
    EXPECT_EQ(got.finish, got.tokens.back() == 0 ? FinishReason::kStop : FinishReason::kLength);
    EXPECT_EQ(got.stats.completion_tokens, static_cast<int>(got.tokens.size()));
  }
  EXPECT_FALSE(sink.result.sequences.contains(request.sampling.n));
}

TEST(Beams, EqualAPlainSearch) {
  for (const int width : {1, 2, 3, 5, 8}) {
    for (const float length_penalty : {1.0f, 0.0f, 2.5f, -1.0f}) {
      for (const bool early : {false, true}) {
        FakeEngineConfig config;
        config.vocab_size = 12;  // ends are found often
        FakeEngine fake(config);
        Request request = beams_of(prompt_of(9, width, 12), 17, std::min(width, 3), width);
        request.sampling.length_penalty = length_penalty;
        request.sampling.early_stopping = early;
        const auto sink = fake.submit(request);
        fake.run();
        expect_naive(fake, request, *sink);
        EXPECT_EQ(fake.engine->scheduler().allocator().n_referenced(), 0);
      }
    }
  }
}

TEST(Beams, ShareTheBlocksOfThePrompt) {
  FakeEngineConfig config;
  config.n_blocks = {8 * 26};
  FakeEngine fake(config);
  const auto sink = fake.submit(beams_of(prompt_of(101), 2, 8, 8));
  int most = 0;
  while (fake.engine->step())
    most = std::max(most, fake.engine->scheduler().allocator().n_referenced());
  EXPECT_LE(most, 26 + 8);
  EXPECT_EQ(fake.model->n_tokens(), 101 + 8);
}

TEST(Beams, WithoutRoomTheyStartOverWithTheSameResult) {
  for (const int64_t memory_bytes : {0, 1 << 20}) {
    FakeEngineConfig config;
    config.vocab_size = 12;
    config.n_blocks = {24};
    config.max_model_len = 24;
    config.engine.max_num_seqs = 24;
    config.engine.max_num_batched_tokens = 24;
    config.store.memory_bytes = memory_bytes;
    FakeEngine fake(config);
    std::vector<Request> requests;
    std::vector<std::shared_ptr<Collector>> sinks;
    for (int i = 0; i < 6; ++i) {
      requests.push_back(beams_of(prompt_of(5 + i, i, 12), 14, 2, 4));
      sinks.push_back(fake.submit(requests.back()));
    }
    fake.run();
    EXPECT_GT(fake.engine->metrics().num_preemptions.value, 0);
    for (size_t i = 0; i < requests.size(); ++i) expect_naive(fake, requests[i], *sinks[i]);
  }
}

TEST(Beams, MinTokensAndBannedTokensHold) {
  FakeEngineConfig config;
  config.vocab_size = 12;
  FakeEngine fake(config);
  Request request = beams_of(prompt_of(9, 3, 12), 10, 4, 4);
  request.sampling.min_tokens = 8;
  request.sampling.banned_token_ids = {5, 6};
  const auto sink = fake.submit(request);
  fake.run();
  for (const auto& [index, sequence] : sink->result.sequences) {
    EXPECT_GE(sequence.tokens.size(), 8u);
    for (const TokenId token : sequence.tokens) EXPECT_TRUE(token != 5 && token != 6);
  }
}

TEST(Beams, CancelledOnesLeaveNothingBehind) {
  FakeEngineConfig config;
  config.n_blocks = {6 * 23};
  FakeEngine fake(config);
  RequestId id;
  const auto sink = fake.submit(beams_of(prompt_of(30), 60, 2, 6), &id);
  for (int i = 0; i < 9; ++i) fake.engine->step();
  fake.engine->cancel(id, FinishReason::kAbort);
  fake.run();
  EXPECT_EQ(sink->n_finished(), 2);
  EXPECT_EQ(fake.engine->scheduler().allocator().n_referenced(), 0);
}

TEST(Beams, WhatCannotRunIsRefused) {
  FakeEngine fake;  // 8 sequences, 256 tokens of cache
  const auto error = [&](Request request) {
    const auto id = fake.engine->submit(std::move(request), std::make_shared<Collector>());
    return id ? std::string() : id.error().message;
  };
  EXPECT_NE(error(beams_of(prompt_of(5), 5, 1, 9)).find("max_num_seqs"), std::string::npos);
  EXPECT_NE(error(beams_of(prompt_of(5), 5, 4, 2)).find("beam_width"), std::string::npos);
  EXPECT_NE(error(beams_of(prompt_of(50), 50, 1, 8)).find("KV cache"), std::string::npos);
  Request logprobs = beams_of(prompt_of(5), 5, 1, 2);
  logprobs.sampling.prompt_logprobs = 1;
  EXPECT_NE(error(logprobs).find("prompt_logprobs"), std::string::npos);
}

class BeamGolden : public ::testing::TestWithParam<std::string> {};

// tests/golden/beams.json is written by tools/make_beam_golden.py.
TEST_P(BeamGolden, EqualsTransformers) {
  std::ifstream file(tests_dir().string() + "/golden/beams.json");
  const nlohmann::json golden = nlohmann::json::parse(file);
  int n_cases = 0;
  for (const nlohmann::json& entry : golden) {
    if (entry["model"] != GetParam()) continue;
    EngineConfig config;
    config.model = tests_dir().string() + "/golden/models/" + GetParam();
    config.threads = 1;
    config.max_num_seqs = 8;
    config.kv_cache_dtype = "f32";
    const auto engine = Engine::open(config).value();
    const int n = static_cast<int>(entry["beams"].size());
    Request request =
        beams_of(entry["prompt"].get<std::vector<TokenId>>(), entry["max_new_tokens"].get<int>(), n,
                 entry["num_beams"].get<int>());
    request.eos_token_ids = entry["eos"].get<std::vector<TokenId>>();
    request.sampling.length_penalty = entry["length_penalty"].get<float>();
    request.sampling.early_stopping = entry["early_stopping"].get<bool>();
    const auto sink = std::make_shared<Collector>();
    ASSERT_TRUE(engine->submit(request, sink));
    while (engine->step()) {
    }
    for (int i = 0; i < n; ++i) {
      const Collected::Sequence& got = sink->result.sequences.at(i);
      EXPECT_EQ(got.tokens, entry["beams"][i].get<std::vector<TokenId>>()) << entry.dump();
      EXPECT_NEAR(got.stats.beam_score, entry["scores"][i].get<double>(), 2e-3);
    }
    ++n_cases;
  }
  EXPECT_GE(n_cases, 4);
}
INSTANTIATE_TEST_SUITE_P(Models, BeamGolden, ::testing::Values("llama3", "qwen3_moe", "gpt2"),
                         [](const auto& info) { return info.param; });

}  // namespace
}  // namespace penstock
