#include "engine/store/block_loader.h"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <condition_variable>
#include <deque>
#include <exception>
#include <mutex>
#include <optional>
#include <span>
#include <utility>

#include "base/log.h"

namespace penstock {

// One query and what came of it; guarded by the reader's mutex.
//
// kQueued -> kReading -> kRead; give_up() leads from each of them to kGivenUp. The reader's queue
// holds the loads that are kQueued, and those only.
class BlockLoad {
 public:
  explicit BlockLoad(ChainQuery query) : query_(std::move(query)) {}

 private:
  friend class BlockLoader;
  using SteadyClock = std::chrono::steady_clock;
  enum class State : uint8_t { kQueued, kReading, kRead, kGivenUp };

  SteadyClock::duration busy() const {
    const auto now = SteadyClock::now();
    return now - begun_ - stalled_ -
           (stalls_since_ ? now - *stalls_since_ : SteadyClock::duration());
  }

  const ChainQuery query_;
  State state_ = State::kQueued;
  std::deque<LoadedBlock> ready_;  // empty when it is kQueued or kGivenUp
  const SteadyClock::time_point begun_ = SteadyClock::now();
  // the time in which it waited for take()
  SteadyClock::duration stalled_{};
  std::optional<SteadyClock::time_point> stalls_since_;
};

namespace {

int64_t bytes_of(const std::deque<LoadedBlock>& blocks) {
  int64_t bytes = 0;
  for (const LoadedBlock& block : blocks) bytes += std::ssize(block.image);
  return bytes;
}

}  // namespace

// The thread's side, which outlives its loader when the store does not answer.
class BlockLoader::Reader {
 public:
  using State = BlockLoad::State;
  Reader(std::shared_ptr<const BlockStore> store, int block_size, int64_t max_bytes)
      : store_(std::move(store)), block_size_(block_size), max_bytes_(max_bytes) {}
  void run();
  void close();

  mutable std::mutex mutex;
  std::condition_variable asked, taken;
  std::deque<std::shared_ptr<BlockLoad>> queue;
  std::shared_ptr<BlockLoad> current;  // kReading or kGivenUp; null: the thread is idle
  bool hangs = false;                  // as BlockLoader::hangs(); false without `current`
  std::function<void()> on_progress;
  int64_t staged = 0;  // bytes of all loads' ready_
  bool closed = false;
  Counts counts;

 private:
  bool is_wanted(const BlockLoad& load) const;
  void load(BlockLoad& load);
  bool pays(const ChainQuery& query, int n_found, std::span<const WantedBlock> wanted);
  int64_t bytes_to_fetch(const BlockKey& key) const;
  bool wait_for_room(BlockLoad& load, int64_t bytes);
  bool read(BlockLoad& load, const WantedBlock& want);

  const std::shared_ptr<const BlockStore> store_;
  const int block_size_;
  const int64_t max_bytes_;
  // measured seconds for a byte that is read; 0: not known
  double byte_seconds_ = 0;
};

// --- The engine's side

BlockLoader::BlockLoader(std::shared_ptr<const BlockStore> store, int block_size, int64_t max_bytes,
                         std::chrono::milliseconds longest_end)
    : reader_(std::make_shared<Reader>(std::move(store), block_size, max_bytes)),
      longest_end_(longest_end),
      thread_(reader_) {}

BlockLoader::~BlockLoader() {
  reader_->close();
  if (!thread_.end(std::min(longest_end_, time_until(latest_end_))))
    log().warn("kv store: a read does not end: its thread is left behind");
}

void BlockLoader::on_progress(std::function<void()> call) {
  const std::lock_guard lock(reader_->mutex);
  reader_->on_progress = std::move(call);
}

std::shared_ptr<BlockLoad> BlockLoader::begin(ChainQuery query) {
  auto load = std::make_shared<BlockLoad>(std::move(query));
  {
    const std::lock_guard lock(reader_->mutex);
    reader_->queue.push_back(load);
    ++reader_->counts.queries;
  }
  reader_->asked.notify_one();
  return load;
}

BlockLoader::Taken BlockLoader::take(BlockLoad& load, int64_t max_bytes,
                                     std::vector<LoadedBlock>& blocks) {
  const std::lock_guard lock(reader_->mutex);
  while (!load.ready_.empty() && max_bytes > 0) {
    const int64_t bytes = std::ssize(load.ready_.front().image);
    blocks.push_back(std::move(load.ready_.front()));
    load.ready_.pop_front();
    max_bytes -= bytes;
    reader_->staged -= bytes;
  }
  reader_->taken.notify_one();
  if (!load.ready_.empty()) return Taken::kSome;
  const bool ended = load.state_ == Reader::State::kRead || load.state_ == Reader::State::kGivenUp;
  return ended ? Taken::kLast : Taken::kAll;
}

double BlockLoader::busy_seconds(const BlockLoad& load) const {
  const std::lock_guard lock(reader_->mutex);
  return std::chrono::duration<double>(load.busy()).count();
}

void BlockLoader::give_up(BlockLoad& load, bool late) {
  const std::lock_guard lock(reader_->mutex);
  load.state_ = Reader::State::kGivenUp;
  reader_->staged -= bytes_of(load.ready_);
  load.ready_.clear();
  std::erase_if(reader_->queue, [&](const auto& each) { return each.get() == &load; });
  if (late && reader_->current != nullptr)
    reader_->hangs |= reader_->current->state_ == Reader::State::kGivenUp;
  reader_->taken.notify_one();
}

bool BlockLoader::hangs() const {
  const std::lock_guard lock(reader_->mutex);
  return reader_->hangs;
}

BlockLoader::Counts BlockLoader::counts() const {
  const std::lock_guard lock(reader_->mutex);
  return reader_->counts;
}

// --- The thread's side

void BlockLoader::Reader::close() {
  {
    const std::lock_guard lock(mutex);
    closed = true;
    on_progress = {};
  }
  asked.notify_one();
  taken.notify_one();
}

void BlockLoader::Reader::run() {
  std::unique_lock lock(mutex);
  for (;;) {
    asked.wait(lock, [&] { return closed || !queue.empty(); });
    if (closed) return;
    current = std::move(queue.front());
    queue.pop_front();
    current->state_ = State::kReading;
    lock.unlock();
    try {
      load(*current);
    } catch (const std::exception& error) {
      if (is_wanted(*current)) log().warn("kv store: computed instead: {}", error.what());
    }
    lock.lock();
    if (current->state_ == State::kReading) current->state_ = State::kRead;
    current.reset();
    hangs = false;
    if (on_progress) on_progress();
  }
}

bool BlockLoader::Reader::is_wanted(const BlockLoad& load) const {
  const std::lock_guard lock(mutex);
  return !closed && load.state_ == State::kReading;
}

void BlockLoader::Reader::load(BlockLoad& load) {
  std::vector<WantedBlock> wanted;
  const int n_found = look_up_chain(
      load.query_, block_size_,
      [&](const BlockKey& key) { return is_wanted(load) && store_->contains(key); }, wanted);
  if (!is_wanted(load)) return;
  if (wanted.empty() || !pays(load.query_, n_found, wanted)) {
    const std::lock_guard lock(mutex);
    ++(wanted.empty() ? counts.misses : counts.refused);
    return;
  }
  // Looking up is over whatever is decided, and takes a second where a Redis does not answer.
  const auto begun = std::chrono::steady_clock::now();
  // Blocks that are asked for ahead of the one that is read: a device answers several at once.
  constexpr size_t kAhead = 16;
  for (const WantedBlock& want : std::span(wanted).first(std::min(kAhead, wanted.size())))
    store_->expect(want.key);
  int64_t bytes = 0;
  bool all_at_hand = true;
  for (size_t i = 0; i < wanted.size(); ++i) {
    if (i + kAhead < wanted.size()) store_->expect(wanted[i + kAhead].key);
    const int64_t slow = bytes_to_fetch(wanted[i].key);
    all_at_hand &= slow == 0;
    if (!read(load, wanted[i])) break;
    bytes += slow;
  }
  if (all_at_hand) return;
  bytes = std::max(bytes, store_->images().bytes(0));  // a disk that gave nothing in time is slow
  const std::lock_guard lock(mutex);
  const std::chrono::duration<double> took =
      std::chrono::steady_clock::now() - begun - load.stalled_;
  const double each = took.count() / static_cast<double>(bytes);
  byte_seconds_ = byte_seconds_ > 0 ? (byte_seconds_ + each) / 2 : each;
}

// Bytes of a block that are not in memory.
int64_t BlockLoader::Reader::bytes_to_fetch(const BlockKey& key) const {
  return store_->is_at_hand(key) ? 0 : store_->images().bytes(key.group);
}

// Whether loading is expected to be at least twice as fast as computing. After a refusal the disk
// counts as somewhat faster, so that it is measured again.
bool BlockLoader::Reader::pays(const ChainQuery& query, int n_found,
                               std::span<const WantedBlock> wanted) {
  constexpr double kForget = 0.9;
  int64_t bytes = 0;
  for (const WantedBlock& want : wanted) bytes += bytes_to_fetch(want.key);
  const double loading = byte_seconds_ * static_cast<double>(bytes);
  const double computing = query.token_seconds * (n_found - query.n_found) * block_size_;
  if (query.token_seconds <= 0 || loading <= kMostLoadShare * computing) return true;
  byte_seconds_ *= kForget;
  return false;
}

// Waits until another block of this size may be staged. false: the load is not wanted any more.
bool BlockLoader::Reader::wait_for_room(BlockLoad& load, int64_t bytes) {
  std::unique_lock lock(mutex);
  const auto goes_on = [&] {
    return closed || load.state_ == State::kGivenUp || staged == 0 || staged + bytes <= max_bytes_;
  };
  if (!goes_on()) {
    load.stalls_since_ = std::chrono::steady_clock::now();
    taken.wait(lock, goes_on);
    load.stalled_ += std::chrono::steady_clock::now() - *load.stalls_since_;
    load.stalls_since_.reset();
  }
  return !closed && load.state_ == State::kReading;
}

// Reads a block; false: the load ends.
bool BlockLoader::Reader::read(BlockLoad& load, const WantedBlock& want) {
  if (!wait_for_room(load, store_->images().bytes(want.key.group))) return false;
  LoadedBlock block{want.key, want.index, {}, false};
  const auto first = load.query_.tokens.begin() + static_cast<ptrdiff_t>(want.index) * block_size_;
  const Status read =
      store_->read(want.key, std::vector<TokenId>(first, first + block_size_), block.image);
  if (read) block.is_far = store_->is_far(want.key);
  const std::lock_guard lock(mutex);
  if (closed || load.state_ != State::kReading) return false;
  if (!read) {
    const bool damaged = read.error().code != ErrorCode::kNotFound;
    counts.damaged += damaged;
    if (damaged) log().warn("kv store: computed instead: {}", read.error().message);
    return false;
  }
  const int64_t bytes = std::ssize(block.image);
  load.ready_.push_back(std::move(block));
  staged += bytes;
  ++counts.blocks;
  counts.bytes += bytes;
  if (on_progress && load.ready_.size() == 1) on_progress();
  return true;
}

}  // namespace penstock
