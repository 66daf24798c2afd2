#include "engine/store/block_writer.h"

#include <spdlog/spdlog.h>

#include <exception>
#include <new>
#include <utility>

#include "base/log.h"

namespace penstock {

using SteadyClock = std::chrono::steady_clock;

namespace {

// Seals and writes an image. What the store throws is a failed write.
Status write_caught(BlockStore& store, const BlockKey& key, BlockImage& image) {
  try {
    store.images().seal(image);
    return store.write(key, image);
  } catch (const std::bad_alloc&) {
    return make_error(ErrorCode::kResourceExhausted, "out of memory");
  } catch (const std::exception& error) {
    return make_error(ErrorCode::kIo, error.what());
  }
}

}  // namespace

BlockWriter::BlockWriter(BlockStore& store, int64_t max_bytes)
    : store_(store), max_bytes_(max_bytes), thread_([this] { run(); }) {}

BlockWriter::~BlockWriter() {
  flush(kLongestEnd);
  {
    const std::lock_guard lock(mutex_);
    closed_ = true;
    counts_.dropped += std::ssize(items_);
    items_.clear();
  }
  filled_.notify_one();
  thread_.join();
}

bool BlockWriter::has_room(int64_t bytes) const {
  const std::lock_guard lock(mutex_);
  return bytes_ == 0 || bytes_ + bytes <= max_bytes_;
}

void BlockWriter::put(const BlockKey& key, BlockImage image) {
  {
    const std::lock_guard lock(mutex_);
    const int64_t bytes = std::ssize(image);
    if (bytes_ > 0 && bytes_ + bytes > max_bytes_) {
      ++counts_.dropped;
      return;
    }
    items_.push_back({key, std::move(image)});
    bytes_ += bytes;
  }
  filled_.notify_one();
}

bool BlockWriter::flush(std::chrono::milliseconds longest) {
  std::unique_lock lock(mutex_);
  return emptied_.wait_for(lock, longest, [&] { return bytes_ == 0; });
}

BlockWriter::Counts BlockWriter::counts() const {
  const std::lock_guard lock(mutex_);
  return counts_;
}

void BlockWriter::run() {
  std::unique_lock lock(mutex_);
  for (;;) {
    filled_.wait(lock, [&] { return closed_ || !items_.empty(); });
    if (items_.empty()) return;
    Item item = std::move(items_.front());
    items_.pop_front();
    const int64_t bytes = std::ssize(item.image);
    lock.unlock();
    write(std::move(item));
    lock.lock();
    bytes_ -= bytes;
    if (bytes_ == 0) emptied_.notify_all();
  }
}

void BlockWriter::write(Item item) {
  const bool rests = SteadyClock::now() < rests_until_;
  Status written;
  if (!rests) written = write_caught(store_, item.key, item.image);
  if (!written) {
    rests_until_ = SteadyClock::now() + kRest;
    log().warn("kv store: blocks are not kept for the next {} seconds: {}", kRest.count(),
               written.error().message);
  }
  const std::lock_guard lock(mutex_);
  if (rests || !written) {
    ++counts_.dropped;
  } else {
    ++counts_.blocks;
    counts_.bytes += std::ssize(item.image);
  }
}

}  // namespace penstock
