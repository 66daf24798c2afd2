// Blocks in a real Redis and in ones that are slow, gone, full or lie: what comes back is what was
// written or nothing, within a time and a memory that are bounded.
#include "engine/store/block_redis.h"

#include <gtest/gtest.h>

#include <array>
#include <chrono>

#include "base/memory.h"
#include "engine/engine_fixture.h"
#include "engine/kept_block.h"
#include "engine/redis_server.h"
#include "engine/store/block_folder.h"
#include "engine/store/block_tiers.h"
#include "engine/store/kv_store.h"
#include "formats/temp_dir.h"
#include "support/test_data.h"

namespace penstock {
namespace {

using namespace std::chrono_literals;

TEST(BlockRedis, GivesBackWhatWasWritten) {
  const RedisServer server;
  BlockRedis one(server.address(), redis_images()), other(server.address(), redis_images());
  const BlockRedis stranger(server.address(), redis_images(2));
  for (const Kept& block : {Kept(1), Kept(2), Kept(1, 1)}) {
    BlockImage image;
    EXPECT_EQ(code_of(other.read(block.key, block.tokens, image)), ErrorCode::kNotFound);
    EXPECT_FALSE(other.contains(block.key));
    EXPECT_FALSE(other.touch(block.key));
    ASSERT_TRUE(one.write(block.key, block.image));
    ASSERT_TRUE(one.write(block.key, block.image));
    EXPECT_TRUE(other.contains(block.key));
    EXPECT_TRUE(other.touch(block.key));
    ASSERT_TRUE(other.read(block.key, block.tokens, image));
    EXPECT_EQ(image, block.image);
    EXPECT_FALSE(stranger.contains(block.key));
  }
  EXPECT_EQ(ask(server.address(), {"DBSIZE"})->number, 3);
}

TEST(BlockRedis, DamagedBlocksAreRemoved) {
  const RedisServer server;
  BlockRedis store(server.address(), redis_images());
  const Kept block(1, 1);
  const auto change = [&](std::vector<std::string_view> words) {
    EXPECT_TRUE(store.write(block.key, block.image));
    std::string name(ask(server.address(), {"RANDOMKEY"})->text);
    words.insert(words.begin() + 1, name);
    EXPECT_TRUE(ask(server.address(), words));
    BlockImage image;
    EXPECT_EQ(code_of(store.read(block.key, block.tokens, image)), ErrorCode::kCorruptFile);
    EXPECT_FALSE(store.contains(block.key));
  };
  change({"SETRANGE", "5", "x"});       // the head
  change({"SETRANGE", "200000", "x"});  // the content
  change({"APPEND", "x"});              // longer
  change({"SET", "x"});                 // cut off
  EXPECT_TRUE(store.write(block.key, block.image));
  BlockImage image;
  EXPECT_EQ(code_of(store.read(block.key, Kept(2).tokens, image)), ErrorCode::kCorruptFile)
      << "of other tokens";
}

TEST(BlockRedis, GoesOnWhenTheServerIsBack) {
  RedisServer server;
  BlockRedis store(server.address(), redis_images(), kImpatient);
  const Kept block(1);
  ASSERT_TRUE(store.write(block.key, block.image));
  server.kill();
  BlockImage image;
  EXPECT_FALSE(store.contains(block.key));
  EXPECT_FALSE(store.read(block.key, block.tokens, image));
  EXPECT_FALSE(store.write(block.key, block.image));
  server.start();
  std::this_thread::sleep_for(kImpatient.rest);
  EXPECT_FALSE(store.contains(block.key)) << "it has forgotten everything";
  EXPECT_TRUE(store.write(block.key, block.image));
  EXPECT_TRUE(store.read(block.key, block.tokens, image));
}

// A server or a router between closes connections that are idle.
TEST(BlockRedis, AConnectionThatWasClosedIsOpenedAgain) {
  const RedisServer server;
  BlockRedis store(server.address(), redis_images(), {.rest = 60s});
  const Kept block(1);
  for (int i = 0; i < 3; ++i) {
    EXPECT_TRUE(store.write(block.key, block.image)) << i;
    BlockImage image;
    EXPECT_TRUE(store.read(block.key, block.tokens, image)) << i;
    EXPECT_EQ(ask(server.address(), {"CLIENT", "KILL", "TYPE", "normal"})->number, 2) << i;
  }
}

TEST(BlockRedis, FullAndForbidden) {
  const RedisServer full({"--maxmemory", "1kb", "--maxmemory-policy", "noeviction"});
  BlockRedis store(full.address(), redis_images());
  EXPECT_EQ(code_of(store.write(Kept(1).key, Kept(1).image)), ErrorCode::kResourceExhausted);

  const RedisServer closed({"--requirepass", "se cret@1"});
  RedisAddress address = closed.address();
  EXPECT_FALSE(BlockRedis(address, redis_images()).ping());
  address.password = "wrong";
  EXPECT_FALSE(BlockRedis(address, redis_images()).ping());
  address.password = "se cret@1";
  EXPECT_TRUE(BlockRedis(address, redis_images()).ping());
  address.user = "default";
  address.database = 3;
  BlockRedis third(address, redis_images());
  EXPECT_TRUE(third.write(Kept(1).key, Kept(1).image));
  address.database = 4;
  EXPECT_FALSE(BlockRedis(address, redis_images()).contains(Kept(1).key));
  address.database = 3;
  bool found = false;  // a busy machine may miss a look-up's deadline
  for (int i = 0; i < 50 && !found; ++i)
    found = BlockRedis(address, redis_images()).contains(Kept(1).key);
  EXPECT_TRUE(found);
  address.database = 99;  // there are 16
  EXPECT_FALSE(BlockRedis(address, redis_images()).ping());
}

// An error is the answer to one command: the line stays, and is asked the next.
TEST(BlockRedis, ForbiddenCommandsDoNotKeepFromOthers) {
  const RedisServer server;
  const Kept one(1), two(2);
  ASSERT_TRUE(BlockRedis(server.address(), redis_images()).write(one.key, one.image));
  ASSERT_TRUE(ask(server.address(), {"ACL", "SETUSER", "reader", "on", ">pw", "~*", "+getrange",
                                     "+exists", "+touch", "+ping"}));
  RedisAddress address = server.address();
  address.user = "reader", address.password = "pw";
  BlockRedis store(address, redis_images(), {.rest = 60s});
  BlockImage image;
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(code_of(store.write(two.key, two.image)), ErrorCode::kIo) << i;
    EXPECT_TRUE(store.touch(one.key)) << i;
    EXPECT_TRUE(store.read(one.key, one.tokens, image)) << i;
  }
}

// Looking a name up and connecting take a call a moment only, and go on beside.
TEST(BlockRedis, ConnectingHoldsNobody) {
  const FakeRedis fake([](int connection) {
    std::array<char, 65536> bytes{};
    while (recv(connection, bytes.data(), bytes.size(), 0) > 0) {
    }
  });
  RedisAddress address = fake.address();
  address.password = "x";  // whose answer is a part of connecting
  BlockRedis store(address, redis_images(),
                   {.longest_answer = 3s, .longest_connecting = 20ms, .rest = 60s});
  const Kept block(1, 1);
  BlockImage image;
  const auto begun = std::chrono::steady_clock::now();
  for (int i = 0; i < 100; ++i)
    EXPECT_EQ(code_of(store.read(block.key, block.tokens, image)), ErrorCode::kNotFound);
  EXPECT_LT(std::chrono::steady_clock::now() - begun, 2s);
  EXPECT_EQ(fake.n_connections(), 1);
}

// Whatever it says: no block, no memory, and an answer in time.
TEST(BlockRedis, AServerThatLies) {
  const std::string bulk = "$" + std::to_string(redis_images().bytes(0)) + "\r\n";
  const std::string_view lies[] = {"",
                                   "\r\n",
                                   "$",
                                   "$-1\r\n",
                                   "$-2\r\n",
                                   "$5\r\nab",
                                   "$99999999999999999999\r\n",
                                   "$2147483647\r\n",
                                   "*1\r\n$1\r\nx\r\n",
                                   "*2147483647\r\n",
                                   "*-1\r\n",
                                   "+OK\r\n",
                                   "+",
                                   ":1\r\n",
                                   ":99999999999999999999\r\n",
                                   ":\r\n",
                                   "-ERR\r\n",
                                   "-OOM\r\n",
                                   "-MOVED 1 a:1\r\n",
                                   "HTTP/1.1 400 Bad Request\r\n\r\n",
                                   "\xff\xfe\x00\x01",
                                   "%1\r\n+a\r\n+b\r\n",
                                   "_\r\n",
                                   "*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n",
                                   bulk};
  for (const bool endless : {false, true}) {
    for (const std::string_view lie : lies) {
      const FakeRedis fake([&](int connection) {
        std::array<char, 4096> bytes{};
        if (recv(connection, bytes.data(), bytes.size(), 0) <= 0) return;
        send(connection, lie.data(), lie.size(), MSG_NOSIGNAL);
        const std::string more(65536, endless ? '1' : 'x');
        while (endless && send(connection, more.data(), more.size(), MSG_NOSIGNAL) > 0) {
        }
      });
      BlockRedis store(fake.address(), redis_images(), {.longest_answer = 200ms, .rest = 0ms});
      const Kept block(1);
      BlockImage image;
      const int64_t before = resident_memory();
      EXPECT_FALSE(store.read(block.key, block.tokens, image)) << lie;
      EXPECT_LT(resident_memory() - before, 16 << 20) << lie;
    }
  }
}

TEST(BlockRedis, AServerThatIsSlow) {
  const auto never = [](int connection) {
    std::array<char, 65536> bytes{};
    while (recv(connection, bytes.data(), bytes.size(), 0) > 0) {
    }
  };
  const auto drop_by_drop = [](int connection) {
    std::array<char, 65536> bytes{};
    recv(connection, bytes.data(), bytes.size(), 0);
    const char head[] = "$300000\r\n";
    send(connection, head, sizeof(head) - 1, MSG_NOSIGNAL);
    while (send(connection, "x", 1, MSG_NOSIGNAL) == 1) usleep(5000);
  };
  for (const auto& how :
       {std::function<void(int)>(never), std::function<void(int)>(drop_by_drop)}) {
    const FakeRedis fake(how);
    BlockRedis store(fake.address(), redis_images(), {.longest_answer = 100ms, .rest = 60s});
    const Kept block(1, 1);
    BlockImage image;
    const auto begun = std::chrono::steady_clock::now();
    EXPECT_EQ(code_of(store.read(block.key, block.tokens, image)), ErrorCode::kIo);
    for (int i = 0; i < 1000; ++i) {
      EXPECT_FALSE(store.contains(block.key));
      EXPECT_EQ(code_of(store.read(block.key, block.tokens, image)), ErrorCode::kNotFound);
    }
    EXPECT_LT(std::chrono::steady_clock::now() - begun, 5s);  // 0.1 of it is waiting
    EXPECT_EQ(fake.n_connections(), 1);
  }
}

TEST(BlockRedis, Addresses) {
  const auto parsed = [](const std::string& url) { return parse_redis(url).value(); };
  EXPECT_EQ(parsed("redis://a").name(), "a:6379");
  EXPECT_EQ(parsed("redis://a/").name(), "a:6379");
  EXPECT_EQ(parsed("redis://[::1]:7/2").name(), "[::1]:7");
  EXPECT_EQ(parsed("redis://[::1]/2").database, 2);
  const RedisAddress full = parsed("redis://me:p%40%2Fs:s@cache.local:7000/12");
  EXPECT_EQ(full.user, "me");
  EXPECT_EQ(full.password, "p@/s:s");
  EXPECT_EQ(full.host, "cache.local");
  EXPECT_EQ(full.port, 7000);
  EXPECT_EQ(full.database, 12);
  EXPECT_EQ(parsed("redis://:secret@a").user, "");
  const RedisAddress cluster = parsed("rediss://:p@a,[::1]:7,c:8/3?ca=/x%20y/ca.pem&cert=c&key=k");
  EXPECT_TRUE(cluster.encrypted);
  EXPECT_EQ(cluster.name(), "a:6379");
  EXPECT_EQ(cluster.others, (std::vector<RedisHost>{{"::1", 7}, {"c", 8}}));
  EXPECT_EQ(cluster.database, 3);
  EXPECT_EQ(cluster.tls.authorities, "/x y/ca.pem");
  EXPECT_EQ(cluster.tls.certificate, "c");
  EXPECT_EQ(cluster.tls.key, "k");
  EXPECT_FALSE(parsed("redis://a").encrypted);
  for (const char* wrong : {"redis://",          "redis:///1",       "redis://:1",
                            "redis://a:0",       "redis://a:65536",  "redis://a:x",
                            "redis://a:1x",      "redis://a/x",      "redis://a/-1",
                            "redis://me@a",      "redis://me:@a",    "redis://:%4@a",
                            "redis://:%zz@a",    "redis://[::1",     "redis://[::1]x",
                            "http://a",          "redis://a,,b",     "redis://a,b:0",
                            "redis://a?ca=x",    "rediss://a?ca=",   "rediss://a?ca=x&ca=y",
                            "rediss://a?cert=x", "rediss://a?key=x", "rediss://a?verify=none",
                            "rediss://"}) {
    const auto address = parse_redis(wrong);
    EXPECT_FALSE(address.has_value()) << wrong;
  }
  for (const char* wrong : {"redis://me:secret@a:x", "redis://secret@a"})
    EXPECT_EQ(parse_redis(wrong).error().message.find("secret"), std::string::npos);
}

TEST(BlockRedis, Specifications) {
  const KvStoreSpec both = parse_kv_store("/cache:20M,redis://a:1").value();
  EXPECT_EQ(both.path, "/cache");
  EXPECT_EQ(both.max_bytes, 20 << 20);
  EXPECT_EQ(both.redis->name(), "a:1");
  EXPECT_EQ(parse_kv_store("/cache,redis://:x,redis://y@a:1").value().redis->password,
            "x,redis://y");
  EXPECT_TRUE(parse_kv_store("redis://a").value().path.empty());
  EXPECT_EQ(parse_kv_store("/a,b").value().path, "/a,b");
  EXPECT_TRUE(parse_kv_store("/cache,rediss://a").value().redis->encrypted);
  setenv("PENSTOCK_REDIS_PASSWORD", "from there", 1);
  EXPECT_EQ(parse_kv_store("redis://a").value().redis->password, "from there");
  EXPECT_EQ(parse_kv_store("redis://:x@a").value().redis->password, "x");
  EXPECT_EQ(parse_kv_store("redis://me@a").value().redis->user, "me");
  EXPECT_EQ(parse_kv_store("redis://me@a").value().redis->password, "from there");
  EXPECT_FALSE(parse_kv_store("redis://me:@a").has_value());
  unsetenv("PENSTOCK_REDIS_PASSWORD");
  EXPECT_EQ(parse_kv_store("redis://a").value().redis->password, "");
  for (const char* wrong : {",redis://a", "/cache:1,redis://a", "/cache,redis://", "redis://a:x"})
    EXPECT_FALSE(parse_kv_store(wrong).has_value()) << wrong;
  for (const char* wrong : {"valkey://:secret@a:6379", "/c:20G, redis://:secret@a:6379"}) {
    const auto spec = parse_kv_store(wrong);
    ASSERT_FALSE(spec.has_value()) << wrong;
    EXPECT_EQ(spec.error().message.find("secret"), std::string::npos) << spec.error().message;
  }
}

TEST(BlockTiers, TheNearOneFirst) {
  const TempDir dir;
  RedisServer server;
  const auto folder = std::make_shared<BlockFolder>(
      BlockFolder::open(dir.path(), int64_t{1} << 30, redis_images()).value());
  const auto redis = std::make_shared<BlockRedis>(server.address(), redis_images(), kImpatient);
  BlockTiers tiers({folder, redis});
  const Kept one(1), two(2), three(3);
  BlockImage image;
  ASSERT_TRUE(tiers.write(one.key, one.image));
  EXPECT_TRUE(folder->contains(one.key));
  EXPECT_TRUE(redis->contains(one.key));
  ASSERT_TRUE(redis->write(two.key, two.image));
  EXPECT_TRUE(tiers.contains(two.key));
  EXPECT_TRUE(tiers.touch(two.key));
  ASSERT_TRUE(tiers.read(two.key, two.tokens, image));
  EXPECT_EQ(image, two.image);
  EXPECT_TRUE(tiers.is_far(two.key));
  EXPECT_FALSE(tiers.is_far(one.key));
  EXPECT_EQ(code_of(tiers.read(three.key, three.tokens, image)), ErrorCode::kNotFound);
  server.kill();
  ASSERT_TRUE(tiers.write(three.key, three.image)) << "the folder has it";
  ASSERT_TRUE(tiers.read(three.key, three.tokens, image));
  EXPECT_EQ(image, three.image);
  EXPECT_FALSE(tiers.contains(two.key));
}

// The texts of an engine with Redis as its store, alone and behind a folder; with one that is killed
// and comes back empty.
TEST(BlockRedis, ChangesNoText) {
  const TempDir dir, models;
  RedisServer server;
  for (const std::string& folder : {std::string(), dir.path().string() + ":64M,"}) {
    EngineConfig config;
    config.model = (tests_dir() / "golden/models/qwen3_next").string();
    config.batch_invariant = true;
    config.threads = 1;
    config.max_num_seqs = 4;
    config.state_snapshot_interval = 16;
    std::vector<std::vector<TokenId>> expected;
    for (int round = 0; round < 4; ++round) {
      if (round == 2) {  // another machine, with a copy of the model
        const std::filesystem::path copy = models / ("copy" + std::to_string(folder.size()));
        std::filesystem::copy(config.model, copy, std::filesystem::copy_options::recursive);
        config.model = copy.string();
      }
      if (round > 0) config.kv_store = folder + "redis://" + server.address().name();
      auto engine = Engine::open(config);
      ASSERT_TRUE(engine.has_value()) << engine.error().message;
      if (round == 3) server.kill();
      std::vector<Request> requests;
      for (int i = 0; i < 6; ++i)
        requests.push_back(
            request_of(prompt_of(60 + 7 * i, i % 2, (*engine)->info().vocab_size), 8, i));
      std::vector<std::vector<TokenId>> texts;
      for (const Request& request : requests) {
        const auto sink = std::make_shared<Collector>();
        ASSERT_TRUE((*engine)->submit(request, sink));
        while ((*engine)->step()) {
        }
        texts.push_back(sink->result.sequences.at(0).tokens);
      }
      if (round == 0) expected = texts;
      EXPECT_EQ(texts, expected) << folder << " round " << round;
      const Metrics metrics = (*engine)->metrics();
      EXPECT_EQ(metrics.kv_store_damaged_blocks.value, 0);
      if (round == 2) {
        EXPECT_GT(metrics.kv_store_read_blocks.value, 0);
      }
    }
    server.start();
  }
}

// Blocks that another machine put into Redis are on this one's disk when Redis is gone.
TEST(BlockRedis, WhatOnlyItHasIsStoredNear) {
  const TempDir first, second;
  RedisServer server;
  EngineConfig config;
  config.model = (tests_dir() / "golden/models/llama3").string();
  config.batch_invariant = true;
  config.threads = 1;
  std::vector<TokenId> expected;
  const auto run = [&](const std::string& store) {
    config.kv_store = store;
    auto engine = Engine::open(config).value();
    const auto sink = std::make_shared<Collector>();
    EXPECT_TRUE(engine->submit(request_of(prompt_of(96, 0, engine->info().vocab_size), 4), sink));
    while (engine->step()) {
    }
    const std::vector<TokenId>& text = sink->result.sequences.at(0).tokens;
    if (expected.empty()) expected = text;
    EXPECT_EQ(text, expected);
    return engine->metrics().kv_store_read_blocks.value;
  };
  const std::string redis = ",redis://" + server.address().name();
  EXPECT_EQ(run(first.path().string() + ":64M" + redis), 0);
  EXPECT_GT(run(second.path().string() + ":64M" + redis), 0);
  server.kill();
  EXPECT_GT(run(second.path().string() + ":64M" + redis), 0);
}

}  // namespace
}  // namespace penstock
