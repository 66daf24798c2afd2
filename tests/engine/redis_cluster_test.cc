// Blocks in a real Redis Cluster of three nodes, while slots move and nodes die.
#include "engine/store/redis_cluster.h"

#include <gtest/gtest.h>

#include <array>
#include <chrono>
#include <set>

#include "engine/kept_block.h"
#include "engine/redis_server.h"
#include "engine/store/block_redis.h"
#include "formats/temp_dir.h"

namespace penstock {
namespace {

using namespace std::chrono_literals;

// Calls `done` until it is true, for 30 seconds at most.
bool comes_true(const std::function<bool()>& done) {
  const auto latest = std::chrono::steady_clock::now() + 30s;
  while (!done()) {
    if (std::chrono::steady_clock::now() > latest) return false;
    usleep(20000);
  }
  return true;
}

class TestCluster {
 public:
  // Nodes 0 to 2 divide the slots; those behind are replicas of node 0.
  explicit TestCluster(int n_nodes = 3) {
    for (int i = 0; i < n_nodes; ++i) {
      bus_ports_.push_back(Listener().address().port);
      const std::filesystem::path folder = dir_ / std::to_string(i);
      std::filesystem::create_directory(folder);
      nodes_.push_back(std::make_unique<RedisServer>(std::vector<std::string>{
          "--dir", folder.string(), "--cluster-enabled", "yes", "--cluster-port",
          std::to_string(bus_ports_.back()), "--cluster-node-timeout", "500",
          "--cluster-require-full-coverage", "no", "--cluster-replica-validity-factor", "0"}));
    }
    constexpr std::array<int, 4> kFirst = {0, 5000, 11000, 16384};
    for (int i = 0; i < 3; ++i) {
      tell(i, {"CLUSTER", "SET-CONFIG-EPOCH", std::to_string(i + 1)});
      tell(i, {"CLUSTER", "ADDSLOTSRANGE", std::to_string(kFirst.at(static_cast<size_t>(i))),
               std::to_string(kFirst.at(static_cast<size_t>(i) + 1) - 1)});
    }
    for (int i = 1; i < n_nodes; ++i) {
      tell(i, {"CLUSTER", "MEET", "127.0.0.1", std::to_string(address(0).port),
               std::to_string(bus_ports_[0])});
    }
    for (int i = 0; i < n_nodes; ++i) EXPECT_TRUE(comes_true([&] { return knows_all(i); })) << i;
    for (int i = 3; i < n_nodes; ++i) {
      tell(i, {"CLUSTER", "REPLICATE", id(0)});
      EXPECT_TRUE(comes_true([&] {
        return text(i, {"INFO", "replication"}).find("master_link_status:up") != std::string::npos;
      }));
    }
  }

  RedisServer& node(int i) { return *nodes_.at(static_cast<size_t>(i)); }
  const RedisAddress& address(int i) { return node(i).address(); }
  std::string id(int i) { return text(i, {"CLUSTER", "MYID"}); }
  std::string text(int i, const std::vector<std::string>& words) {
    const auto reply = ask(address(i), {words.begin(), words.end()});
    return reply ? std::string(reply->text) : "";
  }
  void tell(int i, const std::vector<std::string>& words) {
    const auto reply = ask(address(i), {words.begin(), words.end()});
    EXPECT_TRUE(reply.has_value()) << words[1] << ": " << reply.error().message;
  }
  int64_t n_keys(int i) { return ask(address(i), {"DBSIZE"})->number; }
  // Gives a slot without keys to another node.
  void move_slot(int slot, int to) {
    for (int i : {to, 0, 1, 2})
      tell(i, {"CLUSTER", "SETSLOT", std::to_string(slot), "NODE", id(to)});
  }

 private:
  bool knows_all(int i) {
    const std::string info = text(i, {"CLUSTER", "INFO"});
    return info.find("cluster_state:ok") != std::string::npos &&
           info.find("cluster_slots_assigned:16384") != std::string::npos &&
           info.find("cluster_known_nodes:" + std::to_string(nodes_.size())) != std::string::npos;
  }
  const TempDir dir_;
  std::vector<int> bus_ports_;
  std::vector<std::unique_ptr<RedisServer>> nodes_;
};

// The values that the cluster's specification, and the server itself, give.
TEST(RedisCluster, Slots) {
  EXPECT_EQ(redis_slot("123456789"), 0x31c3 % 16384);
  TestCluster cluster;
  for (const char* key :
       {"", "a", "penstock-kv:1:2.0", "{user}x", "x{user}y", "x{}y", "{", "}{a}"}) {
    const auto slot = ask(cluster.address(0), {"CLUSTER", "KEYSLOT", key});
    ASSERT_TRUE(slot);
    EXPECT_EQ(redis_slot(key), slot->number) << key;
  }
}

TEST(RedisCluster, BlocksAreOnAllNodes) {
  TestCluster cluster;
  BlockRedis one(cluster.address(0), redis_images()), other(cluster.address(2), redis_images());
  constexpr int kBlocks = 200;
  for (int i = 0; i < kBlocks; ++i) ASSERT_TRUE(one.write(Kept(i).key, Kept(i).image)) << i;
  // A busy machine may miss the deadline of the first look-up, which finds the nodes.
  for (int i = 0; i < 50 && !other.contains(Kept(0).key); ++i) {
  }
  for (int i = 0; i < kBlocks; ++i) {
    BlockImage image;
    EXPECT_TRUE(other.contains(Kept(i).key)) << i;
    ASSERT_TRUE(other.read(Kept(i).key, Kept(i).tokens, image)) << i;
    EXPECT_EQ(image, Kept(i).image);
  }
  int64_t n = 0;
  for (int i = 0; i < 3; ++i) {
    EXPECT_GT(cluster.n_keys(i), kBlocks / 10) << i;
    n += cluster.n_keys(i);
  }
  EXPECT_EQ(n, kBlocks);
}

// Redirections become few: a slot's owner is guessed from those of its neighbours.
TEST(RedisCluster, LearnsWhoHasWhat) {
  TestCluster cluster;
  RedisCluster client(cluster.address(0), {.longest_connecting = 1s});
  const auto redirections = [&] {
    int64_t n = 0;
    for (int i = 0; i < 3; ++i) {
      const std::string errors = cluster.text(i, {"INFO", "errorstats"});
      const size_t at = errors.find("errorstat_MOVED:count=");
      if (at != std::string::npos) n += std::stoll(errors.substr(at + 22));
    }
    return n;
  };
  for (int i = 0; i < 2000; ++i) {
    const std::string key = "key " + std::to_string(i);
    const std::array<std::string_view, 2> command = {"EXISTS", key};
    ASSERT_TRUE(client.call(command, 4096)) << i;
  }
  EXPECT_EQ(client.n_nodes(), 3);
  EXPECT_LT(redirections(), 100);
}

TEST(RedisCluster, SlotsThatMove) {
  TestCluster cluster;
  RedisCluster client(cluster.address(0), {.longest_connecting = 1s});
  const auto call = [&](std::vector<std::string_view> command) {
    return client.call(command, 4096);
  };
  const int slot = redis_slot("a");  // of node 2
  ASSERT_GE(slot, 11000);
  ASSERT_TRUE(call({"SET", "a", "old"}));
  cluster.tell(1, {"CLUSTER", "SETSLOT", std::to_string(slot), "IMPORTING", cluster.id(2)});
  cluster.tell(2, {"CLUSTER", "SETSLOT", std::to_string(slot), "MIGRATING", cluster.id(1)});
  EXPECT_EQ(call({"GET", "a"})->text, "old") << "it has not moved";
  cluster.tell(2,
               {"MIGRATE", "127.0.0.1", std::to_string(cluster.address(1).port), "a", "0", "5000"});
  EXPECT_EQ(call({"GET", "a"})->text, "old") << "by ASK";
  ASSERT_TRUE(call({"SET", "a", "new"})) << "by ASK";
  cluster.move_slot(slot, 1);
  EXPECT_EQ(call({"GET", "a"})->text, "new") << "by MOVED";
  EXPECT_EQ(call({"DEL", "a"})->number, 1);
}

TEST(RedisCluster, ANodeThatDiesIsAMiss) {
  TestCluster cluster;
  RedisAddress address = cluster.address(1);
  address.others = {cluster.address(0).at(), cluster.address(2).at()};
  constexpr int kBlocks = 60;
  BlockRedis store(address, redis_images(), {.longest_answer = 300ms, .rest = 60s});
  for (int i = 0; i < kBlocks; ++i) ASSERT_TRUE(store.write(Kept(i).key, Kept(i).image)) << i;
  const int64_t n_lost = cluster.n_keys(1);
  cluster.node(1).kill();
  int64_t n_found = 0;
  const auto begun = std::chrono::steady_clock::now();
  for (int i = 0; i < kBlocks; ++i) {
    BlockImage image;
    n_found += store.read(Kept(i).key, Kept(i).tokens, image).has_value();
  }
  EXPECT_LE(n_found, kBlocks - n_lost);
  EXPECT_GE(n_found, kBlocks - n_lost - 2) << "while it connects";
  EXPECT_LT(std::chrono::steady_clock::now() - begun, 5s);
  // and whoever begins when the first one is gone finds the others
  BlockRedis later(address, redis_images(), {.longest_answer = 300ms, .rest = 60s});
  n_found = 0;
  for (int i = 0; i < kBlocks; ++i) n_found += later.contains(Kept(i).key);
  EXPECT_GE(n_found, kBlocks - n_lost - 2) << "while it connects";
}

TEST(RedisCluster, AReplicaTakesItsPlace) {
  TestCluster cluster(4);
  BlockRedis store(cluster.address(1), redis_images(), kImpatient);
  constexpr int kBlocks = 40;
  for (int i = 0; i < kBlocks; ++i) ASSERT_TRUE(store.write(Kept(i).key, Kept(i).image)) << i;
  ASSERT_GT(cluster.n_keys(0), 0);
  ASSERT_TRUE(comes_true([&] { return cluster.n_keys(3) == cluster.n_keys(0); }));
  cluster.node(0).kill();
  EXPECT_TRUE(comes_true([&] {
    int n_found = 0;
    for (int i = 0; i < kBlocks; ++i) n_found += store.contains(Kept(i).key);
    return n_found == kBlocks;
  }));
}

// Whatever redirections say, a call ends, and connects to no end of nodes.
TEST(RedisCluster, RedirectionsOfAServerThatLies) {
  const Listener listener;  // whose port nobody serves
  const std::string away = "127.0.0.1:" + std::to_string(listener.address().port);
  for (const std::string& lie :
       {std::string("-MOVED 1"), std::string("-MOVED x a:1"), std::string("-MOVED 16384 a:1"),
        std::string("-MOVED -1 a:1"), std::string("-MOVED 1 a"), std::string("-MOVED 1 a:0"),
        std::string("-MOVED 1 :"), std::string("-MOVED 1  :1"), std::string("-ASK 1 [::1:1"),
        "-MOVED 1 " + std::string(1000, 'a') + ":1", "-MOVED 1 " + away, "-ASK 1 " + away,
        std::string("-MOVED 1 SELF"), std::string("-ASK 1 SELF")}) {
    int port = 0;
    const FakeRedis fake([&](int connection) {
      std::array<char, 4096> bytes{};
      while (recv(connection, bytes.data(), bytes.size(), 0) > 0) {
        std::string text = lie;
        if (const size_t at = text.find("SELF"); at != std::string::npos)
          text.replace(at, 4, "127.0.0.1:" + std::to_string(port));
        text += "\r\n";
        if (send(connection, text.data(), text.size(), MSG_NOSIGNAL) <= 0) return;
      }
    });
    port = fake.address().port;
    BlockRedis store(fake.address(), redis_images(), {.longest_answer = 200ms, .rest = 60s});
    const Kept block(1);
    BlockImage image;
    const auto begun = std::chrono::steady_clock::now();
    EXPECT_FALSE(store.read(block.key, block.tokens, image)) << lie;
    EXPECT_LT(std::chrono::steady_clock::now() - begun, 5s) << lie;
  }
}

TEST(RedisCluster, NodesWithoutEndAreRefused) {
  std::atomic<int> next = 1;
  const FakeRedis fake([&](int connection) {
    std::array<char, 4096> bytes{};
    while (recv(connection, bytes.data(), bytes.size(), 0) > 0) {
      const std::string text = "-MOVED 1 127.0.0.1:" + std::to_string(next++) + "\r\n";
      if (send(connection, text.data(), text.size(), MSG_NOSIGNAL) <= 0) return;
    }
  });
  RedisCluster client(fake.address(), {.longest_answer = 200ms, .rest = 60s});
  const std::array<std::string_view, 2> command = {"EXISTS", "a"};
  for (int i = 0; i < 600; ++i) EXPECT_FALSE(client.call(command, 4096));
  EXPECT_LE(client.n_nodes(), 256);
}

}  // namespace
}  // namespace penstock
