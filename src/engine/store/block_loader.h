// Looks chains of blocks up in a folder and reads them, on a thread of its own.
//
// A load is asked for by the engine, which takes its blocks as they come and may give it up at any
// time. What was read and not taken yet is bounded in bytes. Any thread.
#pragma once
#include <chrono>
#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "engine/store/block_store.h"

namespace penstock {

// The chain of a sequence, and what the memory has of it.
struct ChainQuery {
  std::vector<TokenId> tokens;    // [>= hashes.size() * block_size]
  std::vector<BlockHash> hashes;  // of the blocks that may be used
  // [n_groups][hashes.size()] whether the block is in memory
  std::vector<std::vector<bool>> in_memory;
  // leading blocks from which the sequence can go on by what is in memory alone
  int n_found = 0;
  // [n_groups] tokens that are needed behind a prefix: 0 = all, kStateWindow = the last block only
  std::vector<int> windows;
  // seconds that computing takes for each token; 0: not known
  double token_seconds = 0;
};

struct LoadedBlock {
  BlockKey key;
  int index = 0;  // in the chain
  BlockImage image;
};

class BlockLoad;

class BlockLoader {
 public:
  // max_bytes: of the blocks that were read and not taken yet. The store must outlive this.
  BlockLoader(const BlockStore& store, int block_size, int64_t max_bytes);
  ~BlockLoader();

  // `call` is called from the loader's thread whenever take() has something new to tell.
  void on_progress(std::function<void()> call);
  // Begins to look a chain up and to read those of its blocks that are not in memory. Throws
  // std::bad_alloc.
  std::shared_ptr<BlockLoad> begin(ChainQuery query);
  // Moves blocks that were read, up to about max_bytes of them, to `blocks`. Returns whether there
  // will be no more.
  bool take(BlockLoad& load, int64_t max_bytes, std::vector<LoadedBlock>& blocks);
  // Seconds since the load was begun, without those in which it waited for take().
  double busy_seconds(const BlockLoad& load) const;
  // Gives a load up. Its blocks that were not taken are dropped. late: nobody waits any longer for
  // the disk.
  void give_up(BlockLoad& load, bool late = false);
  // Whether a load that was late still occupies the thread: the disk does not answer.
  bool hangs() const;

  struct Counts {
    int64_t queries = 0;            // loads that were begun
    int64_t blocks = 0, bytes = 0;  // read
    int64_t misses = 0;             // loads for which nothing was found
    int64_t refused = 0;            // loads that would have taken longer than computing
    int64_t damaged = 0;            // blocks
  };
  Counts counts() const;

 private:
  using SteadyClock = std::chrono::steady_clock;
  struct Want {
    BlockKey key;
    int index;
  };
  void run();
  void load(BlockLoad& load);
  std::vector<Want> look_up(const ChainQuery& query, int& n_found) const;
  bool pays(const ChainQuery& query, int n_found, std::span<const Want> wanted);
  // Reads a block; false: the load ends.
  bool read(BlockLoad& load, const Want& want);

  const BlockStore& store_;
  const int block_size_;
  const int64_t max_bytes_;
  mutable std::mutex mutex_;
  std::condition_variable asked_, taken_;
  std::deque<std::shared_ptr<BlockLoad>> waiting_;
  std::shared_ptr<BlockLoad> current_;
  std::function<void()> on_progress_;
  int64_t staged_ = 0;  // bytes that were read and not taken
  bool closed_ = false;
  Counts counts_;
  // Measured seconds for a byte, looking up included; 0: not known. Loader's thread only.
  double byte_seconds_ = 0;
  std::thread thread_;
};

}  // namespace penstock
