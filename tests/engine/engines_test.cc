// Several engines behind one: what comes out is what one gives, whichever of them a request goes
// to.
#include "engine/replicas/engines.h"

#include <gtest/gtest.h>

#include <chrono>
#include <set>
#include <thread>

#include "engine/engine_fixture.h"
#include "engine/open/engine_group.h"
#include "formats/temp_dir.h"
#include "support/test_data.h"

namespace penstock {
namespace {

// --- Over fake models

struct FakeEngines {
  explicit FakeEngines(int n, FakeEngineConfig config = {}) {
    config.next_request = std::make_shared<std::atomic<uint64_t>>(1);
    std::vector<std::unique_ptr<Engine>> all;
    for (int i = 0; i < n; ++i) {
      fakes.emplace_back(config);
      all.push_back(std::move(fakes.back().engine));
    }
    engines = std::make_unique<Engines>(std::move(all), 1);
  }
  std::shared_ptr<Collector> submit(Request request, RequestId* id = nullptr) {
    auto sink = std::make_shared<Collector>();
    const auto result = engines->submit(std::move(request), sink);
    EXPECT_TRUE(result.has_value()) << result.error().message;
    if (id != nullptr && result) *id = *result;
    return sink;
  }
  void run() {
    while (engines->step()) {
    }
  }
  double n_of(int engine, Counter Metrics::* counter) const {
    const Metrics metrics = engines->engine_at(engine).metrics();
    return (metrics.*counter).value;
  }

  std::vector<FakeEngine> fakes;
  std::unique_ptr<Engines> engines;
};

// As many as one engine would, with the numbers that it would give them: without seeds they draw
// the same.
TEST(Engines, TextsAreThoseOfOne) {
  FakeEngines one(1), three(3);
  std::vector<std::shared_ptr<Collector>> wanted, got;
  for (int i = 0; i < 20; ++i) {
    Request request = request_of(prompt_of(3 + i % 5 * 7, i % 4), 12);
    if (i % 2 == 0) request.sampling.seed.reset();
    request.sampling.n = 1 + i % 3;
    wanted.push_back(one.submit(request));
    got.push_back(three.submit(request));
  }
  one.run(), three.run();
  for (size_t i = 0; i < got.size(); ++i) {
    ASSERT_EQ(got[i]->result.sequences.size(), wanted[i]->result.sequences.size());
    for (const auto& [index, sequence] : wanted[i]->result.sequences)
      EXPECT_EQ(got[i]->result.sequences.at(index).tokens, sequence.tokens) << i << ' ' << index;
  }
  const Metrics all = three.engines->metrics();
  EXPECT_EQ(all.generation_tokens.value, one.engines->metrics().generation_tokens.value);
  EXPECT_EQ(all.request_prompt_tokens.count, one.engines->metrics().request_prompt_tokens.count);
  for (int i = 0; i < 3; ++i)
    EXPECT_GT(three.n_of(i, &Metrics::generation_tokens), 40) << "load is shared";
}

TEST(Engines, GoOnWhereTheirPrefixIs) {
  FakeEngines two(2, {.max_model_len = 200});
  Request first = request_of(prompt_of(80, 3), 4);
  two.submit(first);
  two.run();
  for (int i = 0; i < 5; ++i) {
    Request longer = first;
    longer.prompt.push_back(1 + i);
    const auto sink = two.submit(longer);
    two.run();
    EXPECT_GE(sink->result.sequences.at(0).stats.cached_tokens, 76);
  }
  EXPECT_EQ(two.n_of(1, &Metrics::prompt_tokens), 0);
  two.engines->reset_prefix_cache();
  const auto sink = two.submit(first);
  two.run();
  EXPECT_EQ(sink->result.sequences.at(0).stats.cached_tokens, 0);
  EXPECT_GT(two.n_of(1, &Metrics::prompt_tokens), 0) << "fewer were sent there";
}

TEST(Engines, AFullQueueIsNotTheEnd) {
  FakeEngineConfig config;
  config.engine.max_queued_requests = 2;
  FakeEngines two(2, config);
  std::vector<std::shared_ptr<Collector>> sinks;
  for (int i = 0; i < 4; ++i)
    sinks.push_back(two.submit(request_of(prompt_of(60), 3)));  // all one's by their prefix
  const auto refused =
      two.engines->submit(request_of(prompt_of(60), 3), std::make_shared<Collector>());
  ASSERT_FALSE(refused.has_value());
  EXPECT_EQ(refused.error().code, ErrorCode::kResourceExhausted);
  two.run();
  for (const auto& sink : sinks) EXPECT_EQ(sink->result.sequences.at(0).tokens.size(), 3u);
}

TEST(Engines, CancelledWhereverTheyAre) {
  FakeEngines two(2);
  std::vector<RequestId> ids(4);
  std::vector<std::shared_ptr<Collector>> sinks;
  for (size_t i = 0; i < 4; ++i) {
    Request request = request_of(prompt_of(5, static_cast<int>(i)), 100);
    request.sampling.ignore_eos = true;
    sinks.push_back(two.submit(request, &ids[i]));
  }
  EXPECT_EQ(std::set(ids.begin(), ids.end()).size(), 4u);
  two.engines->step();
  for (const RequestId id : ids) two.engines->cancel(id, FinishReason::kAbort);
  two.engines->step();
  for (const auto& sink : sinks)
    EXPECT_EQ(sink->result.sequences.at(0).finish, FinishReason::kAbort);
}

// What one cannot do any more, none begins; what the others have begun, they end.
TEST(Engines, OneThatFails) {
  FakeEngines two(2);
  std::vector<std::shared_ptr<Collector>> sinks;
  for (int i = 0; i < 2; ++i) sinks.push_back(two.submit(request_of(prompt_of(5, i), 6)));
  two.engines->step();
  two.fakes[1].model->fail("its rank has ended");
  const Status status = two.engines->status();
  ASSERT_FALSE(status.has_value());
  EXPECT_EQ(status.error().message, "engine 1 of 2: its rank has ended");
  EXPECT_FALSE(
      two.engines->submit(request_of(prompt_of(5), 6), std::make_shared<Collector>()).has_value());
  two.run();
  EXPECT_EQ(sinks[1]->result.sequences.at(0).finish, FinishReason::kError);
  EXPECT_EQ(sinks[0]->result.sequences.at(0).tokens.size(), 6u);
  EXPECT_EQ(two.engines->metrics().num_requests_running.value, 0);
}

TEST(Engines, SessionsAreOfAll) {
  const TempDir dir;
  const std::string path = (dir.path() / "session").string();
  FakeEngines two(2);
  two.submit(request_of(prompt_of(4, 1), 1));  // the next one goes to the other
  const std::vector<TokenId> prompt = prompt_of(40, 9);
  two.submit(request_of(prompt, 1));
  two.run();
  const auto saved = two.engines->save_session(prompt, path, "");
  ASSERT_TRUE(saved.has_value());
  EXPECT_EQ(*saved, 40);
  FakeEngines others(2);
  const auto loaded = others.engines->load_session(path);
  ASSERT_TRUE(loaded.has_value());
  EXPECT_EQ(loaded->n_restored, 40);
  for (int i = 0; i < 2; ++i) {
    Request request = request_of(prompt, 1);
    request.prompt.push_back(7 + i);
    request.cache_salt = "";
    const auto sink = others.submit(request);
    others.run();
    EXPECT_EQ(sink->result.sequences.at(0).stats.cached_tokens, 40) << i;
  }
}

// --- Over a real model

EngineConfig engines_config(int n) {
  EngineConfig config;
  config.model = (tests_dir() / "golden" / "models" / "llama2").string();
  config.batch_invariant = true;
  config.kv_cache_memory = 8 << 20;
  config.max_num_seqs = 4;
  config.data_parallel_size = n;
  return config;
}

std::vector<std::vector<TokenId>> texts_of(Engine& engine) {
  std::vector<std::shared_ptr<Collector>> sinks;
  for (int i = 0; i < 12; ++i) {
    Request request = request_of(prompt_of(5 + i % 3 * 20, i % 4, 60), 20);
    request.sampling.seed.reset();
    sinks.push_back(std::make_shared<Collector>());
    EXPECT_TRUE(engine.submit(std::move(request), sinks.back()).has_value());
  }
  std::vector<std::vector<TokenId>> texts;
  for (const auto& sink : sinks) {
    while (sink->n_finished() == 0) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    texts.push_back(sink->result.sequences.at(0).tokens);
  }
  return texts;
}

TEST(Engines, OpenedFromAConfiguration) {
  std::vector<std::vector<TokenId>> wanted;
  int64_t weights = 0;
  for (const int n : {1, 2, 3}) {
    const auto engine = Engine::open(engines_config(n));
    ASSERT_TRUE(engine.has_value()) << engine.error().message;
    EXPECT_EQ((*engine)->n_engines(), n);
    (*engine)->start();
    const auto texts = texts_of(**engine);
    if (n == 1) wanted = texts, weights = (*engine)->info().weight_bytes;
    EXPECT_EQ(texts, wanted) << n;
    EXPECT_EQ((*engine)->info().weight_bytes, weights) << "they are there once";
    EXPECT_LE((*engine)->info().kv_bytes, 8 << 20);
    for (int i = 0; i < n; ++i)
      EXPECT_GT((*engine)->engine_at(i).metrics().generation_tokens.value, 0);
  }
}

// On machines with several nodes of memory each has the weights.
TEST(Engines, ACopyForEveryNode) {
  const auto alone = Engine::open(engines_config(1));
  ASSERT_TRUE(alone.has_value());
  (*alone)->start();
  const auto wanted = texts_of(**alone);
  const EngineConfig config = resolve_preset(engines_config(4)).value();
  auto several = open_engines({{{}, 0}, {{}, 0}, {{}, 1}, {{}, 1}},
                              open_weights(config.model).value(), config, {}, {});
  ASSERT_TRUE(several.has_value()) << several.error().message;
  EXPECT_EQ((*several)->info().weight_bytes, 2 * (*alone)->info().weight_bytes);
  (*several)->start();
  EXPECT_EQ(texts_of(**several), wanted);
}

// Each engine has its adapters in slots of its own, beside weights that all share.
TEST(Engines, AdaptersOfSharedWeights) {
  const std::string path = (tests_dir() / "golden" / "lora" / "llama2").string();
  std::vector<std::vector<float>> wanted;
  for (const int n : {1, 3}) {
    EngineConfig config = engines_config(n);
    config.max_loras = 1;
    const auto engine = Engine::open(config);
    ASSERT_TRUE(engine.has_value()) << engine.error().message;
    auto adapter = (*engine)->open_adapter(path);
    ASSERT_TRUE(adapter.has_value()) << adapter.error().message;
    (*engine)->start();
    std::vector<std::shared_ptr<Collector>> sinks;
    for (int i = 0; i < 9; ++i) {
      Request request = request_of(prompt_of(20, i, 60), 12);
      request.sampling.logprobs = 0;
      request.sampling.temperature = 2.0f;
      if (i % 2 == 0) request.adapter = *adapter;
      sinks.push_back(std::make_shared<Collector>());
      ASSERT_TRUE((*engine)->submit(std::move(request), sinks.back()).has_value());
    }
    for (size_t i = 0; i < sinks.size(); ++i) {
      while (sinks[i]->n_finished() == 0) std::this_thread::sleep_for(std::chrono::milliseconds(1));
      const auto& logprobs = sinks[i]->result.sequences.at(0).logprobs;
      if (n == 1) wanted.push_back(logprobs);
      EXPECT_EQ(logprobs, wanted[i]) << n << ' ' << i;
    }
    EXPECT_EQ((*engine)->engine_at(0).check(Request{}).has_value(), false);
  }
}

TEST(Engines, WhatCannotBeIsRefused) {
  EngineConfig config = engines_config(65);
  const auto many = Engine::open(config);
  ASSERT_FALSE(many.has_value());
  EXPECT_NE(many.error().message.find("data_parallel_size: expected 0 to 64, got 65"),
            std::string::npos);
  config.data_parallel_size = 0;  // one for each node
  const auto one = Engine::open(config);
  ASSERT_TRUE(one.has_value());
  EXPECT_GE((*one)->config().data_parallel_size, 1);
}

}  // namespace
}  // namespace penstock
