#include "engine/store/block_loader.h"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <exception>
#include <utility>

#include "base/log.h"
#include "ops/cache_spec.h"

namespace penstock {

// One query and what came of it; guarded by the loader's mutex.
class BlockLoad {
 public:
  explicit BlockLoad(ChainQuery query) : query_(std::move(query)) {}

 private:
  friend class BlockLoader;
  using Seconds = std::chrono::duration<double>;

  const ChainQuery query_;
  std::deque<LoadedBlock> ready_;
  bool done_ = false, given_up_ = false, late_ = false;
  const std::chrono::steady_clock::time_point begun_ = std::chrono::steady_clock::now();
  Seconds stalled_{};  // waited for take()
};

namespace {

int64_t bytes_of(const std::deque<LoadedBlock>& blocks) {
  int64_t bytes = 0;
  for (const LoadedBlock& block : blocks) bytes += std::ssize(block.image);
  return bytes;
}

// Which blocks of a chain there are, in memory or in the folder, which is asked once for each.
class Presence {
 public:
  Presence(const BlockStore& store, const ChainQuery& query)
      : store_(store),
        query_(query),
        stored_(query.in_memory.size(), std::vector<signed char>(query.hashes.size(), -1)) {}
  bool in_memory(int group, int i) const { return query_.in_memory[group][i]; }
  bool operator()(int group, int i) {
    if (in_memory(group, i)) return true;
    signed char& stored = stored_[group][i];
    if (stored < 0) stored = store_.contains({group, query_.hashes[i]}) ? 1 : 0;
    return stored > 0;
  }

 private:
  const BlockStore& store_;
  const ChainQuery& query_;
  std::vector<std::vector<signed char>> stored_;  // -1: not asked yet
};

// Returns the first block of the group that is needed to go on after n_blocks.
int first_needed(int window, int n_blocks, int block_size) {
  if (window == kStateWindow) return n_blocks - 1;
  return window > 0 ? std::max(0, n_blocks * block_size - window + 1) / block_size : 0;
}

}  // namespace

BlockLoader::BlockLoader(const BlockStore& store, int block_size, int64_t max_bytes)
    : store_(store), block_size_(block_size), max_bytes_(max_bytes), thread_([this] { run(); }) {}

BlockLoader::~BlockLoader() {
  {
    const std::lock_guard lock(mutex_);
    closed_ = true;
    on_progress_ = {};
  }
  asked_.notify_one();
  taken_.notify_one();
  thread_.join();
}

void BlockLoader::on_progress(std::function<void()> call) {
  const std::lock_guard lock(mutex_);
  on_progress_ = std::move(call);
}

std::shared_ptr<BlockLoad> BlockLoader::begin(ChainQuery query) {
  auto load = std::make_shared<BlockLoad>(std::move(query));
  {
    const std::lock_guard lock(mutex_);
    waiting_.push_back(load);
    ++counts_.queries;
  }
  asked_.notify_one();
  return load;
}

bool BlockLoader::take(BlockLoad& load, int64_t max_bytes, std::vector<LoadedBlock>& blocks) {
  const std::lock_guard lock(mutex_);
  while (!load.ready_.empty() && max_bytes > 0) {
    const int64_t bytes = std::ssize(load.ready_.front().image);
    blocks.push_back(std::move(load.ready_.front()));
    load.ready_.pop_front();
    max_bytes -= bytes;
    staged_ -= bytes;
  }
  taken_.notify_one();
  return load.done_ && load.ready_.empty();
}

double BlockLoader::busy_seconds(const BlockLoad& load) const {
  const std::lock_guard lock(mutex_);
  return (SteadyClock::now() - load.begun_ - load.stalled_) / std::chrono::duration<double>(1);
}

void BlockLoader::give_up(BlockLoad& load, bool late) {
  const std::lock_guard lock(mutex_);
  load.given_up_ = true;
  load.late_ |= late;
  staged_ -= bytes_of(load.ready_);
  load.ready_.clear();
  std::erase_if(waiting_, [&](const auto& each) { return each.get() == &load; });
  taken_.notify_one();
}

bool BlockLoader::hangs() const {
  const std::lock_guard lock(mutex_);
  return current_ != nullptr && current_->late_;
}

BlockLoader::Counts BlockLoader::counts() const {
  const std::lock_guard lock(mutex_);
  return counts_;
}

void BlockLoader::run() {
  std::unique_lock lock(mutex_);
  for (;;) {
    asked_.wait(lock, [&] { return closed_ || !waiting_.empty(); });
    if (closed_) return;
    current_ = std::move(waiting_.front());
    waiting_.pop_front();
    lock.unlock();
    try {
      load(*current_);
    } catch (const std::exception& error) {
      log().warn("kv store: computed instead: {}", error.what());
    }
    lock.lock();
    current_->done_ = true;
    current_.reset();
    if (on_progress_) on_progress_();
  }
}

void BlockLoader::load(BlockLoad& load) {
  const auto begun = SteadyClock::now();
  int n_found = 0;
  const std::vector<Want> wanted = look_up(load.query_, n_found);
  if (wanted.empty() || !pays(load.query_, n_found, wanted)) {
    const std::lock_guard lock(mutex_);
    ++(wanted.empty() ? counts_.misses : counts_.refused);
    return;
  }
  int64_t bytes = 0;
  for (const Want& want : wanted) {
    if (!read(load, want)) break;
    bytes += store_.images().bytes(want.key.group);
  }
  bytes = std::max(bytes, store_.images().bytes(0));  // a disk that gave nothing in time is slow
  const std::lock_guard lock(mutex_);
  const std::chrono::duration<double> took = SteadyClock::now() - begun - load.stalled_;
  const double each = took.count() / static_cast<double>(bytes);
  byte_seconds_ = byte_seconds_ > 0 ? (byte_seconds_ + each) / 2 : each;
}

// Returns the blocks to read, in order, for the longest prefix that can be gone on from; none when
// what is in memory is as long. n_found: the blocks of that prefix.
std::vector<BlockLoader::Want> BlockLoader::look_up(const ChainQuery& query, int& n_found) const {
  const int n_blocks = static_cast<int>(query.hashes.size()),
            n_groups = static_cast<int>(query.windows.size());
  Presence there(store_, query);
  int n = 0;
  while (n < n_blocks && there(0, n)) ++n;
  const auto whole = [&](int n) {
    for (int g = n_groups - 1; g > 0; --g) {
      for (int i = first_needed(query.windows[g], n, block_size_); i < n; ++i) {
        if (!there(g, i)) return false;
      }
    }
    return true;
  };
  while (n > query.n_found && !whole(n)) --n;
  n_found = n;
  std::vector<Want> wanted;
  for (int g = 0; g < n_groups && n > query.n_found; ++g) {
    for (int i = first_needed(query.windows[g], n, block_size_); i < n; ++i) {
      if (!there.in_memory(g, i)) wanted.push_back({{g, query.hashes[i]}, i});
    }
  }
  return wanted;
}

// Whether loading is expected to be at least twice as fast as computing. After a refusal the disk
// counts as somewhat faster, so that it is measured again.
bool BlockLoader::pays(const ChainQuery& query, int n_found, std::span<const Want> wanted) {
  constexpr double kAtMost = 0.5, kForget = 0.9;
  int64_t bytes = 0;
  for (const Want& want : wanted) bytes += store_.images().bytes(want.key.group);
  const double loading = byte_seconds_ * static_cast<double>(bytes);
  const double computing = query.token_seconds * (n_found - query.n_found) * block_size_;
  if (query.token_seconds <= 0 || loading <= kAtMost * computing) return true;
  byte_seconds_ *= kForget;
  return false;
}

bool BlockLoader::read(BlockLoad& load, const Want& want) {
  const int64_t bytes = store_.images().bytes(want.key.group);
  {
    std::unique_lock lock(mutex_);
    const auto has_room = [&] {
      return closed_ || load.given_up_ || staged_ == 0 || staged_ + bytes <= max_bytes_;
    };
    if (!has_room()) {
      const auto since = SteadyClock::now();
      taken_.wait(lock, has_room);
      load.stalled_ += SteadyClock::now() - since;
    }
    if (closed_ || load.given_up_) return false;
  }
  LoadedBlock block{want.key, want.index, {}};
  const auto first = load.query_.tokens.begin() + static_cast<ptrdiff_t>(want.index) * block_size_;
  const Status read =
      store_.read(want.key, std::vector<TokenId>(first, first + block_size_), block.image);
  const std::lock_guard lock(mutex_);
  if (!read) {
    const bool damaged = read.error().code != ErrorCode::kNotFound;
    counts_.damaged += damaged;
    if (damaged) log().warn("kv store: computed instead: {}", read.error().message);
    return false;
  }
  if (load.given_up_) return false;
  load.ready_.push_back(std::move(block));
  staged_ += bytes;
  ++counts_.blocks;
  counts_.bytes += bytes;
  if (on_progress_ && load.ready_.size() == 1) on_progress_();
  return true;
}

}  // namespace penstock
