#include "engine/steps/stored_blocks.h"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <chrono>
#include <new>

#include "base/check.h"
#include "base/log.h"

namespace penstock {
namespace {

// Bytes that are brought into the cache between two steps, while sequences wait for the next one.
constexpr int64_t kBytesBetweenSteps = int64_t{16} << 20;
// A load may take this share of the time of computing the same tokens, but at least kLeastPatience;
// without a measured time kUnknownPatience. Seconds.
constexpr double kShareOfComputing = 0.25, kLeastPatience = 0.02, kUnknownPatience = 3;

}  // namespace

StoredBlocks::Group::Group(StoredBlocks& owner, int group, int n_blocks)
    : owner_(owner), group_(group), is_pending_(static_cast<size_t>(n_blocks)) {
  pending.reserve(static_cast<size_t>(n_blocks));
}

void StoredBlocks::Group::entered(BlockId block) {
  if (owner_.publishing_) return;
  is_pending_[static_cast<size_t>(block)] = 1;
  pending.push_back({owner_.n_entered_++, block});
}

void StoredBlocks::Group::leaves(BlockId block) {
  char& is_pending = is_pending_[static_cast<size_t>(block)];
  if (is_pending == 0) return;
  if (!owner_.store(group_, block)) owner_.store_.writer().note_dropped();
  is_pending = 0;
  pending.erase(std::ranges::find(pending, block, &Pending::block));
}

void StoredBlocks::Group::cleared() {
  pending.clear();
  std::ranges::fill(is_pending_, 0);
}

StoredBlocks::StoredBlocks(KvStore& store, Scheduler& scheduler, StepModel& model,
                           MetricsRecorder& metrics)
    : store_(store), scheduler_(scheduler), model_(model), metrics_(metrics) {
  for (int g = 0; g < scheduler.n_groups(); ++g) {
    groups_.push_back(std::make_unique<Group>(*this, g, scheduler.allocator(g).n_blocks()));
    scheduler.allocator(g).watch(groups_.back().get());
    windows_.push_back(scheduler.window(g));
  }
}

StoredBlocks::~StoredBlocks() {
  for (int g = 0; g < scheduler_.n_groups(); ++g) scheduler_.allocator(g).watch(nullptr);
  for (const Load& load : loads_) store_.loader().give_up(*load.load);
}

// --- Loading

ChainQuery StoredBlocks::query_of(const Sequence& sequence, int n_found,
                                  double token_seconds) const {
  const auto n = static_cast<size_t>(scheduler_.n_usable_blocks(sequence));
  const bool waits = !sequence.started && sequence.n_asked == 1 && n_found < static_cast<int>(n);
  ChainQuery query{
      .tokens = sequence.tokens,
      .hashes = {sequence.hashes.begin(), sequence.hashes.begin() + static_cast<ptrdiff_t>(n)},
      .in_memory = {},
      .n_found = n_found,
      .windows = windows_,
      .token_seconds = token_seconds,
      .wait_seconds = waits ? sequence.prefill_wait : 0};
  for (int g = 0; g < scheduler_.n_groups(); ++g) {
    std::vector<bool>& there = query.in_memory.emplace_back(n);
    for (size_t i = 0; i < n; ++i) there[i] = scheduler_.allocator(g).contains(query.hashes[i]);
  }
  return query;
}

void StoredBlocks::begin_load(Sequence& sequence, double token_seconds) {
  // A plan may preempt a sequence and admit it again, even twice.
  if (sequence.state != SeqState::kWaiting || sequence.loading) return;
  if (!sequence.read_cache) return;
  try {
    const int n_found = scheduler_.look_up(sequence),
              n_usable = scheduler_.n_usable_blocks(sequence);
    ++sequence.n_asked;
    sequence.n_seen = n_found;
    touch_found(sequence, n_found);
    if (n_found == n_usable || sequence.hashes.empty() || store_.loader().hangs()) return;
    const double computing = token_seconds * (n_usable - n_found) * scheduler_.block_size();
    const double patience = token_seconds > 0
                                ? std::max(kLeastPatience, kShareOfComputing * computing)
                                : kUnknownPatience;
    loads_.push_back(
        {&sequence, nullptr, patience, Clock::now(), std::vector<int>(groups_.size())});
    try {
      loads_.back().load = store_.loader().begin(query_of(sequence, n_found, token_seconds));
    } catch (const std::bad_alloc&) {
      loads_.pop_back();
      return;
    }
    sequence.loading = true;
  } catch (const std::bad_alloc&) {
  }
}

// Marks what the store has of a prefix's first n_found blocks, which memory answers, as used. The first block,
// without which the others are of no use, is marked last and so is the youngest.
void StoredBlocks::touch_found(const Sequence& sequence, int n_found) {
  constexpr size_t kMostTouched = 65536;
  const auto now = Clock::now();
  if (now >= touched_until_ || touched_.size() >= kMostTouched) {
    touched_.clear();
    touched_until_ = now + std::chrono::minutes(1);
  }
  for (int i = n_found; i-- > 0;) {
    const BlockHash& hash = sequence.hashes[static_cast<size_t>(i)];
    for (int g = 0; g < scheduler_.n_groups(); ++g) {
      if (!scheduler_.allocator(g).contains(hash)) continue;
      if (touched_.insert(hash.low + static_cast<uint64_t>(g)).second)
        store_.writer().touch({g, hash});
    }
  }
}

void StoredBlocks::end(size_t i) {
  const Load& load = loads_[i];
  PENSTOCK_CHECK(load.sequence->loading && load.sequence->state == SeqState::kWaiting);
  Sequence& sequence = *load.sequence;
  sequence.loading = false;
  sequence.n_seen = scheduler_.look_up(sequence);  // its hashes are known: allocates nothing
  if (!sequence.started) {
    sequence.n_loaded += load.n_taken[0] * scheduler_.block_size();
    sequence.load_seconds += std::chrono::duration<double>(Clock::now() - load.begun).count();
  }
  store_.loader().give_up(*load.load);
  loads_.erase(loads_.begin() + static_cast<ptrdiff_t>(i));
}

void StoredBlocks::end_load(Sequence& sequence) {
  if (!sequence.loading) return;
  const auto load = std::ranges::find(loads_, &sequence, &Load::sequence);
  PENSTOCK_CHECK(load != loads_.end());
  end(static_cast<size_t>(load - loads_.begin()));
}

// Ends: every turn either removes a load or goes on to the next one.
void StoredBlocks::take_loaded(bool busy) {
  for (size_t i = 0; i < loads_.size();) {
    if (is_over(loads_[i], busy ? kBytesBetweenSteps : INT64_MAX)) {
      end(i);
    } else {
      ++i;
    }
  }
}

bool StoredBlocks::is_over(Load& load, int64_t max_bytes) {
  using Taken = BlockLoader::Taken;
  taken_.clear();
  const Taken taken = store_.loader().take(*load.load, max_bytes, taken_);
  for (LoadedBlock& block : taken_) {
    // Its own blocks would be evicted: what more there is does not fit into the cache.
    const int g = block.key.group;
    if (scheduler_.allocator(g).n_available() <= load.n_taken[g]) return true;
    publish(load, block);
  }
  load.has_more = taken == Taken::kSome;
  if (taken != Taken::kAll) return taken == Taken::kLast;
  if (store_.loader().busy_seconds(*load.load) <= load.patience) return false;
  store_.loader().give_up(*load.load, true);
  metrics_->kv_store_late.add();
  log().warn("kv store: blocks were not loaded within {:.3f} seconds: computed instead",
             load.patience);
  return true;
}

Clock::time_point StoredBlocks::next_take() const {
  const auto now = Clock::now();
  auto next = Clock::time_point::max();
  for (const Load& load : loads_) {
    if (load.has_more) return now;
    // a clock that is read again after the wait must have gone further
    constexpr double kBeyond = 1e-4;
    const double left = load.patience - store_.loader().busy_seconds(*load.load) + kBeyond;
    next = std::min(next, now + std::chrono::ceil<Clock::duration>(
                                    std::chrono::duration<double>(std::max(0.0, left))));
  }
  return next;
}

void StoredBlocks::publish(Load& load, LoadedBlock& loaded) {
  const int g = loaded.key.group;
  BlockAllocator& allocator = scheduler_.allocator(g);
  if (allocator.contains(loaded.key.hash)) return;
  const std::optional<BlockId> block = allocator.allocate();
  if (!block) return;
  try {
    model_.write_block(g, *block, store_.images().content(g, loaded.image));
  } catch (const std::bad_alloc&) {
    allocator.release(*block);
    throw;
  }
  const auto first = load.sequence->tokens.begin() +
                     static_cast<ptrdiff_t>(loaded.index) * scheduler_.block_size();
  publishing_ = !loaded.is_far;  // else it is stored near, too
  load.n_taken[g] += allocator.publish(
      *block, loaded.key.hash, std::span(&*first, static_cast<size_t>(scheduler_.block_size())));
  publishing_ = false;
  allocator.release(*block);
}

// --- Storing

bool StoredBlocks::store(int group, BlockId block) {
  const BlockImages& images = store_.images();
  if (!store_.writer().has_room(images.bytes(group))) return false;
  const BlockAllocator& allocator = scheduler_.allocator(group);
  const BlockKey key{group, allocator.hash_of(block)};
  try {
    BlockImage image = images.make(key, allocator.tokens_of(block));
    model_.read_block(group, block, images.content(group, image));
    if (model_.status()) {
      store_.writer().put(key, std::move(image));
      return true;
    }
  } catch (const std::bad_alloc&) {
  }
  store_.writer().note_dropped();  // no memory, or the block's content is not certain
  return true;
}

StoredBlocks::Group* StoredBlocks::oldest() const {
  Group* oldest = nullptr;
  for (const auto& group : groups_) {
    if (group->n_given == group->pending.size()) continue;
    if (oldest == nullptr ||
        group->pending[group->n_given].number < oldest->pending[oldest->n_given].number)
      oldest = group.get();
  }
  return oldest;
}

void StoredBlocks::store_pending() {
  for (Group* group = oldest(); group != nullptr; group = oldest()) {
    const BlockId block = group->pending[group->n_given].block;
    if (!store(group->group_, block)) break;
    group->is_pending_[static_cast<size_t>(block)] = 0;
    ++group->n_given;
  }
  for (auto& group : groups_) {
    group->pending.erase(group->pending.begin(),
                         group->pending.begin() + static_cast<ptrdiff_t>(group->n_given));
    group->n_given = 0;
  }
}

bool StoredBlocks::has_given(uint64_t n) const {
  return std::ranges::all_of(groups_, [&](const auto& group) {
    return group->pending.empty() || group->pending.front().number >= n;
  });
}

bool StoredBlocks::some_pend() const {
  return std::ranges::any_of(groups_, [](const auto& group) { return !group->pending.empty(); });
}

bool StoredBlocks::has_many_pending() const {
  constexpr size_t kMany = 256;
  return std::ranges::any_of(groups_,
                             [](const auto& group) { return group->pending.size() >= kMany; });
}

// Blocks that still pend wait for room, so that something is being written: flush() waits for it.
void StoredBlocks::finish(Clock::time_point latest) {
  constexpr std::chrono::milliseconds kShort{100};
  for (store_pending(); some_pend() && Clock::now() < latest; store_pending()) {
    if (!store_.writer().flush(kShort) && store_.writer().hangs()) return;
  }
}

}  // namespace penstock
