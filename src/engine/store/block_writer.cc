#include "engine/store/block_writer.h"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <condition_variable>
#include <deque>
#include <exception>
#include <mutex>
#include <new>
#include <utility>

#include "base/log.h"

namespace penstock {

using SteadyClock = std::chrono::steady_clock;

namespace {

struct Item {
  BlockKey key;
  BlockImage image;                // empty: the block is touched only
  BlockWriter::Question question;  // set: there is no block
};

// Seals and writes an image, or touches a block. What the store throws is a failed write.
Status write_caught(BlockStore& store, Item& item) {
  try {
    if (item.question) {
      item.question(store);
      return {};
    }
    if (item.image.empty()) {
      store.touch(item.key);
      return {};
    }
    store.images().seal(item.image);
    return store.write(item.key, item.image);
  } catch (const std::bad_alloc&) {
    return make_error(ErrorCode::kResourceExhausted, "out of memory");
  } catch (const std::exception& error) {
    return make_error(ErrorCode::kIo, error.what());
  }
}

}  // namespace

// Queue of blocks to be written, and the thread that writes them. It outlives its writer when the
// store does not answer.
class BlockWriter::Queue {
 public:
  Queue(std::shared_ptr<BlockStore> store, int64_t max_bytes,
        std::chrono::milliseconds longest_write)
      : store_(std::move(store)), max_bytes_(max_bytes), longest_write_(longest_write) {}
  void run();

  // --- These REQUIRE that `mutex` is held.
  bool has_room(int64_t bytes) const { return bytes_ == 0 || bytes_ + bytes <= max_bytes_; }
  void push(Item item);
  int64_t n_items() const { return n_items_; }
  // When the write that is under way counts as one that does not end.
  SteadyClock::time_point hung_at() const { return moved_ + longest_write_; }
  bool hangs() const { return n_items_ > 0 && SteadyClock::now() >= hung_at(); }
  // Drops what waits and ends the thread, now or when its write does.
  void close();

  mutable std::mutex mutex;
  std::condition_variable filled, moved;  // moved: an item is done
  std::function<void()> on_room;
  bool refused = false;  // somebody waits for room or an answer
  Counts counts;

 private:
  static constexpr std::chrono::seconds kRest{10};
  void write(Item item);

  const std::shared_ptr<BlockStore> store_;
  const int64_t max_bytes_;
  const std::chrono::milliseconds longest_write_;
  std::deque<Item> items_;
  int64_t n_items_ = 0;  // items_ and the one at work
  int64_t bytes_ = 0;    // of their images
  bool closed_ = false;
  SteadyClock::time_point moved_{};  // when the first of the items became it
  // no writes until then: one has failed. Writer's thread only.
  SteadyClock::time_point rests_until_{};
};

void BlockWriter::Queue::push(Item item) {
  const int64_t bytes = std::ssize(item.image);
  items_.push_back(std::move(item));
  bytes_ += bytes;
  if (n_items_++ == 0) moved_ = SteadyClock::now();
  filled.notify_one();
}

void BlockWriter::Queue::close() {
  closed_ = true;
  on_room = {};
  counts.dropped +=
      std::ranges::count_if(items_, [](const Item& item) { return !item.image.empty(); });
  items_.clear();
  filled.notify_one();
}

void BlockWriter::Queue::run() {
  std::unique_lock lock(mutex);
  for (;;) {
    filled.wait(lock, [&] { return closed_ || !items_.empty(); });
    if (closed_) return;
    Item item = std::move(items_.front());
    items_.pop_front();
    const int64_t bytes = std::ssize(item.image);
    refused |= item.question != nullptr;
    lock.unlock();
    write(std::move(item));
    lock.lock();
    bytes_ -= bytes;
    --n_items_;
    moved_ = SteadyClock::now();
    moved.notify_all();
    if (std::exchange(refused, false) && on_room) on_room();
  }
}

void BlockWriter::Queue::write(Item item) {
  const bool rests = SteadyClock::now() < rests_until_, is_block = !item.image.empty();
  Status written;
  if (!rests || item.question) written = write_caught(*store_, item);
  const std::lock_guard lock(mutex);
  if (!is_block) return;  // a block that could not be touched counts as older than it is
  if (!written) {
    rests_until_ = SteadyClock::now() + kRest;
    if (!closed_)
      log().warn("kv store: blocks are not kept for the next {} seconds: {}", kRest.count(),
                 written.error().message);
  }
  if (rests || !written) {
    ++counts.dropped;
  } else {
    ++counts.blocks;
    counts.bytes += std::ssize(item.image);
  }
}

BlockWriter::BlockWriter(std::shared_ptr<BlockStore> store, int64_t max_bytes,
                         std::chrono::milliseconds longest_write)
    : queue_(std::make_shared<Queue>(std::move(store), max_bytes, longest_write)),
      thread_(queue_) {}

BlockWriter::~BlockWriter() {
  const bool written =
      flush(std::min<std::chrono::milliseconds>(kLongestEnd, time_until(latest_end_)));
  std::chrono::milliseconds left{0};  // until the write that is under way counts as hung
  {
    const std::lock_guard lock(queue_->mutex);
    queue_->close();
    left = time_until(std::min(queue_->hung_at(), latest_end_));
  }
  if (written) left = std::chrono::hours(1);  // nothing is under way
  if (!thread_.end(left)) log().warn("kv store: a write does not end: its thread is left behind");
}

void BlockWriter::on_room(std::function<void()> call) {
  const std::lock_guard lock(queue_->mutex);
  queue_->on_room = std::move(call);
}

bool BlockWriter::has_room(int64_t bytes) {
  const std::lock_guard lock(queue_->mutex);
  const bool room = queue_->has_room(bytes);
  queue_->refused |= !room;
  return room;
}

void BlockWriter::put(const BlockKey& key, BlockImage image) {
  const std::lock_guard lock(queue_->mutex);
  if (queue_->has_room(std::ssize(image))) {
    queue_->push({key, std::move(image), {}});
  } else {
    ++queue_->counts.dropped;
  }
}

void BlockWriter::touch(const BlockKey& key) {
  constexpr int64_t kMostWaiting = 16384;
  const std::lock_guard lock(queue_->mutex);
  if (queue_->n_items() < kMostWaiting) queue_->push({key, {}, {}});
}

void BlockWriter::ask(Question question) {
  const std::lock_guard lock(queue_->mutex);
  queue_->push({{}, {}, std::move(question)});
}

void BlockWriter::note_dropped() {
  const std::lock_guard lock(queue_->mutex);
  ++queue_->counts.dropped;
}

bool BlockWriter::flush(std::chrono::milliseconds longest) {
  const auto end = SteadyClock::now() + longest;
  std::unique_lock lock(queue_->mutex);
  while (queue_->n_items() > 0) {
    const auto until = std::min(end, queue_->hung_at());
    if (SteadyClock::now() >= until) return false;
    queue_->moved.wait_until(lock, until);
  }
  return true;
}

bool BlockWriter::hangs() const {
  const std::lock_guard lock(queue_->mutex);
  return queue_->hangs();
}

BlockWriter::Counts BlockWriter::counts() const {
  const std::lock_guard lock(queue_->mutex);
  return queue_->counts;
}

}  // namespace penstock
