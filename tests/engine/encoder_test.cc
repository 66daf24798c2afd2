// Requests with the rows of an encoder (Whisper): tokens are those of transformers whatever runs
// beside them, whether a sequence is preempted or computed in pieces.
#include <gmock/gmock.h>

#include <cmath>
#include <filesystem>
#include <fstream>

#include "engine/collector.h"
#include "support/test_data.h"

namespace penstock {
namespace {

using testing::HasSubstr;

struct EncodedGolden {
  std::vector<TokenId> prompt, decoded;
  std::shared_ptr<EmbeddingRows> rows = std::make_shared<EmbeddingRows>();
};

std::filesystem::path encoded_path() { return tests_dir() / "golden" / "whisper" / "english"; }

// The beginning of logits.bin (tools/make_tiny_whisper.py).
EncodedGolden read_encoded_golden() {
  std::ifstream file(encoded_path() / "logits.bin", std::ios::binary);
  int32_t sizes[5] = {};
  file.read(reinterpret_cast<char*>(sizes), sizeof sizes);
  EncodedGolden golden;
  golden.prompt.resize(static_cast<size_t>(sizes[0]));
  golden.decoded.resize(static_cast<size_t>(sizes[1]));
  golden.rows->n_rows = sizes[3];
  golden.rows->values.resize(static_cast<size_t>(sizes[3]) * static_cast<size_t>(sizes[4]));
  file.read(reinterpret_cast<char*>(golden.prompt.data()), sizes[0] * 4);
  file.read(reinterpret_cast<char*>(golden.decoded.data()), sizes[1] * 4);
  file.read(reinterpret_cast<char*>(golden.rows->values.data()), sizes[3] * sizes[4] * 4);
  EXPECT_TRUE(file.good());
  return golden;
}

EngineConfig encoded_config() {
  EngineConfig config;
  config.model = encoded_path().string();
  config.threads = 2;
  config.max_num_seqs = 4;
  config.kv_cache_dtype = "f32";
  config.batch_invariant = true;
  return config;
}

Request encoded_request(const EncodedGolden& golden, int max_tokens) {
  Request request;
  request.prompt = golden.prompt;
  request.encoder_rows = golden.rows;
  request.sampling.temperature = 0;
  request.sampling.max_tokens = max_tokens;
  request.sampling.ignore_eos = true;
  return request;
}

std::vector<TokenId> front(const std::vector<TokenId>& tokens, size_t n) {
  return {tokens.begin(), tokens.begin() + static_cast<ptrdiff_t>(std::min(n, tokens.size()))};
}

// Every second request has other rows, which give other tokens. Long ones, so that blocks run out.
void expect_tokens(const EngineConfig& config, bool preempts) {
  const EncodedGolden golden = read_encoded_golden();
  EncodedGolden other = golden;
  other.rows = std::make_shared<EmbeddingRows>(*golden.rows);
  std::ranges::reverse(other.rows->values);
  const auto opened = Engine::open(config);
  ASSERT_TRUE(opened) << opened.error().message;
  Engine& engine = **opened;
  std::vector<std::shared_ptr<Collector>> sinks;
  for (int i = 0; i < 8; ++i) {
    sinks.push_back(std::make_shared<Collector>());
    const auto id = engine.submit(encoded_request(i % 2 == 0 ? golden : other, 30), sinks.back());
    ASSERT_TRUE(id) << id.error().message;
  }
  while (engine.step()) {
  }
  const auto tokens = [&](size_t i) { return sinks[i]->result.sequences.at(0).tokens; };
  EXPECT_EQ(front(tokens(0), golden.decoded.size()), golden.decoded);
  EXPECT_NE(tokens(1), tokens(0));
  int n_preempted = 0;
  for (size_t i = 0; i < sinks.size(); ++i) {
    EXPECT_EQ(tokens(i), tokens(i % 2)) << i;
    EXPECT_EQ(tokens(i).size(), 30u);
    EXPECT_EQ(sinks[i]->result.sequences.at(0).stats.cached_tokens, 0);
    n_preempted += sinks[i]->result.sequences.at(0).stats.preemptions;
  }
  EXPECT_EQ(n_preempted > 0, preempts);
}

TEST(EncoderRows, GiveTheTokensOfTransformers) { expect_tokens(encoded_config(), false); }

TEST(EncoderRows, PromptsAreComputedInPieces) {
  EngineConfig config = encoded_config();
  config.max_num_batched_tokens = 4;
  expect_tokens(config, false);
}

// Room for the states of all, and for the tokens of some.
TEST(EncoderRows, PreemptedSequencesBeginAgain) {
  EngineConfig config = encoded_config();
  config.kv_cache_memory = 480'000;
  expect_tokens(config, true);
}

TEST(EncoderRows, WhatDoesNotFitIsRefused) {
  const EncodedGolden golden = read_encoded_golden();
  const auto engine = Engine::open(encoded_config()).value();
  EXPECT_EQ(engine->info().encoder_rows, golden.rows->n_rows);
  Request request = encoded_request(golden, 4);
  EXPECT_TRUE(engine->check(request));
  request.sampling.n = 2;
  EXPECT_THAT(engine->check(request).error().message, HasSubstr("expected one sequence"));
  request.sampling.n = 1;
  request.encoder_rows = nullptr;
  EXPECT_THAT(engine->check(request).error().message, HasSubstr("it takes sounds"));
  auto rows = std::make_shared<EmbeddingRows>(*golden.rows);
  rows->values[5] = NAN;
  request.encoder_rows = rows;
  EXPECT_THAT(engine->check(request).error().message, HasSubstr("expected finite numbers"));
  rows->values.pop_back();
  EXPECT_THAT(engine->check(request).error().message, HasSubstr("encoder_rows: expected 50 x 24"));
}

TEST(EncoderRows, DraftsAndStoresAreRefused) {
  EngineConfig config = encoded_config();
  config.spec = "ngram";
  EXPECT_THAT(Engine::open(config).error().message, HasSubstr("spec: nothing drafts for whisper"));
}

}  // namespace
}  // namespace penstock
