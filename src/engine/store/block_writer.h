// Writes blocks to a store on a thread of its own. The queue is bounded; when a write fails, it
// warns and drops what comes for a while. No call but flush() and the destructor waits for the
// store, and these not for one that does not answer.
//
// Any thread; the store's write() and touch() are called from the writer's thread only.
#pragma once
#include <chrono>
#include <functional>
#include <memory>

#include "engine/store/block_store.h"
#include "engine/store/lone_thread.h"

namespace penstock {

class BlockWriter {
 public:
  // max_bytes: of the images that wait. longest_write: a write that takes longer does not end.
  BlockWriter(std::shared_ptr<BlockStore> store, int64_t max_bytes,
              std::chrono::milliseconds longest_write = std::chrono::seconds(5));
  // Writes what waits, for kLongestEnd at most, or until end_by().
  ~BlockWriter();
  // Bounds what the destructor waits further.
  void end_by(std::chrono::steady_clock::time_point latest) { latest_end_ = latest; }

  // `call` is called, on any thread, when there is room again after has_room() has said no, and when
  // a question was answered. It is not called any more when on_room() returns with another.
  void on_room(std::function<void()> call);
  // Whether an image of this size can be put now.
  bool has_room(int64_t bytes);
  // Queues an image, which need not be sealed. Dropped when there is no room. Throws std::bad_alloc
  // and has then queued nothing.
  void put(const BlockKey& key, BlockImage image);
  // Queues a note that a block was used; dropped when many wait. Throws std::bad_alloc.
  void touch(const BlockKey& key);
  // Has `question` called with the store, on the writer's thread, when all that was put before is
  // written or dropped. It must not throw, and is dropped when the writer ends before. Throws
  // std::bad_alloc.
  using Question = std::function<void(const BlockStore&)>;
  void ask(Question question);
  // Counts a block that could not be put.
  void note_dropped();
  // Waits until everything is written; false: not within the time, or a write does not end.
  bool flush(std::chrono::milliseconds longest);
  // Whether the write that is under way does not end.
  bool hangs() const;

  struct Counts {
    int64_t blocks = 0, bytes = 0;  // written, or there already
    int64_t dropped = 0;            // blocks: no room in the queue, or failed
  };
  Counts counts() const;

 private:
  static constexpr std::chrono::seconds kLongestEnd{10};
  class Queue;

  const std::shared_ptr<Queue> queue_;
  std::chrono::steady_clock::time_point latest_end_ = std::chrono::steady_clock::time_point::max();
  LoneThread thread_;
};

}  // namespace penstock
