// One Redis, or the nodes of a Redis Cluster, which divide 16,384 slots among them: a command goes to
// the node that has the slot of its key.
//
// Who has a slot is learned from the nodes, which say so when another is asked (MOVED, ASK). Of a slot
// that is not known the owner of the nearest one is asked, since slots are given in ranges. The nodes
// that are named get the same user and password, and are reached as the first one is. One that is
// gone is a failed call for its slots; the others are asked who has them meanwhile. One thread at a
// time.
#pragma once
#include <map>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "engine/store/redis_connection.h"

namespace penstock {

// The slot of a key.
int redis_slot(std::string_view key);

class RedisCluster {
 public:
  explicit RedisCluster(const RedisAddress& address, RedisTimes times = {});

  // As RedisConnection::call(); the second word of a command is its key.
  Result<RedisReply> call(std::span<const std::string_view> command, int64_t most);
  // The name of the first address.
  std::string name() const { return address_.name(); }
  int n_nodes() const { return static_cast<int>(nodes_.size()); }

 private:
  struct Elsewhere {
    int slot = 0;
    RedisHost host;
    bool once = false;  // ASK: for this call only
  };
  static Result<Elsewhere> parse(std::string_view text, const RedisHost& from);
  size_t node_for(int slot) const;
  Result<size_t> node_at(const RedisHost& host);
  // Returns a node that owns no slot and rests, in whose place another may be; n_nodes(): none.
  size_t unused() const;
  void forget(size_t node);

  const RedisAddress address_;
  const RedisTimes times_;
  std::vector<std::unique_ptr<RedisConnection>> nodes_;  // first those of the address
  std::map<int, size_t> owners_;                         // of slots, as far as known
};

}  // namespace penstock
