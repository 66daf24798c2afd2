// Writes blocks to a folder on a thread of its own. The queue is bounded in bytes; when a write
// fails, it warns and drops what comes for a while.
//
// Any thread; the folder's write() is called from the writer's thread only.
#pragma once
#include <chrono>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <thread>

#include "engine/store/block_store.h"

namespace penstock {

class BlockWriter {
 public:
  // max_bytes: of the images that wait. The store must outlive this.
  BlockWriter(BlockStore& store, int64_t max_bytes);
  // Writes what waits, for kLongestEnd at most.
  ~BlockWriter();

  // Whether an image of this size can be put now.
  bool has_room(int64_t bytes) const;
  // Queues an image, which need not be sealed. Dropped when there is no room. Throws std::bad_alloc
  // and has then queued nothing.
  void put(const BlockKey& key, BlockImage image);
  // Waits until everything is written; false: not within the time.
  bool flush(std::chrono::milliseconds longest);

  struct Counts {
    int64_t blocks = 0, bytes = 0;  // written, or there already
    int64_t dropped = 0;            // blocks: no room in the queue, or failed
  };
  Counts counts() const;

 private:
  static constexpr std::chrono::seconds kLongestEnd{10}, kRest{10};
  struct Item {
    BlockKey key;
    BlockImage image;
  };
  void run();
  void write(Item item);

  BlockStore& store_;
  const int64_t max_bytes_;
  mutable std::mutex mutex_;
  std::condition_variable filled_, emptied_;
  std::deque<Item> items_;
  int64_t bytes_ = 0;  // of items_ and the image that is being written
  bool closed_ = false;
  Counts counts_;
  // no writes until then: one has failed. Writer's thread only.
  std::chrono::steady_clock::time_point rests_until_{};
  std::thread thread_;
};

}  // namespace penstock
