// The store of cached blocks beside an engine, with the threads that read and write it.
#pragma once
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include "engine/store/block_loader.h"
#include "engine/store/block_writer.h"
#include "engine/store/redis_address.h"

namespace penstock {

// Value of EngineConfig::kv_store: what it has is asked in this order.
struct KvStoreSpec {
  int64_t memory_bytes = 0;    // of this machine's memory, for all engines of the process; 0: none
  std::filesystem::path path;  // "": no folder
  int64_t max_bytes = 0;       // of the folder
  std::optional<RedisAddress> redis;

  bool is_empty() const { return memory_bytes == 0 && path.empty() && !redis; }
  // Whether other processes can read what is kept.
  bool is_shared() const { return !path.empty() || redis.has_value(); }
};
// Parses memory:SIZE, PATH[:SIZE], a URL of a Redis (redis_address.h), or several of them in this
// order with commas between them; SIZE is a number of bytes with an optional suffix K, M, G or T, of
// powers of 1024. Where the URL has no password, that of the environment's PENSTOCK_REDIS_PASSWORD
// holds. Errors: kInvalidArgument.
Result<KvStoreSpec> parse_kv_store(const std::string& text);

class KvStore {
 public:
  // Opens all that `spec` names, with spec.memory_bytes for this engine. shares: as in
  // BlockMemory::open. A Redis that does not answer is a warning. Errors: those of BlockMemory::open and
  // BlockFolder::open.
  static Result<std::unique_ptr<KvStore>> open(const KvStoreSpec& spec, const BlockImages& images,
                                               int block_size, std::span<const int> shares);
  // longest_answer: a call of the store that takes longer may be left behind at the end.
  KvStore(std::shared_ptr<BlockStore> blocks, int block_size,
          std::chrono::milliseconds longest_answer = std::chrono::seconds(5));

  // `call` is called, on any thread, when the loader or the writer has something new to tell. It is
  // not called any more when on_news() returns with another.
  void on_news(const std::function<void()>& call) {
    loader_.on_progress(call);
    writer_.on_room(call);
  }

  // Bounds the time that the destructor waits for both of them.
  void end_by(std::chrono::steady_clock::time_point latest) {
    loader_.end_by(latest);
    writer_.end_by(latest);
  }

  const BlockImages& images() const { return blocks_->images(); }
  BlockWriter& writer() { return writer_; }
  BlockLoader& loader() { return loader_; }

 private:
  const std::shared_ptr<BlockStore> blocks_;
  BlockWriter writer_;
  BlockLoader loader_;
};

}  // namespace penstock
