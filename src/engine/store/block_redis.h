// Cached blocks in Redis or Valkey, one or a cluster, which several machines share: a string for each
// block, by the key penstock-kv:FINGERPRINT:HASH.GROUP in hexadecimal digits. How many bytes are kept, and which
// blocks go first, is the server's setting (maxmemory, maxmemory-policy allkeys-lru).
//
// A block that is read is compared with its key and tokens, and its checksum is verified. A server
// that does not answer is a miss and a warning, and is not asked for a while (RedisTimes::rest). Any
// thread: reads wait for reads only, and writes for writes.
#pragma once
#include <mutex>

#include "engine/store/block_store.h"
#include "engine/store/redis_cluster.h"

namespace penstock {

class BlockRedis final : public BlockStore {
 public:
  BlockRedis(const RedisAddress& address, BlockImages images, RedisTimes times = {});
  // Asks the server whether it is there. Errors: kIo.
  Status ping() const;

  const BlockImages& images() const override { return images_; }
  bool contains(const BlockKey& key) const override;
  bool touch(const BlockKey& key) const override;
  // A damaged block is removed.
  Status read(const BlockKey& key, std::span<const TokenId> tokens,
              BlockImage& image) const override;
  Status write(const BlockKey& key, const BlockImage& image) override;

 private:
  // A connection and who uses it.
  struct Line {
    std::mutex mutex;
    RedisCluster servers;
  };
  bool counts(Line& line, const char* command, const BlockKey& key) const;
  std::string name_of(const BlockKey& key) const;

  const BlockImages images_;
  mutable Line reads_, writes_;
};

}  // namespace penstock
