#include "server/replies/cache/reply_cache.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <unistd.h>

#include <rapidcheck/gtest.h>
#include <filesystem>
#include <fstream>

#include "server/replies/cache/reply_record.h"

namespace penstock {
namespace {

namespace fs = std::filesystem;

int64_t test_time = 1000;
int64_t test_clock() { return test_time; }

OwnedEvent token_event(TokenId token, FinishReason finish = FinishReason::kNone, int index = 0) {
  OwnedEvent event;
  event.index = index;
  event.token = token;
  event.logprob = {token, -0.5f, 1};
  event.finish = finish;
  if (finish != FinishReason::kNone) event.end = std::make_unique<OwnedEvent::End>();
  return event;
}

std::string record_of(int n_tokens) {
  ReplyRecorder recorder(false, 1 << 20);
  for (int i = 0; i < n_tokens; ++i)
    recorder.add(0, token_event(i, i + 1 < n_tokens ? FinishReason::kNone : FinishReason::kLength));
  return recorder.take();
}

TEST(ReplyRecord, GivesBackWhatWasTold) {
  ReplyRecorder recorder(true, 1 << 20);
  OwnedEvent first = token_event(70000, FinishReason::kNone, 1);
  first.alternatives = {{3, -1.5f, 2}, {5, -2.5f, 3}};
  recorder.add(2, first);
  OwnedEvent last = token_event(kNoToken, FinishReason::kStop);
  last.stop_token = 2;
  recorder.add(0, last);
  ASSERT_TRUE(recorder.good());
  const std::string bytes = recorder.take();
  ReplyReader reader(bytes);
  OwnedEvent event;
  int prompt = -1;
  ASSERT_TRUE(reader.next(prompt, event));
  EXPECT_EQ(prompt, 2);
  EXPECT_EQ(event.index, 1);
  EXPECT_EQ(event.token, 70000);
  EXPECT_EQ(event.logprob.logprob, -0.5f);
  ASSERT_EQ(event.alternatives.size(), 2u);
  EXPECT_EQ(event.alternatives[1].token, 5);
  EXPECT_EQ(event.alternatives[1].rank, 3);
  EXPECT_EQ(event.end, nullptr);
  ASSERT_TRUE(reader.next(prompt, event));
  EXPECT_EQ(prompt, 0);
  EXPECT_EQ(event.token, kNoToken);
  EXPECT_EQ(event.finish, FinishReason::kStop);
  EXPECT_EQ(event.stop_token, 2);
  EXPECT_NE(event.end, nullptr);
  EXPECT_FALSE(reader.next(prompt, event));
  EXPECT_FALSE(reader.damaged());
}

TEST(ReplyRecord, IsNoneOfWhatFailedOrIsTooLong) {
  ReplyRecorder failed(false, 1 << 20);
  OwnedEvent event = token_event(1, FinishReason::kError);
  failed.add(0, event);
  EXPECT_FALSE(failed.good());
  ReplyRecorder left(false, 1 << 20);
  left.add(0, token_event(1, FinishReason::kAbort));
  EXPECT_FALSE(left.good());
  ReplyRecorder small(false, 8);
  for (int i = 0; i < 8; ++i) small.add(0, token_event(i));
  EXPECT_FALSE(small.good());
}

TEST(ReplyRecord, WholeOnesHaveEveryEnd) {
  EXPECT_TRUE(is_whole_record(record_of(3), 1, 1));
  EXPECT_FALSE(is_whole_record(record_of(3), 2, 1));
  EXPECT_FALSE(is_whole_record(record_of(3), 1, 2));
  std::string twice = record_of(3) + record_of(3);
  EXPECT_FALSE(is_whole_record(twice, 1, 1));
  ReplyRecorder open(false, 1 << 20);
  open.add(0, token_event(1));
  EXPECT_FALSE(is_whole_record(open.take(), 1, 1));
}

RC_GTEST_PROP(ReplyRecord, AnyBytesAreReadToTheirEnd, (const std::string& bytes)) {
  ReplyReader reader(bytes);
  OwnedEvent event;
  int n = 0;
  for (int prompt = 0; reader.next(prompt, event);) ++n;
  RC_ASSERT(n <= static_cast<int>(bytes.size()));
}

class ReplyCacheTest : public ::testing::Test {
 protected:
  void SetUp() override {
    test_time = 1000;
    folder_ = fs::temp_directory_path() / ("reply_cache_" + std::to_string(::getpid()));
    fs::remove_all(folder_);
    fs::create_directories(folder_);
  }
  void TearDown() override { fs::remove_all(folder_); }
  static CachedReply reply(const std::string& key, const std::string& model = "m",
                           size_t size = 10) {
    return {.key = key, .model = model, .record = std::string(size, 'x')};
  }
  std::unique_ptr<ReplyCache> open(ReplyCacheConfig config, bool on_disk = false) {
    auto cache = ReplyCache::open(config, on_disk ? file() : fs::path(), test_clock);
    EXPECT_TRUE(cache.has_value());
    if (on_disk) (*cache)->flush();
    return std::move(*cache);
  }
  fs::path file() const { return folder_ / "cache.db"; }
  fs::path folder_;
};

TEST_F(ReplyCacheTest, FindsWhatWasPutUntilItExpires) {
  auto cache = open({.bytes = 1 << 20, .ttl = 60});
  EXPECT_EQ(cache->find("a", 1000), nullptr);
  cache->put(reply("a"));
  test_time += 59;
  ASSERT_NE(cache->find("a", 1000), nullptr);
  EXPECT_EQ(cache->age_of(*cache->find("a", 1000)), 59);
  EXPECT_EQ(cache->left_of(*cache->find("a", 1000)), 1);
  EXPECT_EQ(cache->find("a", 58), nullptr) << "older than was asked for";
  test_time += 1;
  EXPECT_EQ(cache->find("a", 1000), nullptr);
  EXPECT_EQ(cache->counts().expired, 1);
  EXPECT_EQ(cache->counts().entries, 0);
  EXPECT_EQ(cache->counts().bytes, 0);
}

TEST_F(ReplyCacheTest, TheOneUsedLongestAgoMakesRoom) {
  auto cache = open({.bytes = 1 << 20, .entries = 2});
  cache->put(reply("a"));
  cache->put(reply("b"));
  ASSERT_NE(cache->find("a", 1000), nullptr);
  cache->put(reply("c"));
  EXPECT_EQ(cache->find("b", 1000), nullptr);
  EXPECT_NE(cache->find("a", 1000), nullptr);
  EXPECT_EQ(cache->counts().evicted, 1);
}

TEST_F(ReplyCacheTest, BytesAreBounded) {
  auto cache = open({.bytes = 10000});
  for (int i = 0; i < 100; ++i) {
    cache->put(reply(std::to_string(i), "m", 1000));
    EXPECT_LE(cache->counts().bytes, 10000);
  }
  EXPECT_GE(cache->counts().entries, 7);
  cache->put(reply("large", "m", 20000));
  EXPECT_EQ(cache->find("large", 1000), nullptr);
  EXPECT_EQ(cache->counts().bytes, 0);
}

TEST_F(ReplyCacheTest, ForgetsOneModelOrAll) {
  auto cache = open({.bytes = 1 << 20});
  cache->put(reply("a", "one"));
  cache->put(reply("b", "two"));
  cache->put(reply("c", "two"));
  EXPECT_EQ(cache->forget("two"), 2);
  EXPECT_NE(cache->find("a", 1000), nullptr);
  EXPECT_EQ(cache->find("b", 1000), nullptr);
  EXPECT_EQ(cache->forget(""), 1);
  EXPECT_EQ(cache->counts().forgotten, 3);
}

TEST_F(ReplyCacheTest, StaysOnDisk) {
  const ReplyCacheConfig config{.bytes = 1 << 20, .ttl = 100};
  {
    auto cache = open(config, true);
    cache->put(reply("a"));
    test_time += 50;
    cache->put(reply(std::string("b\0c", 3)));
    cache->put(reply("gone", "other"));
    cache->put(reply("again", "other"));
    cache->flush();
    EXPECT_EQ(cache->forget("other"), 2);
    cache->put(reply("again", "other"));
  }
  test_time += 60;
  auto cache = open(config, true);
  EXPECT_EQ(cache->find("a", 1000), nullptr) << "it has expired meanwhile";
  ASSERT_NE(cache->find(std::string("b\0c", 3), 1000), nullptr);
  EXPECT_EQ(cache->find(std::string("b\0c", 3), 1000)->record, std::string(10, 'x'));
  EXPECT_EQ(cache->find("gone", 1000), nullptr);
  EXPECT_NE(cache->find("again", 1000), nullptr);
  EXPECT_EQ(cache->counts().entries, 2);
}

TEST_F(ReplyCacheTest, ReadsNoMoreThanItMayHold) {
  {
    auto cache = open({.bytes = 1 << 20}, true);
    for (int i = 0; i < 20; ++i) {
      cache->put(reply(std::to_string(i)));
      ++test_time;
    }
  }
  auto cache = open({.bytes = 1 << 20, .entries = 5}, true);
  EXPECT_EQ(cache->counts().entries, 5);
  EXPECT_NE(cache->find("19", 1000), nullptr) << "the newest stay";
}

TEST_F(ReplyCacheTest, FindsByMeaningWithinAScope) {
  auto cache = open({.bytes = 1 << 20, .ttl = 60, .threshold = 0.9});
  const auto put = [&](const std::string& key, const std::string& scope,
                       const std::string& question, std::vector<float> meaning) {
    CachedReply one = reply(key);
    one.scope = scope;
    one.question = question;
    cache->put(std::move(one), std::move(meaning));
  };
  put("a", "s", "What is the capital of France?", {1, 0});
  put("b", "s", "What is the capital of Spain?", {0.99f, 0.14f});
  const auto find = [&](const std::string& scope, std::vector<float> meaning,
                        const std::string& question) {
    return cache->find_near(scope, meaning, question, 1000);
  };
  auto near = find("s", {0.995f, 0.1f}, "Tell me the capital of France");
  ASSERT_NE(near.reply, nullptr);
  EXPECT_EQ(near.reply->key, "a") << "the nearer one is about something else";
  EXPECT_TRUE(near.refused);
  near = find("s", {1, 0}, "Tell me the capital of Italy");
  EXPECT_EQ(near.reply, nullptr);
  EXPECT_TRUE(near.refused);
  near = find("s", {0, 1}, "Tell me the capital of France");
  EXPECT_EQ(near.reply, nullptr);
  EXPECT_FALSE(near.refused);
  EXPECT_NEAR(near.similarity, 0.14, 1e-3);
  EXPECT_EQ(find("t", {1, 0}, "What is the capital of France?").reply, nullptr);
  EXPECT_EQ(find("s", {1, 0, 0}, "What is the capital of France?").reply, nullptr);
  test_time += 60;
  EXPECT_EQ(find("s", {1, 0}, "What is the capital of France?").reply, nullptr);
  EXPECT_EQ(cache->counts().expired, 1) << "the one that would have been given";
}

TEST_F(ReplyCacheTest, MeaningsStayOnDisk) {
  const ReplyCacheConfig config{.bytes = 1 << 20, .ttl = 100, .threshold = 0.9};
  {
    auto cache = open(config, true);
    CachedReply one = reply("a");
    one.scope = "s";
    one.question = "How old is the moon?";
    cache->put(std::move(one), {0.6f, 0.8f});
  }
  auto cache = open(config, true);
  const std::vector<float> meaning = {0.6f, 0.8f};
  EXPECT_NE(cache->find_near("s", meaning, "How old is the moon", 1000).reply, nullptr);
  EXPECT_EQ(cache->forget("m"), 1);
  EXPECT_EQ(cache->find_near("s", meaning, "How old is the moon", 1000).reply, nullptr);
}

// A file of which no reply can be removed: a full disk, say.
class ForgettingTest : public ReplyCacheTest {
 protected:
  static constexpr ReplyCacheConfig kConfig{.bytes = 1 << 20};
  void SetUp() override {
    ReplyCacheTest::SetUp();
    open(kConfig, true)->put(reply("a"));
    cache_ = open(kConfig, true);
    run("CREATE TRIGGER full BEFORE DELETE ON replies BEGIN SELECT RAISE(ABORT, 'full'); END");
    cache_->forget("");
    cache_->flush();
    ASSERT_EQ(n_on_disk(), 1);
  }
  void run(const char* sql) {
    auto database = Database::open_existing(file(), 1);
    ASSERT_TRUE(database.has_value()) << database.error().message;
    const Status done = (*database)->run(sql);
    ASSERT_TRUE(done.has_value()) << done.error().message;
  }
  int64_t n_on_disk() const {
    auto database = Database::open_existing(file(), 1);
    int64_t n = -1;
    const auto take = [&](const DatabaseRow& row) { n = row.integer(0); };
    EXPECT_TRUE((*database)->run("SELECT count(*) FROM replies", {}, take).has_value());
    return n;
  }
  std::unique_ptr<ReplyCache> cache_;
};

TEST_F(ForgettingTest, IsTriedAgainAtTheEnd) {
  run("DROP TRIGGER full");
  cache_.reset();
  EXPECT_TRUE(fs::exists(file()));
  EXPECT_EQ(open(kConfig, true)->counts().entries, 0);
}

TEST_F(ForgettingTest, IsTriedAgainWhenNothingNewComes) {
  run("DROP TRIGGER full");
  for (int i = 0; i < 300 && n_on_disk() > 0; ++i)
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
  EXPECT_EQ(n_on_disk(), 0);
}

TEST_F(ForgettingTest, DeletesTheFileThatKeepsRefusing) {
  cache_.reset();
  EXPECT_FALSE(fs::exists(file()));
  EXPECT_EQ(open(kConfig, true)->counts().entries, 0);
}

TEST_F(ReplyCacheTest, DamagedFileIsRefusedAndLeft) {
  std::ofstream(file()) << "this is no database at all, and long enough to be looked at as one";
  const auto cache = ReplyCache::open({.bytes = 1 << 20}, file(), test_clock);
  ASSERT_FALSE(cache.has_value());
  EXPECT_EQ(cache.error().code, ErrorCode::kCorruptFile);
  EXPECT_TRUE(fs::exists(file()));
}

}  // namespace
}  // namespace penstock
