// Prompts whose blocks are read while another engine computes them: all come, some come, none come;
// no text changes, and nobody waits for longer than it is told to.
#include <gtest/gtest.h>
#include <unistd.h>

#include <map>
#include <mutex>

#include "engine/collector.h"
#include "engine/engine_fixture.h"
#include "engine/hung_store.h"
#include "engine/open/open.h"
#include "formats/temp_dir.h"
#include "ops/cache_spec.h"

namespace penstock {
namespace {

using namespace std::chrono_literals;

constexpr double kLong = 30;  // seconds

FakeEngineConfig followed(const TempDir& dir, const std::string& role) {
  FakeEngineConfig config;
  config.engine.role = role;
  config.engine.kv_store = "/given/by/the/test";
  config.store.path = dir.path(), config.store.max_bytes = int64_t{1} << 30;
  return config;
}

Request awaiting(double seconds, int n_tokens = 101) {
  Request request = request_of(prompt_of(n_tokens), 10);
  request.prefill_wait_seconds = seconds;
  return request;
}

// Steps an engine until it is true.
bool steps_until(FakeEngine& fake, const std::function<bool()>& done,
                 std::chrono::seconds longest = 20s) {
  const auto latest = Clock::now() + longest;
  while (!done() && Clock::now() < latest) fake.engine->step();
  return done();
}

const Collected::Sequence& result_of(const std::shared_ptr<Collector>& sink) {
  EXPECT_EQ(sink->n_finished(), 1);
  return sink->result.sequences.at(0);
}

// The decode side reads between the steps of the prefill side. n_least: steps after which it does.
void expect_read_meanwhile(const FakeEngineConfig& changes, int n_least = 3) {
  const TempDir dir;
  FakeEngineConfig one = followed(dir, "prefill"), two = followed(dir, "decode");
  for (FakeEngineConfig* config : {&one, &two}) {
    config->n_blocks = changes.n_blocks, config->windows = changes.windows;
    config->device = changes.device;
  }
  FakeEngine prefill(one, 1), decode(two, 1);
  const Request request = awaiting(kLong);
  const auto prompt = prefill.submit(awaiting(0)), text = decode.submit(request);
  const auto n_read = [&] { return decode.engine->metrics().kv_store_read_blocks.value; };
  int n_times = 0, n_reads = 0;
  for (bool more = true; more;) {
    more = prefill.engine->step();
    prefill.store->writer().flush(10s);
    if (prompt->n_finished() == 0 && prefill.model->n_steps() > n_times) {
      n_times = prefill.model->n_steps();
      const double before = n_read();
      n_reads += steps_until(decode, [&] { return n_read() > before; }, 1s);
    }
    EXPECT_EQ(text->n_finished(), 0);
  }
  EXPECT_GE(n_reads, n_least);
  decode.run();
  EXPECT_EQ(result_of(text).tokens, decode.expected(request));
  // a state is kept where a step ends, and 64 tokens apart at least
  EXPECT_EQ(result_of(text).stats.prefix.store_tokens, changes.windows.size() < 3 ? 100 : 64);
  const Metrics metrics = decode.engine->metrics();
  EXPECT_EQ(metrics.kv_store_followed.value, 1);
  EXPECT_EQ(metrics.kv_store_lost.value, 0);
  EXPECT_EQ(metrics.kv_store_late.value, 0);
  if (changes.windows.size() == 1) {
    EXPECT_EQ(metrics.kv_store_read_blocks.value, 25);
  }
}

TEST(FollowedPrompt, IsReadWhileItIsMade) { expect_read_meanwhile({}); }

TEST(FollowedPrompt, WithWindows) {
  FakeEngineConfig config;
  config.n_blocks = {64, 30};
  config.windows = {0, 10};
  expect_read_meanwhile(config);
}

TEST(FollowedPrompt, WithStates) {
  FakeEngineConfig config;
  config.n_blocks = {64, 30, 20};
  config.windows = {0, 10, kStateWindow};
  expect_read_meanwhile(config, 1);
}

TEST(FollowedPrompt, OfADeviceThatRunsAhead) {
  FakeEngineConfig config;
  config.device = true;
  expect_read_meanwhile(config, 2);
}

TEST(FollowedPrompt, NobodyMakesIt) {
  const TempDir dir;
  FakeEngine decode(followed(dir, "decode"), 1);
  const auto begun = Clock::now();
  const auto text = decode.submit(awaiting(0.2));
  decode.run();
  EXPECT_EQ(result_of(text).tokens, decode.expected(awaiting(0.2)));
  EXPECT_GE(Clock::now() - begun, 200ms);
  EXPECT_LT(Clock::now() - begun, 5s);
  EXPECT_EQ(result_of(text).stats.prefix.store_tokens, 0);
  EXPECT_EQ(decode.engine->metrics().kv_store_lost.value, 1);
}

TEST(FollowedPrompt, WhoMakesItDies) {
  const TempDir dir;
  FakeEngine decode(followed(dir, "decode"), 1);
  const auto text = decode.submit(awaiting(0.3));
  {
    FakeEngine prefill(followed(dir, "prefill"), 1);
    const auto prompt = prefill.submit(awaiting(0));
    EXPECT_TRUE(steps_until(prefill, [&] { return prefill.model->n_steps() == 2; }));
    EXPECT_EQ(prompt->n_finished(), 0);
  }
  decode.run();
  EXPECT_EQ(result_of(text).tokens, decode.expected(awaiting(0)));
  EXPECT_GT(result_of(text).stats.prefix.store_tokens, 30);
  EXPECT_LT(result_of(text).stats.prefix.store_tokens, 100);
  EXPECT_EQ(decode.engine->metrics().kv_store_lost.value, 1);
}

// What is there at once is read at once, and what is known to be complete is not waited for.
TEST(FollowedPrompt, NothingIsMissing) {
  const TempDir dir;
  FakeEngine prefill(followed(dir, "prefill"), 1), decode(followed(dir, "decode"), 1);
  prefill.submit(awaiting(0));
  prefill.run();
  for (int round = 0; round < 2; ++round) {  // from the store, then from memory
    const auto begun = Clock::now();
    const auto text = decode.submit(awaiting(kLong));
    decode.run();
    EXPECT_LT(Clock::now() - begun, 10s);
    EXPECT_EQ(result_of(text).stats.cached_tokens, 100);
  }
  EXPECT_EQ(decode.engine->metrics().kv_store_followed.value, 1);
}

TEST(FollowedPrompt, OthersGoOnMeanwhile) {
  const TempDir dir;
  FakeEngine decode(followed(dir, "decode"), 1);
  const auto waits = decode.submit(awaiting(kLong));
  Request other = request_of(prompt_of(50, 3), 20);
  const auto text = decode.submit(other);
  EXPECT_TRUE(steps_until(decode, [&] { return text->n_finished() == 1; }));
  EXPECT_EQ(result_of(text).tokens, decode.expected(other));
  EXPECT_EQ(waits->n_finished(), 0);
}

TEST(FollowedPrompt, IsCancelledExpiresAndEnds) {
  const TempDir dir;
  auto decode = std::make_unique<FakeEngine>(followed(dir, "decode"), 1);
  decode->engine->start();
  const auto ends = [](const std::shared_ptr<Collector>& sink) {
    for (int i = 0; i < 5000 && sink->n_finished() == 0; ++i) usleep(1000);
    return sink->n_finished() == 1;
  };
  RequestId id{};
  const auto cancelled = decode->submit(awaiting(kLong), &id);
  usleep(50000);
  decode->engine->cancel(id, -1, FinishReason::kAbort);
  EXPECT_TRUE(ends(cancelled));
  Request late = awaiting(kLong);
  late.deadline = Clock::now() + 100ms;
  EXPECT_TRUE(ends(decode->submit(late)));
  const auto last = decode->submit(awaiting(kLong));
  usleep(50000);
  decode->engine->stop();
  EXPECT_EQ(last->n_finished(), 1);
}

TEST(FollowedPrompt, AStoreThatHangsIsLeftInTime) {
  for (const int calls : {HungStore::kContains, HungStore::kRead}) {
    const auto gate = std::make_shared<Gate>();
    FakeEngineConfig config;
    config.longest_answer = 20ms;
    config.make_store = [&](BlockImages images) {
      return std::make_shared<HungStore>(std::move(images), gate, calls);
    };
    {
      FakeEngine decode(config, 1);
      decode.engine->start();
      const auto begun = Clock::now();
      const auto text = decode.submit(awaiting(0.2));
      for (int i = 0; i < 20000 && text->n_finished() == 0; ++i) usleep(1000);
      EXPECT_LT(Clock::now() - begun, 10s);
      decode.engine->stop();
      EXPECT_EQ(result_of(text).tokens, decode.expected(awaiting(0)));
      EXPECT_EQ(decode.engine->metrics().kv_store_late.value, 1);
    }
    gate->open();
  }
}

TEST(FollowedPrompt, SecondsAreChecked) {
  FakeEngine fake;
  for (const double wrong : {-1.0, 60.5, std::numeric_limits<double>::quiet_NaN()})
    EXPECT_EQ(fake.engine->check(awaiting(wrong)).error().code, ErrorCode::kInvalidArgument);
  EXPECT_TRUE(fake.engine->check(awaiting(60)));
}

// --- How long a load follows

// A store in memory, which gets blocks when the test says so.
class MemoryStore final : public BlockStore {
 public:
  explicit MemoryStore(BlockImages images) : images_(std::move(images)) {}
  const BlockImages& images() const override { return images_; }
  bool contains(const BlockKey& key) const override {
    const std::lock_guard lock(mutex_);
    return there_.contains(key.hash.low);
  }
  bool touch(const BlockKey& key) const override { return contains(key); }
  Status read(const BlockKey& key, std::span<const TokenId>, BlockImage& image) const override {
    const std::lock_guard lock(mutex_);
    const auto found = there_.find(key.hash.low);
    if (found == there_.end()) return make_error(ErrorCode::kNotFound, "none");
    image = found->second;
    return {};
  }
  Status write(const BlockKey& key, const BlockImage& image) override {
    const std::lock_guard lock(mutex_);
    there_[key.hash.low] = image;
    return {};
  }

 private:
  const BlockImages images_;
  mutable std::mutex mutex_;
  std::map<uint64_t, BlockImage> there_;
};

class FollowingLoad : public ::testing::Test {
 protected:
  static constexpr int kTokens = 4;
  void put(uint64_t hash) {
    ASSERT_TRUE(
        store_->write({0, {hash, hash}}, store_->images().make({0, {hash, hash}}, tokens_)));
  }
  ChainQuery query(int n, double wait_seconds, double token_seconds, uint64_t first = 0) const {
    ChainQuery query;
    for (int i = 0; i < n; ++i) {
      query.tokens.insert(query.tokens.end(), tokens_.begin(), tokens_.end());
      query.hashes.push_back({first + static_cast<uint64_t>(i), first + static_cast<uint64_t>(i)});
    }
    query.in_memory.emplace_back(static_cast<size_t>(n));
    query.windows = {0};
    query.token_seconds = token_seconds, query.wait_seconds = wait_seconds;
    return query;
  }
  // Waits for the load's end and returns how many blocks it gave.
  int take_all(BlockLoad& load) {
    std::vector<LoadedBlock> blocks;
    const auto latest = Clock::now() + 20s;
    while (loader_.take(load, INT64_MAX, blocks) != BlockLoader::Taken::kLast) {
      if (Clock::now() > latest) return -1;
      usleep(1000);
    }
    return static_cast<int>(blocks.size());
  }
  // Puts blocks, one every so often, while the load follows; returns how many came.
  int fed(int n, double wait_seconds, double token_seconds, std::chrono::milliseconds pause) {
    const auto load = loader_.begin(query(n, wait_seconds, token_seconds));
    std::atomic<bool> ends = false;
    std::thread feeder([&] {
      for (int i = 0; i < n && !ends; ++i) {
        std::this_thread::sleep_for(pause);
        put(static_cast<uint64_t>(i));
      }
    });
    const int n_came = take_all(*load);
    ends = true;
    feeder.join();
    return n_came;
  }
  const std::vector<TokenId> tokens_{1, 2, 3, 4};
  const std::shared_ptr<MemoryStore> store_ =
      std::make_shared<MemoryStore>(BlockImages({1, 2}, kTokens, std::vector<int64_t>{64}));
  BlockLoader loader_{store_, kTokens, 1 << 20};
};

TEST_F(FollowingLoad, TakesAllOfWhoIsSoonerThanComputing) {
  EXPECT_EQ(fed(10, 0.5, 0.1, 30ms), 10);  // 0.3 seconds instead of 4
  EXPECT_EQ(loader_.counts().lost, 0);
}

// Not more than so many seconds later than computing, although blocks come all the time.
TEST_F(FollowingLoad, LeavesWhoIsSlower) {
  const auto begun = Clock::now();
  const int n_came = fed(100, 0.3, 0.001, 50ms);  // 5 seconds instead of 0.4
  EXPECT_GT(n_came, 0);
  EXPECT_LT(n_came, 60);
  EXPECT_LT(Clock::now() - begun, 3s);
  EXPECT_EQ(loader_.counts().lost, 1);
}

// Whoever has stopped is left, although what has come was far sooner than computing.
TEST_F(FollowingLoad, LeavesWhoStops) {
  for (uint64_t i = 0; i < 5; ++i) put(i);
  const auto begun = Clock::now();
  const auto load = loader_.begin(query(10, 0.2, 100));
  EXPECT_EQ(take_all(*load), 5);
  EXPECT_GE(Clock::now() - begun, 200ms);
  EXPECT_LT(Clock::now() - begun, 5s);
}

TEST_F(FollowingLoad, ManyFollowAtOnceAndHoldNobody) {
  std::vector<std::shared_ptr<BlockLoad>> loads;
  for (uint64_t i = 0; i < 100; ++i)
    loads.push_back(loader_.begin(query(3, kLong, 0, 1000 * (i + 1))));
  put(1), put(2), put(3);
  const auto begun = Clock::now();
  EXPECT_EQ(take_all(*loader_.begin(query(3, 0, 0, 1))), 3);
  EXPECT_LT(Clock::now() - begun, 2s);
  for (uint64_t i = 0; i < 100; i += 2) {
    for (uint64_t j = 0; j < 3; ++j) put(1000 * (i + 1) + j);
  }
  for (size_t i = 0; i < 100; i += 2) EXPECT_EQ(take_all(*loads[i]), 3) << i;
  std::vector<LoadedBlock> none;
  for (size_t i = 1; i < 100; i += 2) {
    EXPECT_EQ(loader_.take(*loads[i], 1, none), BlockLoader::Taken::kAll);
    EXPECT_LT(loader_.busy_seconds(*loads[i]), 0);
    loader_.give_up(*loads[i]);
  }
}

}  // namespace
}  // namespace penstock
