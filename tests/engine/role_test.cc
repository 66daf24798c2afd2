// Engines of role prefill: prompts only, which end when the store has their blocks, or when their
// time is up.
#include <gtest/gtest.h>
#include <unistd.h>

#include <atomic>
#include <mutex>
#include <set>

#include "engine/collector.h"
#include "engine/engine_fixture.h"
#include "engine/hung_store.h"
#include "engine/open/open.h"
#include "engine/store/chain_look_up.h"
#include "formats/temp_dir.h"
#include "ops/cache_spec.h"

namespace penstock {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

FakeEngineConfig with_role(const std::string& role, FakeEngineConfig config = {}) {
  config.engine.role = role;
  config.engine.kv_store = "/given/by/the/test";
  return config;
}

const Collected::Sequence& end_of(const std::shared_ptr<Collector>& sink) {
  EXPECT_EQ(sink->n_finished(), 1);
  return sink->result.sequences.at(0);
}

int stored_of(const std::shared_ptr<Collector>& sink) {
  return end_of(sink).stats.prefix.stored_tokens;
}

// A prefill engine and a decode engine, each alive while the other works.
void expect_handed_over(FakeEngineConfig config) {
  const TempDir dir;
  config.store.path = dir.path(), config.store.max_bytes = int64_t{1} << 30;
  FakeEngine prefill(with_role("prefill", config), 1), decode(with_role("decode", config), 1);
  const Request request = request_of(prompt_of(101), 10);
  const auto sink = prefill.submit(request);
  prefill.run();
  EXPECT_EQ(end_of(sink).finish, FinishReason::kLength);
  EXPECT_TRUE(end_of(sink).tokens.empty());
  EXPECT_EQ(stored_of(sink), 100);
  EXPECT_EQ(prefill.engine->metrics().kv_store_unsettled.value, 0);
  const auto text = decode.submit(request);
  decode.run();
  EXPECT_EQ(end_of(text).tokens, decode.expected(request));
  EXPECT_EQ(end_of(text).stats.cached_tokens, 100);
  EXPECT_EQ(end_of(text).stats.prefix.store_tokens, 100);
  EXPECT_EQ(stored_of(text), -1) << "nobody asked";
}

TEST(Role, APromptIsInTheStoreWhenItEnds) { expect_handed_over({}); }

TEST(Role, WithWindowsAndStates) {
  FakeEngineConfig config;
  config.n_blocks = {64, 30, 20};
  config.windows = {0, 10, kStateWindow};
  config.engine.max_num_batched_tokens = 200;
  expect_handed_over(config);
}

TEST(Role, OfADeviceThatRunsAhead) {
  FakeEngineConfig config;
  config.device = true;
  expect_handed_over(config);
}

// The last block of a prompt that ends with it is not of use: one token is left to compute.
TEST(Role, APromptThatEndsWithABlock) {
  const TempDir dir;
  FakeEngineConfig config;
  config.store.path = dir.path(), config.store.max_bytes = int64_t{1} << 30;
  FakeEngine prefill(with_role("prefill", config), 1);
  const auto whole = prefill.submit(request_of(prompt_of(100), 10)),
             less = prefill.submit(request_of(prompt_of(4, 3), 10));
  prefill.run();
  EXPECT_EQ(stored_of(whole), 96);
  EXPECT_EQ(stored_of(less), -1) << "there is nothing to hand over";
  const auto again = prefill.submit(request_of(prompt_of(100), 10));
  prefill.run();
  EXPECT_EQ(stored_of(again), 96) << "computed before";
}

TEST(Role, SeveralSequencesAndRequests) {
  const TempDir dir;
  FakeEngineConfig config;
  config.n_blocks = {400};
  config.store.path = dir.path(), config.store.max_bytes = int64_t{1} << 30;
  FakeEngine prefill(with_role("prefill", config), 1);
  Request three = request_of(prompt_of(50), 10);
  three.sampling.n = 3;
  const auto sinks = {prefill.submit(three), prefill.submit(request_of(prompt_of(41, 2), 10)),
                      prefill.submit(request_of(prompt_of(77, 3), 10))};
  prefill.run();
  for (const auto& sink : sinks) {
    for (const auto& [index, sequence] : sink->result.sequences) {
      EXPECT_EQ(sequence.n_ends, 1);
      EXPECT_TRUE(sequence.tokens.empty());
    }
  }
  EXPECT_EQ((*sinks.begin())->n_finished(), 3);
  EXPECT_EQ((*sinks.begin())->result.sequences.at(0).stats.prefix.stored_tokens, 48);
}

// --- Stores that are slow, full or dead

struct GatedStore {
  explicit GatedStore(int calls) {
    config.longest_answer = milliseconds(20);
    config.make_store = [gate = gate, calls](BlockImages images) {
      return std::make_shared<HungStore>(std::move(images), gate, calls);
    };
  }
  ~GatedStore() { gate->open(); }
  const std::shared_ptr<Gate> gate = std::make_shared<Gate>();
  FakeEngineConfig config;
};

bool ends_within(const std::shared_ptr<Collector>& sink, milliseconds longest) {
  const auto latest = Clock::now() + longest;
  while (sink->n_finished() == 0 && Clock::now() < latest) usleep(1000);
  return sink->n_finished() == 1;
}

TEST(Role, NobodyIsAnsweredBeforeTheStoreHasIt) {
  const GatedStore store(HungStore::kWrite);
  FakeEngine prefill(with_role("prefill", store.config));
  prefill.engine->start();
  const auto sink = prefill.submit(request_of(prompt_of(101), 10));
  store.gate->wait_for_call();
  EXPECT_FALSE(ends_within(sink, milliseconds(100)));
  store.gate->open();
  EXPECT_TRUE(ends_within(sink, seconds(20)));
  prefill.engine->stop();
  EXPECT_EQ(stored_of(sink), 100);
}

TEST(Role, AStoreThatDoesNotAnswerIsWaitedForASecond) {
  for (const int calls : {HungStore::kWrite, HungStore::kContains}) {
    const GatedStore store(calls);
    FakeEngineConfig config = with_role("prefill", store.config);
    FakeEngine prefill(config);
    prefill.engine->start();
    Request request = request_of(prompt_of(101), 10);
    request.read_prefix_cache = false;  // it is not looked up
    const auto begin = Clock::now();
    const auto sink = prefill.submit(request);
    EXPECT_TRUE(ends_within(sink, seconds(20)));
    EXPECT_GE(Clock::now() - begin, milliseconds(900));
    // others are computed meanwhile, and wait no longer than it
    const auto next = prefill.submit(request_of(prompt_of(3), 10));
    EXPECT_TRUE(ends_within(next, seconds(20))) << "it has no block";
    prefill.engine->stop();
    EXPECT_EQ(stored_of(sink), 0);
    EXPECT_EQ(prefill.engine->metrics().kv_store_unsettled.value, 1);
  }
}

TEST(Role, WhoLeavesIsLetGoAtOnceAndSoIsTheEnd) {
  const GatedStore store(HungStore::kWrite);
  FakeEngine prefill(with_role("prefill", store.config));
  prefill.engine->start();
  RequestId id{};
  const auto sink = prefill.submit(request_of(prompt_of(101), 10), &id);
  store.gate->wait_for_call();
  usleep(100000);
  prefill.engine->cancel(id, -1, FinishReason::kAbort);
  EXPECT_TRUE(ends_within(sink, seconds(20)));
  Request late = request_of(prompt_of(50, 2), 10);
  late.deadline = Clock::now() + milliseconds(200);
  EXPECT_TRUE(ends_within(prefill.submit(late), seconds(20)));
  const auto last = prefill.submit(request_of(prompt_of(101, 3), 10));
  usleep(50000);
  prefill.engine->stop();
  EXPECT_EQ(last->n_finished(), 1);
  EXPECT_EQ(prefill.engine->metrics().kv_store_unsettled.value, 0) << "nobody's time was up";
}

// A store of so many blocks, which refuses the rest.
class SmallStore final : public BlockStore {
 public:
  SmallStore(BlockImages images, size_t most) : images_(std::move(images)), most_(most) {}
  const BlockImages& images() const override { return images_; }
  bool contains(const BlockKey& key) const override {
    const std::lock_guard lock(mutex_);
    return there_.contains({key.group, key.hash.low});
  }
  bool touch(const BlockKey& key) const override { return contains(key); }
  Status read(const BlockKey&, std::span<const TokenId>, BlockImage&) const override {
    return make_error(ErrorCode::kNotFound, "none");
  }
  Status write(const BlockKey& key, const BlockImage&) override {
    const std::lock_guard lock(mutex_);
    if (there_.size() == most_) return make_error(ErrorCode::kResourceExhausted, "it is full");
    there_.insert({key.group, key.hash.low});
    return {};
  }

 private:
  const BlockImages images_;
  const size_t most_;
  mutable std::mutex mutex_;
  std::set<std::pair<int, uint64_t>> there_;
};

TEST(Role, AFullStoreIsToldAtOnce) {
  FakeEngineConfig config;
  config.make_store = [](BlockImages images) {
    return std::make_shared<SmallStore>(std::move(images), 10);
  };
  FakeEngine prefill(with_role("prefill", config));
  const auto sink = prefill.submit(request_of(prompt_of(101), 10));
  prefill.run();
  EXPECT_EQ(stored_of(sink), 40) << "0 when its time is up";
  EXPECT_EQ(prefill.engine->metrics().kv_store_unsettled.value, 1);
}

TEST(Role, AnEngineThatEndsHoldsNobody) {
  const GatedStore store(HungStore::kWrite);
  auto prefill = std::make_unique<FakeEngine>(with_role("prefill", store.config));
  const auto sink = prefill->submit(request_of(prompt_of(101), 10));
  for (int i = 0; i < 20; ++i) prefill->engine->step();
  EXPECT_EQ(sink->n_finished(), 0);
  prefill.reset();
  EXPECT_EQ(sink->n_finished(), 1);
}

// --- Settings

TEST(Role, NeedsAStoreAndAName) {
  EngineConfig config;
  config.role = "prefill";
  const auto refused = resolve_preset(config);
  ASSERT_FALSE(refused);
  EXPECT_NE(refused.error().message.find("role: prefill needs a kv_store"), std::string::npos);
  config.kv_store = "/tmp/penstock";
  EXPECT_TRUE(resolve_preset(config));
  config.role = "decoding";
  EXPECT_NE(resolve_preset(config).error().message.find("got 'decoding'"), std::string::npos);
}

TEST(Role, WhatNeedsMoreThanThePromptIsRefused) {
  const TempDir dir;
  FakeEngineConfig config;
  config.store.path = dir.path(), config.store.max_bytes = int64_t{1} << 30;
  FakeEngine prefill(with_role("prefill", config));
  Request beams = request_of(prompt_of(20), 4), rows = beams;
  beams.sampling.use_beam_search = true;
  rows.sampling.prompt_logprobs = 1;
  for (const auto& [request, name] :
       {std::pair(&beams, "use_beam_search: "), std::pair(&rows, "prompt_logprobs: ")}) {
    const Status checked = prefill.engine->check(*request);
    ASSERT_FALSE(checked);
    EXPECT_EQ(checked.error().code, ErrorCode::kUnsupported);
    EXPECT_EQ(checked.error().message.find(name), 0u) << checked.error().message;
  }
}

// --- The parts

TEST(BlockWriterQuestions, AreAskedBehindWhatWasPut) {
  const BlockImages images({1, 2}, 4, std::vector<int64_t>{64});
  const auto store = std::make_shared<SmallStore>(images, 100);
  BlockWriter writer(store, 1 << 20);
  std::atomic<int> n_told{0}, n_found{-1};
  writer.on_room([&] { ++n_told; });
  const std::vector<TokenId> tokens{1, 2, 3, 4};
  for (uint64_t i = 0; i < 3; ++i) writer.put({0, {i, i}}, images.make({0, {i, i}}, tokens));
  writer.ask([&](const BlockStore& asked) {
    int n = 0;
    for (uint64_t i = 0; i < 5; ++i) n += asked.contains_far({0, {i, i}});
    n_found = n;
  });
  EXPECT_TRUE(writer.flush(seconds(20)));
  for (int i = 0; i < 20000 && n_told == 0; ++i) usleep(1000);
  EXPECT_EQ(n_found, 3);
  EXPECT_EQ(n_told, 1);
  EXPECT_EQ(writer.counts().blocks, 3);
}

TEST(ChainLookUp, NeedsAllGroupsBehindAPrefix) {
  ChainQuery query;
  for (uint64_t i = 0; i < 6; ++i) query.hashes.push_back({i, i});
  query.windows = {0, 5, kStateWindow};
  query.in_memory.assign(3, std::vector<bool>(6));
  std::set<std::pair<int, uint64_t>> there;
  std::vector<WantedBlock> wanted;
  int n_asked = 0;
  const auto look_up = [&] {
    n_asked = 0;
    return look_up_chain(
        query, 4,
        [&](const BlockKey& key) {
          ++n_asked;
          return there.contains({key.group, key.hash.low});
        },
        wanted);
  };
  EXPECT_EQ(look_up(), 0);
  EXPECT_EQ(n_asked, 1);
  for (uint64_t i = 0; i < 5; ++i) there.insert({0, i});
  EXPECT_EQ(look_up(), 0) << "without a state";
  there.insert({2, 3});
  EXPECT_EQ(look_up(), 0) << "without the window";
  there.insert({1, 3});
  EXPECT_EQ(look_up(), 4);
  EXPECT_EQ(wanted.size(), 4u + 1 + 1);
  query.in_memory[0][1] = true;
  EXPECT_EQ(look_up(), 4);
  EXPECT_EQ(wanted.size(), 5u);
  EXPECT_LE(n_asked, 18) << "once for each block";
}

}  // namespace
}  // namespace penstock
