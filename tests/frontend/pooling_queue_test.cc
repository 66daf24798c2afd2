#include "frontend/pooling_queue.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <condition_variable>
#include <future>
#include <new>

#include "base/result.h"
#include "support/test_data.h"

namespace penstock {
namespace {

using ::testing::HasSubstr;
using Task = PoolingKind::Task;
using Vectors = PoolingQueue::Vectors;

// Answers with the tokens themselves. A call waits until it is let through; an input that holds 13
// fails what it is part of, and for one that holds 666 there is no memory.
class FakeModel final : public EmbeddingModel {
 public:
  struct Gate {
    std::mutex mutex;
    std::condition_variable changed;
    int n_open = 1 << 30;       // steps that may still begin
    std::vector<size_t> steps;  // inputs of each
    void let(int n) {
      const std::lock_guard lock(mutex);
      n_open = n;
      changed.notify_all();
    }
    void pass(size_t n_inputs) {
      std::unique_lock lock(mutex);
      steps.push_back(n_inputs);
      changed.notify_all();
      changed.wait(lock, [&] { return n_open > 0; });
      --n_open;
    }
    void wait_for_steps(size_t n) {
      std::unique_lock lock(mutex);
      changed.wait(lock, [&] { return steps.size() >= n; });
    }
  };
  explicit FakeModel(std::shared_ptr<Gate> gate) : gate_(std::move(gate)) {}
  EmbeddingInfo info() const override { return {}; }
  Result<std::vector<std::vector<TokenId>>> encode(std::span<const Prompt>,
                                                   const EmbedOptions&) const override {
    return std::vector<std::vector<TokenId>>();
  }
  Result<std::vector<std::vector<TokenId>>> encode_pairs(
      std::span<const std::pair<std::string, std::string>>, const ClassifyOptions&) const override {
    return std::vector<std::vector<TokenId>>();
  }
  Result<Vectors> embed(std::span<const Prompt> inputs, const EmbedOptions& options) override {
    return echo(inputs, options.dimensions);
  }
  Result<Vectors> embed_tokens(std::span<const Prompt> inputs, const EmbedOptions&) override {
    return echo(inputs, 1000);
  }
  Result<Vectors> classify(std::span<const Prompt> inputs, const ClassifyOptions&) override {
    return echo(inputs, 2000);
  }
  Result<Vectors> classify_tokens(std::span<const Prompt> inputs, const ClassifyOptions&) override {
    return echo(inputs, 3000);
  }
  Result<std::vector<float>> score(std::span<const std::pair<std::string, std::string>>,
                                   const ClassifyOptions&) override {
    return errorf(ErrorCode::kInternal, "texts become tokens before they are in the queue");
  }
  Result<std::vector<PairTokens>> pair_tokens(std::span<const std::string>,
                                              std::span<const std::string>,
                                              const ClassifyOptions&) const override {
    return std::vector<PairTokens>();
  }
  Result<std::vector<float>> score_tokens(std::span<const PairTokens> pairs,
                                          const ClassifyOptions&) override {
    gate_->pass(pairs.size());
    std::vector<float> scores;
    for (const PairTokens& pair : pairs)
      scores.push_back(
          static_cast<float>(pair.n_first_type + 10 * (pair.tokens.size() - pair.n_first_type)));
    return scores;
  }

 private:
  Result<Vectors> echo(std::span<const Prompt> inputs, int mark) {
    gate_->pass(inputs.size());
    Vectors out;
    for (const Prompt& input : inputs) {
      auto& vector = out.emplace_back();
      for (const TokenId id : std::get<std::vector<TokenId>>(input)) {
        if (id == 666) throw std::bad_alloc();
        if (id == 13) return errorf(ErrorCode::kInvalidArgument, "thirteen");
        vector.push_back(static_cast<float>(id));
      }
      vector.push_back(static_cast<float>(mark));
    }
    return out;
  }
  std::shared_ptr<Gate> gate_;
};

class PoolingQueueTest : public ::testing::Test {
 protected:
  void open(PoolingQueue::Limits limits = {}) {
    queue = std::make_unique<PoolingQueue>(std::make_unique<FakeModel>(gate), limits);
  }
  static PoolingCall call_of(std::vector<std::vector<TokenId>> inputs, PoolingKind kind = {}) {
    PoolingCall call{.kind = kind,
                     .inputs = std::move(inputs),
                     .pairs = {},
                     .lengths = {},
                     .deadline = {},
                     .tenant = {}};
    for (const auto& input : call.inputs) call.lengths.push_back(input.size());
    return call;
  }
  std::future<Result<Vectors>> submit(PoolingCall call, uint64_t* id = nullptr) {
    auto promise = std::make_shared<std::promise<Result<Vectors>>>();
    const auto submitted = queue->submit(
        std::move(call), [promise](auto result) { promise->set_value(std::move(result)); });
    if (!submitted) promise->set_value(tl::unexpected(submitted.error()));
    if (submitted && id != nullptr) *id = *submitted;
    return promise->get_future();
  }
  std::shared_ptr<FakeModel::Gate> gate = std::make_shared<FakeModel::Gate>();
  std::unique_ptr<PoolingQueue> queue;
};

TEST_F(PoolingQueueTest, WhatWaitsIsComputedTogether) {
  open();
  gate->let(0);
  auto first = submit(call_of({{1}}));
  gate->wait_for_steps(1);
  std::vector<std::future<Result<Vectors>>> waiting;
  for (TokenId i = 0; i < 20; ++i) waiting.push_back(submit(call_of({{i + 20, i}, {i + 50}})));
  gate->let(1 << 30);
  EXPECT_EQ(first.get().value(), (Vectors{{1, 0}}));
  for (TokenId i = 0; i < 20; ++i) {
    const float x = static_cast<float>(i);
    const auto result = waiting[static_cast<size_t>(i)].get();
    if (i == 13) {
      EXPECT_EQ(result.error().message, "thirteen");  // and nobody else's fault
    } else {
      EXPECT_EQ(result.value(), (Vectors{{x + 20, x, 0}, {x + 50, 0}}));
    }
  }
  EXPECT_EQ(gate->steps[1], 40u);
  EXPECT_EQ(queue->metrics().request_success_stop.value, 20);
  EXPECT_EQ(queue->metrics().request_success_error.value, 1);
}

TEST_F(PoolingQueueTest, KindsAreComputedApartAndTakeTurns) {
  open();
  gate->let(0);
  auto first = submit(call_of({{1}}));
  gate->wait_for_steps(1);
  auto long_one =
      submit(call_of(std::vector<std::vector<TokenId>>(100, std::vector<TokenId>(500, 2))));
  auto classes = submit(call_of({{3}}, {.task = Task::kClassify}));
  auto tokens = submit(call_of({{4}}, {.task = Task::kEmbedTokens}));
  auto short_vectors = submit(call_of({{5}}, {.dimensions = 7}));
  PoolingCall pair{.kind = {.task = Task::kScore},
                   .inputs = {},
                   .pairs = {{{1, 2, 3}, 2}},
                   .lengths = {3},
                   .deadline = {}};
  auto score = submit(std::move(pair));
  gate->let(6);  // the first, a part of the long one, and the four others
  EXPECT_EQ(classes.get().value(), (Vectors{{3, 2000}}));
  EXPECT_EQ(tokens.get().value(), (Vectors{{4, 1000}}));
  EXPECT_EQ(short_vectors.get().value(), (Vectors{{5, 7}}));
  EXPECT_EQ(score.get().value(), (Vectors{{12}}));
  EXPECT_EQ(long_one.wait_for(std::chrono::seconds(0)), std::future_status::timeout);
  gate->let(1 << 30);
  EXPECT_EQ(long_one.get().value().size(), 100u);
}

TEST_F(PoolingQueueTest, ASmallCallIsNotHeldUpByALargeOne) {
  open();
  gate->let(0);
  auto large =
      submit(call_of(std::vector<std::vector<TokenId>>(2000, std::vector<TokenId>(100, 2))));
  gate->wait_for_steps(1);
  auto small = submit(call_of({{1}}));
  gate->let(2);
  EXPECT_EQ(small.get().value(), (Vectors{{1, 0}}));
  gate->let(1 << 30);
  EXPECT_EQ(large.get().value().size(), 2000u);
}

TEST_F(PoolingQueueTest, CancelledAndLateCallsEnd) {
  open();
  gate->let(0);
  uint64_t running = 0, waiting = 0;
  auto first = submit(call_of(std::vector<std::vector<TokenId>>(100, std::vector<TokenId>(500, 2))),
                      &running);
  gate->wait_for_steps(1);
  auto second = submit(call_of({{1}}), &waiting);
  PoolingCall late = call_of({{1}});
  late.deadline = std::chrono::steady_clock::now();
  auto third = submit(std::move(late));
  queue->cancel(running);
  queue->cancel(waiting);
  gate->let(1);
  EXPECT_EQ(first.get().error().code, ErrorCode::kCancelled);
  EXPECT_EQ(second.get().error().code, ErrorCode::kCancelled);
  EXPECT_EQ(third.get().error().code, ErrorCode::kDeadlineExceeded);
  EXPECT_EQ(queue->metrics().request_success_abort.value, 2);
}

TEST_F(PoolingQueueTest, RefusesWhatDoesNotFitTheQueue) {
  open({.calls = 2, .tokens = 100});
  gate->let(0);
  auto running = submit(call_of({{1}}));
  gate->wait_for_steps(1);
  auto one = submit(call_of({std::vector<TokenId>(50, 1)})),
       large = submit(call_of({std::vector<TokenId>(60, 1)}));
  EXPECT_EQ(large.get().error().code, ErrorCode::kResourceExhausted);
  auto two = submit(call_of({{1}})), three = submit(call_of({{1}}));
  EXPECT_THAT(three.get().error().message, HasSubstr("queue is full"));
  EXPECT_EQ(queue->metrics().admission_rejections.value, 2);
  EXPECT_EQ(submit(call_of({})).get().error().code, ErrorCode::kInvalidArgument);
  gate->let(1 << 30);
  EXPECT_TRUE(running.get() && one.get() && two.get());
}

// The call that needs it ends, the others do not.
TEST_F(PoolingQueueTest, MemoryRunsOut) {
  open();
  gate->let(0);
  auto running = submit(call_of({{1}}));
  gate->wait_for_steps(1);
  auto other = submit(call_of({{1}, {2}})), large = submit(call_of({{1}, {666}}));
  gate->let(1 << 30);
  EXPECT_TRUE(running.get());
  EXPECT_EQ(other.get().value(), (Vectors{{1, 0}, {2, 0}}));
  EXPECT_EQ(large.get().error().code, ErrorCode::kResourceExhausted);
  EXPECT_TRUE(submit(call_of({{1}})).get());
}

// Whoever comes while another one has many calls there, of many kinds, is in the next step but one.
TEST_F(PoolingQueueTest, TenantsTakeTurns) {
  for (const int n_kinds : {1, 100}) {
    open();
    gate->let(0);
    gate->steps.clear();
    std::vector<std::future<Result<Vectors>>> many;
    const auto add = [&](const std::string& tenant, int dimensions, size_t length) {
      PoolingCall call = call_of({std::vector<TokenId>(length, 1)}, {.dimensions = dimensions});
      call.tenant = tenant;
      return submit(std::move(call));
    };
    for (int i = 0; i < 200; ++i) many.push_back(add("one", i % n_kinds, 1000));
    gate->wait_for_steps(1);
    auto other = add("two", 1000, 10), same = add("three", 0, 10);
    gate->let(4);
    EXPECT_EQ(other.wait_for(std::chrono::seconds(10)), std::future_status::ready) << n_kinds;
    EXPECT_EQ(same.wait_for(std::chrono::seconds(10)), std::future_status::ready) << n_kinds;
    EXPECT_NE(many.back().wait_for(std::chrono::seconds(0)), std::future_status::ready) << n_kinds;
    gate->let(1 << 30);
    for (auto& one : many) EXPECT_TRUE(one.get());
  }
}

TEST_F(PoolingQueueTest, StopEndsEveryCall) {
  open();
  gate->let(0);
  auto running =
      submit(call_of(std::vector<std::vector<TokenId>>(100, std::vector<TokenId>(500, 2))));
  gate->wait_for_steps(1);
  auto waiting = submit(call_of({{1}}));
  auto stopped = std::async(std::launch::async, [&] { queue->stop(); });
  while (submit(call_of({{1}})).wait_for(std::chrono::seconds(0)) != std::future_status::ready)
    std::this_thread::yield();
  gate->let(1);
  stopped.get();
  EXPECT_EQ(running.get().error().code, ErrorCode::kCancelled);
  EXPECT_EQ(waiting.get().error().code, ErrorCode::kCancelled);
}

// From many threads, of a real model: what each call alone gets.
TEST(PoolingQueue, CallsOfManyThreadsAreWhatTheyAreAlone) {
  EngineConfig config;
  config.model = (tests_dir() / "golden" / "sentences" / "mean_normalized").string();
  config.batch_invariant = true;
  auto model = EmbeddingModel::open(config).value(),
       reference = EmbeddingModel::open(config).value();
  PoolingQueue queue(std::move(model), {});
  std::vector<std::thread> threads;
  std::atomic<int> n_right = 0;
  std::vector<std::vector<std::vector<TokenId>>> inputs;
  std::vector<Vectors> expected;
  for (int t = 0; t < 8; ++t) {
    std::vector<std::vector<TokenId>>& own = inputs.emplace_back();
    for (int i = 0; i <= t; ++i)
      own.push_back(std::vector<TokenId>(static_cast<size_t>(1 + (t * 5 + i * 3) % 20), 5 + t + i));
    expected.push_back(reference->embed(std::vector<Prompt>(own.begin(), own.end())).value());
  }
  for (size_t t = 0; t < inputs.size(); ++t) {
    threads.emplace_back([&, t] {
      for (int round = 0; round < 20; ++round) {
        PoolingCall call{.kind = {},
                         .inputs = inputs[t],
                         .pairs = {},
                         .lengths = {},
                         .deadline = {},
                         .tenant = {}};
        for (const auto& input : call.inputs) call.lengths.push_back(input.size());
        std::promise<Result<Vectors>> promise;
        ASSERT_TRUE(queue.submit(std::move(call),
                                 [&](auto result) { promise.set_value(std::move(result)); }));
        const auto result = promise.get_future().get();
        if (result && *result == expected[t]) ++n_right;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(n_right, 160);
}

}  // namespace
}  // namespace penstock
