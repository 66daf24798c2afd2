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
// kQueued -> kReading -> kRead, or kQueued again when it follows another engine; give_up() leads
// from each of them to kGivenUp. The reader's queue holds the loads that are kQueued, and those
// only.
class BlockLoad {
 public:
  explicit BlockLoad(ChainQuery query)
      : query_(std::move(query)),
        follows_(query_.wait_seconds > 0),
        allowed_(from_seconds(query_.wait_seconds)) {}

 private:
  friend class BlockLoader;
  using SteadyClock = std::chrono::steady_clock;
  enum class State : uint8_t { kQueued, kReading, kRead, kGivenUp };

  static SteadyClock::duration from_seconds(double seconds) {
    return std::chrono::ceil<SteadyClock::duration>(std::chrono::duration<double>(seconds));
  }
  SteadyClock::duration busy() const {
    const auto now = SteadyClock::now();
    if (follows_) return now - begun_ - allowed_;
    return now - begun_ - std::min(followed_, allowed_) - stalled_ -
           (stalls_since_ ? now - *stalls_since_ : SteadyClock::duration());
  }

  ChainQuery query_;  // the reader's thread only
  State state_ = State::kQueued;
  std::deque<LoadedBlock> ready_;  // empty when it is kGivenUp
  const SteadyClock::time_point begun_ = SteadyClock::now();
  SteadyClock::time_point next_look_ = begun_;  // when it is the reader's turn
  // whether it follows another engine, how long it did, and how long it may
  bool follows_;
  SteadyClock::duration followed_{}, allowed_;
  // the blocks that have come, and since when; since when the chain's last block is there; what the
  // last look at the store took; the reader's thread only
  int n_came_ = query_.n_found;
  std::optional<SteadyClock::time_point> made_;
  SteadyClock::duration look_{};
  SteadyClock::time_point news_ = begun_;
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
  bool await_turn(std::unique_lock<std::mutex>& lock);
  bool is_wanted(const BlockLoad& load) const;
  void load(BlockLoad& load);
  void follow(BlockLoad& load);
  bool look_again(BlockLoad& load);
  bool may_wait(BlockLoad& load, int n_came);
  bool is_made(BlockLoad& load);
  bool read_all(BlockLoad& load, std::span<const WantedBlock> wanted);
  bool pays(const ChainQuery& query, int n_new, std::span<const WantedBlock> wanted);
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
  while (await_turn(lock)) {
    lock.unlock();
    try {
      current->query_.wait_seconds > 0 ? follow(*current) : load(*current);
    } catch (const std::exception& error) {
      if (is_wanted(*current)) log().warn("kv store: computed instead: {}", error.what());
    }
    lock.lock();
    const bool goes_on = current->state_ == State::kQueued;
    if (current->state_ == State::kReading) current->state_ = State::kRead;
    current.reset();
    hangs = false;
    if (!goes_on && on_progress) on_progress();
  }
}

// Makes the load whose turn is next the current one. false: it is the end.
bool BlockLoader::Reader::await_turn(std::unique_lock<std::mutex>& lock) {
  while (!closed) {
    const auto next =
        std::ranges::min_element(queue, {}, [](const auto& load) { return load->next_look_; });
    if (next == queue.end()) {
      asked.wait(lock);
    } else if (const auto turn = (*next)->next_look_; turn > std::chrono::steady_clock::now()) {
      asked.wait_until(lock, turn);
    } else {
      current = std::move(*next);
      queue.erase(next);
      current->state_ = State::kReading;
      return true;
    }
  }
  return false;
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
  if (wanted.empty() || !pays(load.query_, n_found - load.query_.n_found, wanted)) {
    const std::lock_guard lock(mutex);
    ++(wanted.empty() ? counts.misses : counts.refused);
    return;
  }
  read_all(load, wanted);
}

// Reads blocks of a load, as far as all goes well, and measures the time. Whether all were read.
bool BlockLoader::Reader::read_all(BlockLoad& load, std::span<const WantedBlock> wanted) {
  if (wanted.empty()) return true;
  // Looking up is over whatever is decided, and takes a second where a Redis does not answer.
  const auto begun = std::chrono::steady_clock::now();
  const auto stalled = load.stalled_;
  // Blocks that are asked for ahead of the one that is read: a device answers several at once.
  constexpr size_t kAhead = 16;
  for (const WantedBlock& want : wanted.first(std::min(kAhead, wanted.size())))
    store_->expect(want.key);
  int64_t bytes = 0;
  size_t n_read = 0;
  bool all_at_hand = true;
  for (; n_read < wanted.size(); ++n_read) {
    if (n_read + kAhead < wanted.size()) store_->expect(wanted[n_read + kAhead].key);
    const int64_t slow = bytes_to_fetch(wanted[n_read].key);
    all_at_hand &= slow == 0;
    if (!read(load, wanted[n_read])) break;
    bytes += slow;
  }
  if (all_at_hand) return n_read == wanted.size();
  bytes = std::max(bytes, store_->images().bytes(0));  // a disk that gave nothing in time is slow
  const std::lock_guard lock(mutex);
  const std::chrono::duration<double> took =
      std::chrono::steady_clock::now() - begun - (load.stalled_ - stalled);
  const double each = took.count() / static_cast<double>(bytes);
  byte_seconds_ = byte_seconds_ > 0 ? (byte_seconds_ + each) / 2 : each;
  return n_read == wanted.size();
}

// Reads what has come of a chain that another engine computes, and gives the load another turn as
// long as it may wait for more.
void BlockLoader::Reader::follow(BlockLoad& load) {
  const bool goes_on = look_again(load);
  const std::lock_guard lock(mutex);
  if (load.state_ != State::kReading || !goes_on) return;
  // Looking up takes a fifth of the thread's time at most, which the loads that follow share.
  constexpr std::chrono::milliseconds kPause{10};
  constexpr int kPauses = 4, kTogether = 8;
  const auto n = static_cast<int>(queue.size());
  load.next_look_ = std::chrono::steady_clock::now() +
                    std::max<std::chrono::steady_clock::duration>(kPause * (1 + n / kTogether),
                                                                  kPauses * load.look_ * (1 + n));
  queue.push_back(current);
  load.state_ = State::kQueued;
}

// One turn of a load that follows another engine. Whether there shall be more.
bool BlockLoader::Reader::look_again(BlockLoad& load) {
  ChainQuery& query = load.query_;
  const auto begun = std::chrono::steady_clock::now();
  const auto looked = [&] { load.look_ = std::chrono::steady_clock::now() - begun; };
  const std::vector<bool>& known = query.in_memory[0];
  const auto next = static_cast<size_t>(std::ranges::find(known, false) - known.begin());
  const bool any = next == known.size() || store_->contains({0, query.hashes[next]});
  looked();
  if (!any && may_wait(load, load.n_came_)) return true;
  std::vector<WantedBlock> wanted;
  const int n_found = look_up_chain(
      query, block_size_,
      [&](const BlockKey& key) { return is_wanted(load) && store_->contains(key); }, wanted);
  looked();
  if (!is_wanted(load)) return false;
  const bool whole = n_found == std::ssize(query.hashes);
  const auto last = std::ranges::stable_partition(wanted, [&](const WantedBlock& want) {
    return whole || query.windows[static_cast<size_t>(want.key.group)] == 0;
  });
  const std::span now(wanted.begin(), last.begin());
  const int n_new = n_found - load.n_came_;
  const bool pay = now.empty() || n_new <= 0 || pays(query, n_new, now);
  const bool all = pay && read_all(load, now);
  if (all) {
    for (const WantedBlock& want : now)
      query.in_memory[static_cast<size_t>(want.key.group)][static_cast<size_t>(want.index)] = true;
    if (!whole && any && may_wait(load, n_found) && !is_made(load)) return true;
  }
  {
    const std::lock_guard lock(mutex);
    load.follows_ = false;
    load.followed_ = std::chrono::steady_clock::now() - load.begun_;
    load.stalled_ = {};
    ++counts.followed;
    counts.lost += !all || (!whole && !load.made_);
    counts.refused += !pay;
    counts.misses += pay && n_found <= query.n_found;
  }
  if (all) read_all(load, last);
  return false;
}

// Whether the last block is there, and what belongs to it has had the time to follow: blocks are
// written in their order, and a state behind the last one is not always kept.
bool BlockLoader::Reader::is_made(BlockLoad& load) {
  constexpr std::chrono::milliseconds kBehind{200};
  const auto now = std::chrono::steady_clock::now();
  if (!load.made_ && store_->contains({0, load.query_.hashes.back()})) load.made_ = now;
  return load.made_ && now - *load.made_ >= kBehind;
}

// Whether a load of which the first n_came blocks have come may wait for more.
bool BlockLoader::Reader::may_wait(BlockLoad& load, int n_came) {
  const ChainQuery& query = load.query_;
  const double computing = query.token_seconds * (n_came - query.n_found) * block_size_;
  const auto allowed = BlockLoad::from_seconds(query.wait_seconds + computing);
  const std::lock_guard lock(mutex);
  const auto now = std::chrono::steady_clock::now();
  if (n_came > load.n_came_) load.news_ = now;
  load.n_came_ = n_came;
  load.allowed_ = allowed;
  return now - load.begun_ < allowed &&
         now - load.news_ < BlockLoad::from_seconds(query.wait_seconds);
}

// Bytes of a block that are not in memory.
int64_t BlockLoader::Reader::bytes_to_fetch(const BlockKey& key) const {
  return store_->is_at_hand(key) ? 0 : store_->images().bytes(key.group);
}

// Whether loading is expected to be at least twice as fast as computing n_new blocks. After a refusal
// the disk counts as somewhat faster, so that it is measured again.
bool BlockLoader::Reader::pays(const ChainQuery& query, int n_new,
                               std::span<const WantedBlock> wanted) {
  constexpr double kForget = 0.9;
  int64_t bytes = 0;
  for (const WantedBlock& want : wanted) bytes += bytes_to_fetch(want.key);
  const double loading = byte_seconds_ * static_cast<double>(bytes);
  const double computing = query.token_seconds * n_new * block_size_;
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
