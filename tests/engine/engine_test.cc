#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <thread>

#include "engine/engine_fixture.h"

namespace penstock {
namespace {

TEST(Engine, GeneratesWhatTheModelAloneWould) {
  FakeEngine fake;
  const Request request = request_of(prompt_of(10), 20);
  const auto sink = fake.submit(request);
  fake.run();
  const Collected::Sequence& got = sink->result.sequences[0];
  EXPECT_EQ(got.tokens, fake.expected(request));
  EXPECT_EQ(got.stats.prompt_tokens, 10);
  EXPECT_EQ(got.stats.completion_tokens, static_cast<int>(got.tokens.size()));
  EXPECT_EQ(got.n_ends, 1);
  EXPECT_EQ(fake.engine->scheduler().allocator().n_referenced(), 0);
}

TEST(Engine, AloneEqualsBatched) {
  FakeEngine fake;
  std::vector<Request> requests;
  std::vector<std::shared_ptr<Collector>> sinks;
  for (int i = 0; i < 20; ++i) {
    requests.push_back(request_of(prompt_of(1 + i * 3, i), 5 + i, i));
    sinks.push_back(fake.submit(requests.back()));
  }
  fake.run();
  EXPECT_GT(fake.model->largest_batch(), 3);
  for (int i = 0; i < 20; ++i)
    EXPECT_EQ(sinks[i]->result.sequences[0].tokens, fake.expected(requests[i])) << i;
}

TEST(Engine, TheTokensOfAllStepsAreThoseOfPromptsAndReplies) {
  FakeEngineConfig config;
  config.engine.enable_prefix_caching = false;
  FakeEngine fake(config);
  for (int i = 0; i < 9; ++i) {
    Request request = request_of(prompt_of(1 + i * 5, i), 1 + i, i);
    request.sampling.n = 1 + i % 3;
    fake.submit(request);
  }
  fake.run();
  const Metrics metrics = fake.engine->metrics();
  EXPECT_GT(metrics.generation_tokens.value, 40);
  EXPECT_EQ(metrics.iteration_tokens_total.sum,
            metrics.prompt_tokens.value + metrics.generation_tokens.value);
}

// Compares what it hears of with what the engine says it has done.
class ComparingSink : public EventSink {
 public:
  explicit ComparingSink(const Engine& engine) : engine_(engine) {}
  void on_tokens(RequestId, std::span<const TokenEvent> events) override {
    for (const TokenEvent& event : events) {
      if (event.token != kNoToken) ++n_tokens;
      if (event.finish != FinishReason::kNone) ++n_ends;
    }
    const Metrics metrics = engine_.metrics();
    EXPECT_GE(metrics.generation_tokens.value, n_tokens);
    EXPECT_EQ(metrics.num_requests_running.value, n_ends > 0 ? 0 : 1);
    n_steps = metrics.steps.value;
  }
  int n_tokens = 0, n_ends = 0;
  double n_steps = 0;

 private:
  const Engine& engine_;
};

TEST(Engine, WhoHearsOfATokenFindsItCounted) {
  FakeEngine fake;
  const auto sink = std::make_shared<ComparingSink>(*fake.engine);
  ASSERT_TRUE(fake.engine->submit(request_of(prompt_of(5), 7), sink));
  fake.run();
  EXPECT_EQ(sink->n_tokens, 7);
  EXPECT_EQ(sink->n_ends, 1);
  // a step ends when it has delivered
  EXPECT_EQ(fake.engine->metrics().steps.value, sink->n_steps + 1);
}

TEST(Engine, ChunkSizesDoNotMatter) {
  for (int chunk = 1; chunk <= 40; ++chunk) {
    FakeEngineConfig config;
    config.engine.max_num_batched_tokens = chunk;
    config.engine.max_num_seqs = 1;
    FakeEngine fake(config);
    const Request request = request_of(prompt_of(37), 12);
    const auto sink = fake.submit(request);
    fake.run();
    EXPECT_EQ(sink->result.sequences[0].tokens, fake.expected(request)) << chunk;
  }
}

TEST(Engine, PreemptedSequencesEndWithTheSameText) {
  FakeEngineConfig config;
  config.n_blocks = {20};
  config.max_model_len = 80;
  FakeEngine fake(config);
  std::vector<Request> requests;
  std::vector<std::shared_ptr<Collector>> sinks;
  int n_preemptions = 0;
  for (int i = 0; i < 12; ++i) {
    requests.push_back(request_of(prompt_of(8 + i, i), 40, i));
    requests.back().sampling.ignore_eos = true;
    sinks.push_back(fake.submit(requests.back()));
  }
  fake.run();
  for (int i = 0; i < 12; ++i) {
    EXPECT_EQ(sinks[i]->result.sequences[0].tokens, fake.expected(requests[i])) << i;
    n_preemptions += sinks[i]->result.sequences[0].stats.preemptions;
  }
  EXPECT_GT(n_preemptions, 0);
  EXPECT_EQ(fake.engine->metrics().num_preemptions.value, n_preemptions);
}

TEST(Engine, SlidingWindowsGiveBlocksBackAndKeepTheText) {
  for (const bool caching : {true, false}) {
    FakeEngineConfig config;
    config.n_blocks = {64, 9};
    config.windows = {0, 10};
    config.engine.enable_prefix_caching = caching;
    FakeEngine fake(config);
    std::vector<Request> requests;
    std::vector<std::shared_ptr<Collector>> sinks;
    for (int i = 0; i < 6; ++i) {
      requests.push_back(request_of(prompt_of(30 + i, i / 2), 60, i));
      requests.back().sampling.ignore_eos = true;
      sinks.push_back(fake.submit(requests.back()));
    }
    fake.run();
    for (int i = 0; i < 6; ++i)
      EXPECT_EQ(sinks[i]->result.sequences[0].tokens, fake.expected(requests[i])) << i;
    EXPECT_EQ(fake.engine->scheduler().allocator(1).n_referenced(), 0);
  }
}

TEST(Engine, CachedPrefixesAreNotComputedAgain) {
  FakeEngine fake;
  const Request first = request_of(prompt_of(41), 1);
  fake.submit(first);
  fake.run();
  EXPECT_EQ(fake.model->n_tokens(), 41);
  const auto sink = fake.submit(request_of(prompt_of(41), 1));
  fake.run();
  EXPECT_EQ(fake.model->n_tokens(), 42);  // 40 of 41 in full blocks
  EXPECT_EQ(sink->result.sequences[0].stats.cached_tokens, 40);
  Request other_tenant = request_of(prompt_of(41), 1);
  other_tenant.cache_salt = "b";
  fake.submit(other_tenant);
  fake.run();
  EXPECT_EQ(fake.model->n_tokens(), 42 + 41);
  Request no_cache = request_of(prompt_of(41), 1);
  no_cache.read_prefix_cache = false;
  fake.submit(no_cache);
  fake.run();
  EXPECT_EQ(fake.model->n_tokens(), 42 + 41 + 41);
  fake.engine->reset_prefix_cache();
  fake.submit(first);
  fake.run();
  EXPECT_EQ(fake.model->n_tokens(), 42 + 41 + 41 + 41);
}

TEST(Engine, SimultaneousRequestsComputeTheirCommonPrefixOnce) {
  FakeEngineConfig config;
  config.n_blocks = {300};
  config.engine.max_num_seqs = 16;
  config.engine.max_num_batched_tokens = 64;
  FakeEngine fake(config);
  std::vector<Request> requests;
  std::vector<std::shared_ptr<Collector>> sinks;
  for (int i = 0; i < 16; ++i) {
    std::vector<TokenId> prompt = prompt_of(160);
    prompt.push_back(1 + i);
    requests.push_back(request_of(prompt, 8, i));
    sinks.push_back(fake.submit(requests.back()));
  }
  fake.run();
  int64_t n_output = 0;
  for (int i = 0; i < 16; ++i) {
    EXPECT_EQ(sinks[i]->result.sequences[0].tokens, fake.expected(requests[i])) << i;
    n_output += sinks[i]->result.sequences[0].stats.completion_tokens;
  }
  EXPECT_EQ(fake.model->n_tokens() - (n_output - 16), 160 + 16);
}

TEST(Engine, ParallelSamplesShareThePrompt) {
  FakeEngine fake;
  Request request = request_of(prompt_of(30), 10);
  request.sampling.n = 5;
  const auto sink = fake.submit(request);
  fake.run();
  int64_t n_output = 0;
  std::set<std::vector<TokenId>> different;
  for (int i = 0; i < 5; ++i) {
    EXPECT_EQ(sink->result.sequences[i].tokens, fake.expected(request, i)) << i;
    n_output += sink->result.sequences[i].stats.completion_tokens;
    different.insert(sink->result.sequences[i].tokens);
  }
  EXPECT_GT(different.size(), 3u);
  EXPECT_EQ(fake.model->n_tokens() - (n_output - 5), 30);
}

TEST(Engine, ParallelSamplesBeyondTheSeatsWait) {
  FakeEngineConfig config;
  config.engine.max_num_seqs = 2;
  FakeEngine fake(config);
  Request request = request_of(prompt_of(9), 7);
  request.sampling.n = 6;
  const auto sink = fake.submit(request);
  fake.run();
  for (int i = 0; i < 6; ++i)
    EXPECT_EQ(sink->result.sequences[i].tokens, fake.expected(request, i)) << i;
}

TEST(Engine, EndsForTheRightReason) {
  FakeEngine fake;
  Request plain = request_of(prompt_of(5), 100);
  const std::vector<TokenId> text = fake.expected(plain);
  Request stopped = plain;
  stopped.sampling.stop_token_ids = {text[1]};
  Request shortened = plain;
  shortened.sampling.max_tokens = 2;
  Request longest = plain;
  longest.sampling.max_tokens = 1000;
  longest.sampling.ignore_eos = true;
  const auto a = fake.submit(plain), b = fake.submit(stopped), c = fake.submit(shortened),
             d = fake.submit(longest);
  fake.run();
  EXPECT_EQ(a->result.sequences[0].finish, FinishReason::kStop);
  EXPECT_EQ(a->result.sequences[0].tokens.back(), 0);
  EXPECT_EQ(a->result.sequences[0].stop_token, kNoToken);
  EXPECT_EQ(b->result.sequences[0].finish, FinishReason::kStop);
  EXPECT_EQ(b->result.sequences[0].stop_token, text[1]);
  EXPECT_EQ(c->result.sequences[0].finish, FinishReason::kLength);
  EXPECT_EQ(c->result.sequences[0].tokens.size(), 2u);
  EXPECT_EQ(d->result.sequences[0].finish, FinishReason::kLength);
  EXPECT_EQ(d->result.sequences[0].tokens.size(), 195u);
}

TEST(Engine, CancelFreesEverythingWithinOneStepAtAnyMoment) {
  for (int moment = 0; moment < 25; ++moment) {
    for (const int n : {1, 3}) {
      FakeEngineConfig config;
      config.engine.max_num_batched_tokens = 8;
      FakeEngine fake(config);
      Request request = request_of(prompt_of(30), 20);
      request.sampling.n = n;
      request.sampling.ignore_eos = true;
      RequestId id;
      const auto sink = fake.submit(request, &id);
      for (int i = 0; i < moment; ++i) fake.engine->step();
      fake.engine->cancel(id, FinishReason::kAbort);
      fake.engine->step();
      EXPECT_EQ(sink->n_finished(), n);
      EXPECT_EQ(fake.engine->scheduler().allocator().n_referenced(), 0) << moment;
      EXPECT_TRUE(fake.engine->scheduler().idle());
      fake.engine->scheduler().check_invariants();
      EXPECT_EQ(sink.use_count(), 1) << "the sink is released";
    }
  }
}

TEST(Engine, OneOfSeveralSequencesCanBeCancelled) {
  for (int moment = 0; moment < 12; ++moment) {
    FakeEngineConfig config;
    config.engine.max_num_batched_tokens = 8;
    FakeEngine fake(config);
    Request request = request_of(prompt_of(30), 6);
    request.sampling.n = 3;
    request.sampling.ignore_eos = true;
    RequestId id;
    const auto sink = fake.submit(request, &id);
    for (int i = 0; i < moment; ++i) fake.engine->step();
    fake.engine->cancel(id, 0, FinishReason::kStop);
    fake.run();
    for (const int i : {1, 2})
      EXPECT_EQ(sink->result.sequences[i].tokens, fake.expected(request, i)) << moment;
    EXPECT_EQ(sink->n_finished(), 3);
  }
}

TEST(Engine, LogprobsAreReported) {
  FakeEngine fake;
  Request request = request_of(prompt_of(20), 5);
  request.sampling.logprobs = 3;
  request.sampling.prompt_logprobs = 2;
  const auto sink = fake.submit(request);
  fake.run();
  EXPECT_EQ(sink->result.prompt_logprobs.size(), 19u);
  for (int position = 1; position < 20; ++position) {
    const std::vector<float> row = fake.model->logits_of(std::span(request.prompt).first(position));
    double z = 0;
    for (const float x : row) z += std::exp(double{x});
    const auto& got = sink->result.prompt_logprobs[position];
    ASSERT_EQ(got.size(), 3u);
    EXPECT_EQ(got[0].token, request.prompt[position]);
    EXPECT_NEAR(got[0].logprob, row[request.prompt[position]] - std::log(z), 1e-4);
    EXPECT_EQ(got[1].token, std::max_element(row.begin(), row.end()) - row.begin());
    EXPECT_EQ(got[1].rank, 1);
    EXPECT_GE(got[1].logprob, got[2].logprob);
  }
  for (const auto& top : sink->result.sequences[0].alternatives) EXPECT_EQ(top.size(), 3u);
  Request score = request_of(prompt_of(20), 1);
  score.sampling.max_tokens = 0;
  score.sampling.prompt_logprobs = 0;
  const auto scored = fake.submit(score);
  fake.run();
  EXPECT_EQ(scored->result.prompt_logprobs.size(), 19u);
  EXPECT_TRUE(scored->result.sequences[0].tokens.empty());
  EXPECT_EQ(scored->result.sequences[0].finish, FinishReason::kLength);
}

TEST(Engine, RefusesWhatCannotRun) {
  FakeEngineConfig config;
  config.engine.max_queued_requests = 2;
  FakeEngine fake(config);
  const auto code = [&](Request request) {
    const auto result = fake.engine->submit(std::move(request), std::make_shared<Collector>());
    return result ? ErrorCode::kInternal : result.error().code;
  };
  EXPECT_EQ(code(request_of({}, 5)), ErrorCode::kInvalidArgument);
  EXPECT_EQ(code(request_of({50}, 5)), ErrorCode::kInvalidArgument);
  EXPECT_EQ(code(request_of({-1}, 5)), ErrorCode::kInvalidArgument);
  EXPECT_EQ(code(request_of(prompt_of(200), 5)), ErrorCode::kContextOverflow);
  EXPECT_EQ(code(request_of(prompt_of(199), 5)), ErrorCode::kInternal);  // fits
  Request bad = request_of({1}, 5);
  bad.sampling.top_p = 2;
  EXPECT_EQ(code(bad), ErrorCode::kInvalidArgument);
  fake.submit(request_of({1}, 5));
  EXPECT_EQ(code(request_of({1}, 5)), ErrorCode::kResourceExhausted);
  fake.run();
  EXPECT_EQ(code(request_of({1}, 5)), ErrorCode::kInternal);
  fake.engine->stop();
  EXPECT_EQ(code(request_of({1}, 5)), ErrorCode::kCancelled);
}

TEST(Engine, DeadlinesEndRequests) {
  FakeEngine fake;
  Request request = request_of(prompt_of(10), 100);
  request.sampling.ignore_eos = true;
  request.deadline = Clock::now() - std::chrono::seconds(1);
  const auto sink = fake.submit(request);
  fake.run();
  EXPECT_EQ(sink->result.sequences[0].finish, FinishReason::kAbort);
  EXPECT_EQ(sink->result.sequences[0].error->code, ErrorCode::kDeadlineExceeded);
}

// Of a model that can compute nothing any more: what ran and waited ends with its error, what it
// gave at last is told to nobody.
TEST(Engine, AModelThatFailsEndsEverything) {
  for (const bool device : {false, true}) {
    FakeEngineConfig config;
    config.device = device;
    config.engine.max_num_seqs = 2;
    FakeEngine fake(config);
    std::vector<std::shared_ptr<Collector>> sinks;
    for (int i = 0; i < 4; ++i) {
      Request request = request_of(prompt_of(10, i), 100);
      request.sampling.ignore_eos = true;
      sinks.push_back(fake.submit(request));
    }
    for (int i = 0; i < 5; ++i) fake.engine->step();
    const size_t n_tokens = sinks[0]->result.sequences[0].tokens.size();
    fake.model->fail("rank 1 is gone");
    for (int i = 0; i < 3; ++i) fake.engine->step();
    for (const auto& sink : sinks) {
      EXPECT_EQ(sink->result.sequences[0].finish, FinishReason::kError);
      EXPECT_EQ(sink->result.sequences[0].error->message, "rank 1 is gone");
    }
    EXPECT_EQ(sinks[0]->result.sequences[0].tokens.size(), n_tokens);
    EXPECT_FALSE(fake.engine->status());
    const auto refused =
        fake.engine->submit(request_of(prompt_of(10), 5), std::make_shared<Collector>());
    ASSERT_FALSE(refused);
    EXPECT_EQ(refused.error().message, "rank 1 is gone");
    fake.engine->stop();
  }
}

TEST(Engine, DecodingComesBeforePrompts) {
  FakeEngineConfig config;
  config.engine.max_num_batched_tokens = 64;
  config.engine.prefill_chunk = 10;
  FakeEngine fake(config);
  Request decoding = request_of(prompt_of(4), 60);
  decoding.sampling.ignore_eos = true;
  const auto first = fake.submit(decoding);
  fake.engine->step();
  fake.submit(request_of(prompt_of(100, 3), 1));
  for (int i = 0; i < 10; ++i) {
    const size_t before = first->result.sequences[0].tokens.size();
    const int64_t computed = fake.model->n_tokens();
    fake.engine->step();
    EXPECT_EQ(first->result.sequences[0].tokens.size(), before + 1);
    EXPECT_LE(fake.model->n_tokens() - computed, 11);
  }
}

class SessionFile : public ::testing::Test {
 protected:
  void TearDown() override { std::filesystem::remove(path_); }
  // Generates, saves prompt and text, and returns them.
  std::vector<TokenId> save(int n_saved) {
    FakeEngine fake(config_, 1);
    Request request = request_of(prompt_of(41), 20);
    request.sampling.ignore_eos = true;
    const auto sink = fake.submit(request);
    fake.run();
    std::vector<TokenId> tokens = request.prompt;
    const std::vector<TokenId>& text = sink->result.sequences[0].tokens;
    tokens.insert(tokens.end(), text.begin(), text.end());
    EXPECT_EQ(fake.engine->save_session(tokens, path_, "").value(), n_saved);
    fake.engine->scheduler().check_invariants();
    EXPECT_EQ(fake.engine->scheduler().allocator().n_referenced(), 0);
    return tokens;
  }
  // Goes on from `tokens` in an engine that may have loaded the session; returns the cached tokens.
  int go_on(FakeEngine& fake, std::vector<TokenId> tokens) {
    tokens.push_back(3);
    const Request request = request_of(tokens, 10);
    const auto sink = fake.submit(request);
    fake.run();
    EXPECT_EQ(sink->result.sequences[0].tokens, fake.expected(request));
    return sink->result.sequences[0].stats.cached_tokens;
  }
  ErrorCode load_error(FakeEngine& fake) {
    const auto loaded = fake.engine->load_session(path_);
    return loaded ? ErrorCode::kCancelled : loaded.error().code;
  }
  const std::string path_ = ::testing::TempDir() + "penstock_session_" + std::to_string(getpid());
  FakeEngineConfig config_;
};

TEST_F(SessionFile, GoesOnWithoutComputingAgain) {
  const std::vector<TokenId> tokens = save(60);
  ASSERT_EQ(tokens.size(), 61u);
  FakeEngine fake(config_, 1);
  const auto loaded = fake.engine->load_session(path_);
  ASSERT_TRUE(loaded) << loaded.error().message;
  EXPECT_EQ(loaded->tokens, tokens);
  EXPECT_EQ(loaded->n_restored, 60);
  fake.engine->scheduler().check_invariants();
  EXPECT_EQ(go_on(fake, tokens), 60);
}

TEST_F(SessionFile, DoesNotFollowALinkInThePlaceOfItsTemporaryFile) {
  namespace fs = std::filesystem;
  const std::vector<TokenId> tokens = save(60);
  const fs::path planted = path_ + ".part", target = path_ + ".target";
  fs::create_symlink(target, planted);
  FakeEngine fake(config_, 1);
  EXPECT_EQ(fake.engine->save_session(tokens, path_, "").error().code, ErrorCode::kIo);
  EXPECT_FALSE(fs::exists(target));
  fs::remove(planted);
}

TEST_F(SessionFile, WindowsAndAThreadMakeNoDifference) {
  config_.n_blocks = {64, 30};
  config_.windows = {0, 10};
  const std::vector<TokenId> tokens = save(60);
  FakeEngine fake(config_, 1);
  fake.engine->start();
  ASSERT_TRUE(fake.engine->load_session(path_));
  EXPECT_EQ(fake.engine->save_session(tokens, path_, "").value(), 60);
  fake.engine->stop();
  FakeEngine next(config_, 1);
  ASSERT_TRUE(next.engine->load_session(path_));
  EXPECT_EQ(go_on(next, tokens), 60);
}

TEST_F(SessionFile, WhereTheCacheIsSmallTheFirstTokensComeBack) {
  const std::vector<TokenId> tokens = save(60);
  config_.n_blocks = {10};
  FakeEngine fake(config_, 1);
  EXPECT_EQ(fake.engine->load_session(path_)->n_restored, 40);
  fake.engine->scheduler().check_invariants();
}

TEST_F(SessionFile, IsRefusedWhenItDoesNotFit) {
  save(60);
  FakeEngine other(config_, 2);
  EXPECT_EQ(load_error(other), ErrorCode::kInvalidArgument);
  std::filesystem::remove(path_);
  EXPECT_EQ(load_error(other), ErrorCode::kNotFound);
  EXPECT_EQ(other.engine->save_session(prompt_of(9), "/proc/none/session", "").error().code,
            ErrorCode::kIo);
}

TEST_F(SessionFile, AnyDamageIsRefusedAndNothingOfItUsed) {
  const std::vector<TokenId> tokens = save(60);
  std::ifstream in(path_, std::ios::binary);
  const std::string whole((std::istreambuf_iterator<char>(in)), {});
  FakeEngine fake(config_, 1);
  for (size_t at = 0; at < whole.size(); at += 13) {
    std::string damaged = whole;
    damaged[at] = static_cast<char>(damaged[at] ^ 0x10);
    std::ofstream(path_, std::ios::binary | std::ios::trunc) << damaged;
    EXPECT_EQ(load_error(fake), ErrorCode::kCorruptFile) << at;
    std::ofstream(path_, std::ios::binary | std::ios::trunc) << whole.substr(0, at);
    EXPECT_EQ(load_error(fake), ErrorCode::kCorruptFile) << at;
  }
  std::ofstream(path_, std::ios::binary | std::ios::trunc) << whole << 'x';
  EXPECT_EQ(load_error(fake), ErrorCode::kCorruptFile);
  EXPECT_EQ(go_on(fake, tokens), 0);
}

TEST(Engine, NothingIsComputedWhileItIsPaused) {
  for (int moment = 0; moment < 12; ++moment) {
    FakeEngine fake;
    const Request request = request_of(prompt_of(20), 8);
    const auto sink = fake.submit(request);
    for (int i = 0; i < moment; ++i) fake.engine->step();
    ASSERT_TRUE(fake.engine->set_paused(true));
    RequestId id;
    const auto late = fake.submit(request, &id);
    const double n_tokens = fake.engine->metrics().generation_tokens.value;
    for (int i = 0; i < 3; ++i) EXPECT_FALSE(fake.engine->step());
    EXPECT_EQ(fake.engine->metrics().generation_tokens.value, n_tokens) << moment;
    fake.engine->cancel(id, FinishReason::kAbort);
    fake.engine->step();
    EXPECT_EQ(late->n_finished(), 1) << "cancelled ones end all the same";
    ASSERT_TRUE(fake.engine->set_paused(false));
    fake.run();
    EXPECT_EQ(sink->result.sequences[0].tokens, fake.expected(request)) << moment;
  }
}

TEST(Engine, ThePausedThreadWaitsAndEnds) {
  FakeEngine fake;
  fake.engine->start();
  ASSERT_TRUE(fake.engine->set_paused(true));
  const Request request = request_of(prompt_of(20), 8);
  const auto sink = fake.submit(request);
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  EXPECT_EQ(sink->n_finished(), 0);
  ASSERT_TRUE(fake.engine->set_paused(false));
  while (sink->n_finished() == 0) std::this_thread::sleep_for(std::chrono::microseconds(200));
  EXPECT_EQ(sink->result.sequences[0].tokens, fake.expected(request));
  ASSERT_TRUE(fake.engine->set_paused(true));
  const auto last = fake.submit(request);
  fake.engine->stop();
  EXPECT_EQ(last->n_finished(), 1);
}

TEST(Engine, TheThreadServesManyCallers) {
  FakeEngineConfig config;
  config.n_blocks = {60};
  config.max_model_len = 100;
  FakeEngine fake(config);
  fake.engine->start();
  std::vector<std::thread> callers;
  std::atomic<int> n_wrong = 0;
  for (int c = 0; c < 4; ++c) {
    callers.emplace_back([&, c] {
      for (int i = 0; i < 25; ++i) {
        const Request request = request_of(prompt_of(5 + i, c), 10, c * 100 + i);
        RequestId id;
        const auto sink = fake.submit(request, &id);
        const bool cancelled = i % 7 == 3;
        if (cancelled) fake.engine->cancel(id, FinishReason::kAbort);
        while (sink->n_finished() == 0) std::this_thread::sleep_for(std::chrono::microseconds(200));
        fake.engine->metrics();
        const std::lock_guard lock(sink->mutex);
        if (!cancelled && sink->result.sequences[0].tokens != fake.expected(request)) ++n_wrong;
      }
    });
  }
  for (std::thread& caller : callers) caller.join();
  const auto last = fake.submit(request_of(prompt_of(3), 90));
  fake.engine->stop();
  EXPECT_EQ(last->n_finished(), 1);
  EXPECT_EQ(n_wrong, 0);
  EXPECT_EQ(fake.engine->scheduler().allocator().n_referenced(), 0);
}

}  // namespace
}  // namespace penstock
