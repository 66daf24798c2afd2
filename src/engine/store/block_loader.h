// Looks chains of blocks up in a store and reads them, on a thread of its own.
//
// A load is asked for by the engine, which takes its blocks as they come and may give it up at any
// time. What was read and not taken yet is bounded in bytes. No call waits for the store: one that
// does not answer holds its thread only. Any thread.
//
// A load with ChainQuery::wait_seconds follows an engine that computes the chain and writes it
// meanwhile: it is looked up again and again, beside other loads, and what has come is read. It ends
// without the rest when nothing has come for wait_seconds, or when it has taken longer, by
// wait_seconds, than computing what has come: so whoever computes the rest then is later by
// wait_seconds at most than if it had computed everything. Of layers with a window or a state, blocks
// are read only behind the last token that is found.
#pragma once
#include <chrono>
#include <functional>
#include <memory>
#include <vector>

#include "engine/store/block_store.h"
#include "engine/store/chain_look_up.h"
#include "engine/store/lone_thread.h"

namespace penstock {

struct LoadedBlock {
  BlockKey key;
  int index = 0;  // in the chain
  BlockImage image;
  bool is_far = false;  // BlockStore::is_far()
};

// Share of the time of computing that loading may take; longer loads are computed instead.
inline constexpr double kMostLoadShare = 0.5;

class BlockLoad;

class BlockLoader {
 public:
  // max_bytes: of the blocks that were read and not taken yet. longest_end: what the destructor
  // waits for the store at most.
  BlockLoader(std::shared_ptr<const BlockStore> store, int block_size, int64_t max_bytes,
              std::chrono::milliseconds longest_end = std::chrono::seconds(3));
  ~BlockLoader();
  // Bounds what the destructor waits further.
  void end_by(std::chrono::steady_clock::time_point latest) { latest_end_ = latest; }

  // `call` is called, on any thread, whenever take() has something new to tell. It is not called
  // any more when on_progress() returns with another.
  void on_progress(std::function<void()> call);
  // Begins to look a chain up and to read those of its blocks that are not in memory. Throws
  // std::bad_alloc.
  std::shared_ptr<BlockLoad> begin(ChainQuery query);

  enum class Taken : uint8_t {
    kAll,   // of what there is now
    kSome,  // more can be taken at once
    kLast,  // there will be no more
  };
  // Moves blocks that were read, up to about max_bytes > 0 of them, to `blocks`.
  Taken take(BlockLoad& load, int64_t max_bytes, std::vector<LoadedBlock>& blocks);
  // Seconds since the load was begun, without those in which it waited for take(), and those for
  // which it may follow another engine; below 0: while it may.
  double busy_seconds(const BlockLoad& load) const;
  // Gives a load up. Its blocks that were not taken are dropped. late: it was waited for too long.
  void give_up(BlockLoad& load, bool late = false);
  // Whether the store does not answer: the thread is still at a load that was late, or at one that
  // was given up and that made another late.
  bool hangs() const;

  struct Counts {
    int64_t queries = 0;            // loads that were begun
    int64_t blocks = 0, bytes = 0;  // read
    int64_t misses = 0;             // loads for which nothing was found
    int64_t refused = 0;            // loads that would have taken longer than computing
    int64_t damaged = 0;            // blocks
    int64_t followed = 0;           // loads that followed another engine
    int64_t lost = 0;               // of these, which ended without all blocks
  };
  Counts counts() const;

 private:
  class Reader;

  const std::shared_ptr<Reader> reader_;
  const std::chrono::milliseconds longest_end_;
  std::chrono::steady_clock::time_point latest_end_ = std::chrono::steady_clock::time_point::max();
  LoneThread thread_;
};

}  // namespace penstock
