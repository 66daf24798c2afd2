#include "server/replies/cache/reply_cache.h"

#include <spdlog/spdlog.h>

#include <ctime>
#include <iterator>
#include <utility>

#include "base/log.h"
#include "server/replies/cache/particulars.h"

namespace penstock {
namespace {

constexpr int64_t kPerReply = 256, kPerMeaning = 400;  // bytes of list, map and index entries
constexpr size_t kNeighbours = 8;                      // neighbours that are checked
// Replies of this interval are written and synced together.
constexpr auto kGather = std::chrono::milliseconds(200);
// Delay before a failed write is retried if no new reply arrives.
constexpr auto kRetry = std::chrono::seconds(1);
constexpr size_t kMostUnwritten = 4096;  // pending replies; further ones are not written

bool is_of(const CachedReply& reply, const std::string& model) {
  return model.empty() || reply.model == model;
}

}  // namespace

int64_t ReplyCache::unix_now() { return std::time(nullptr); }

int64_t ReplyCache::bytes_of(const CachedReply& reply, size_t dimensions) {
  const size_t texts = reply.key.size() + reply.model.size() + reply.record.size();
  if (reply.scope.empty()) return kPerReply + static_cast<int64_t>(texts);
  const size_t more = reply.scope.size() + reply.question.size() + dimensions * sizeof(float);
  return kPerReply + kPerMeaning + static_cast<int64_t>(texts + more);
}

Result<std::unique_ptr<ReplyCache>> ReplyCache::open(const ReplyCacheConfig& config,
                                                     const std::filesystem::path& file,
                                                     Clock clock) {
  std::unique_ptr<ReplyCache> cache(new ReplyCache(config, clock));
  if (file.empty()) return cache;
  ASSIGN_OR_RETURN(cache->table_, ReplyTable::open(file));
  cache->reading_ = true;
  cache->thread_ = std::thread([raw = cache.get()] { raw->work(); });
  return cache;
}

ReplyCache::~ReplyCache() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  changed_.notify_all();
  if (thread_.joinable()) thread_.join();
}

// Whether a reply may be given again; one that has expired goes.
bool ReplyCache::usable(Order::iterator kept, int64_t max_age) {
  const int64_t now = clock_();
  if (kept->reply->expires <= now) {
    remove(kept, counts_.expired);
    return false;
  }
  if (now - kept->reply->created > max_age) return false;
  order_.splice(order_.begin(), order_, kept);
  return true;
}

CachedReplyRef ReplyCache::find(const std::string& key, int64_t max_age) {
  const std::lock_guard lock(mutex_);
  const auto found = by_key_.find(key);
  return found != by_key_.end() && usable(found->second, max_age) ? order_.front().reply : nullptr;
}

ReplyCache::Near ReplyCache::find_near(const std::string& scope, std::span<const float> meaning,
                                       const std::string& question, int64_t max_age) {
  Near result;
  std::vector<std::pair<CachedReplyRef, float>> near;  // replies with their similarity
  {
    const std::lock_guard lock(mutex_);
    for (const MeaningIndex::Neighbour& one : meanings_.nearest(scope, meaning, kNeighbours)) {
      result.similarity = std::max(result.similarity, one.similarity);
      if (one.similarity < config_.threshold) break;
      near.emplace_back(by_id_.at(one.id)->reply, one.similarity);
    }
  }
  if (near.empty()) return result;
  // Without the lock, since questions may be long.
  const Particulars asked = particulars_of(question);
  for (const auto& [reply, similarity] : near) {
    if (!agree(asked, particulars_of(reply->question))) {
      result.refused = true;
      continue;
    }
    const std::lock_guard lock(mutex_);
    const auto kept = by_key_.find(reply->key);
    if (kept == by_key_.end() || kept->second->reply != reply || !usable(kept->second, max_age))
      continue;
    result.reply = reply;
    result.similarity = similarity;
    break;
  }
  return result;
}

void ReplyCache::put(CachedReply reply, std::vector<float> meaning) {
  reply.created = clock_();
  reply.expires = reply.created + config_.ttl;
  auto kept = std::make_shared<const CachedReply>(std::move(reply));
  const std::lock_guard lock(mutex_);
  if (const auto known = by_key_.find(kept->key); known != by_key_.end()) {
    int64_t replaced = 0;
    remove(known->second, replaced);
  }
  insert(kept, meaning);
  make_room();
  if (table_ == nullptr) return;
  if (changes_.added.size() < kMostUnwritten)
    changes_.added.push_back({std::move(kept), std::move(meaning)});
  else
    ++counts_.unwritten;
  changed_.notify_all();
}

int64_t ReplyCache::forget(const std::string& model) {
  const std::lock_guard lock(mutex_);
  int64_t n = 0;
  for (auto one = order_.begin(); one != order_.end();) {
    const auto next = std::next(one);
    if (is_of(*one->reply, model)) remove(one, n);
    one = next;
  }
  counts_.forgotten += n;
  if (table_ == nullptr) return n;
  if (std::ranges::find(changes_.forgotten, model) == changes_.forgotten.end())
    changes_.forgotten.push_back(model);
  changed_.notify_all();
  return n;
}

void ReplyCache::insert(CachedReplyRef reply, std::span<const float> meaning) {
  const int64_t bytes = bytes_of(*reply, meaning.size());
  ++counts_.entries;
  counts_.bytes += bytes;
  order_.push_front({std::move(reply), ++last_id_, bytes});
  const CachedReply& kept = *order_.front().reply;
  by_key_[kept.key] = order_.begin();
  if (kept.scope.empty() || meaning.empty()) return;
  meanings_.add(kept.scope, last_id_, meaning);
  by_id_[last_id_] = order_.begin();
}

void ReplyCache::remove(Order::iterator kept, int64_t& counter) {
  const CachedReply& reply = *kept->reply;
  --counts_.entries;
  counts_.bytes -= kept->bytes;
  ++counter;
  if (table_ != nullptr) changes_.removed.push_back(reply.key);
  if (by_id_.erase(kept->id) > 0) meanings_.remove(reply.scope, kept->id);
  by_key_.erase(reply.key);
  order_.erase(kept);
}

void ReplyCache::make_room() {
  while (!order_.empty() && (counts_.entries > config_.entries || counts_.bytes > config_.bytes))
    remove(std::prev(order_.end()), counts_.evicted);
}

ReplyCache::Counts ReplyCache::counts() const {
  const std::lock_guard lock(mutex_);
  return counts_;
}

void ReplyCache::flush() {
  std::unique_lock lock(mutex_);
  hurry_ = true;
  changed_.notify_all();
  changed_.wait(lock,
                [&] { return table_ == nullptr || (!reading_ && !writing_ && changes_.empty()); });
  hurry_ = false;
}

void ReplyCache::work() {
  try {
    read_table();
  } catch (const std::exception& error) {
    log().error("cached replies are not read: {}", error.what());
  }
  std::unique_lock lock(mutex_);
  reading_ = false;
  changed_.notify_all();
  const auto is_called = [&] { return stopping_ || !changes_.empty(); };
  while (true) {
    if (must_forget()) {
      changed_.wait_for(lock, kRetry, is_called);
    } else {
      changed_.wait(lock, is_called);
    }
    changed_.wait_for(lock, kGather, [&] { return stopping_ || hurry_; });
    try {
      if (!changes_.empty() || must_forget()) write(lock);
    } catch (const std::exception& error) {
      if (!lock.owns_lock()) lock.lock();
      writing_ = false;
      forget_all_ = true;
      changes_ = {};
      log().error("cached replies are not kept: {}", error.what());
      changed_.notify_all();
    }
    if (stopping_) return end();
  }
}

// What was to be forgotten must not be found by the next server: where it cannot be removed, the
// file goes.
void ReplyCache::end() {
  if (!must_forget()) return;
  log().error("forgotten replies could not be removed from their file, which is deleted");
  ReplyTable::remove(std::move(table_));
}

// What is new since the start counts, and not what the table has of the same key.
void ReplyCache::read_table() {
  const Status read =
      table_->read(clock_(), [&](CachedReply reply, const std::vector<float>& meaning) {
        const std::lock_guard lock(mutex_);
        const auto forgotten = [&](const std::string& model) { return is_of(reply, model); };
        if (stopping_ || by_key_.contains(reply.key) ||
            std::ranges::any_of(changes_.forgotten, forgotten))
          return;
        insert(std::make_shared<const CachedReply>(std::move(reply)), meaning);
        make_room();
      });
  if (!read) log().error("cached replies are not read: {}", read.error().message);
}

ReplyTable::Changes ReplyCache::take_changes() {
  ReplyTable::Changes changes = std::exchange(undone_, {});
  if (forget_all_) changes = {{""}, {}, {}};
  forget_all_ = false;
  ReplyTable::Changes news = std::exchange(changes_, {});
  std::ranges::move(news.forgotten, std::back_inserter(changes.forgotten));
  std::ranges::move(news.removed, std::back_inserter(changes.removed));
  changes.added = std::move(news.added);
  std::erase_if(changes.added, [&](const auto& one) {
    const auto known = by_key_.find(one.reply->key);
    return known == by_key_.end() || known->second->reply != one.reply;
  });
  return changes;
}

void ReplyCache::write(std::unique_lock<std::mutex>& lock) {
  ReplyTable::Changes changes = take_changes();
  writing_ = true;
  lock.unlock();
  const Status written = table_->write(changes);
  lock.lock();
  writing_ = false;
  // New replies stay in memory only; removals are retried.
  if (!written) {
    if (counts_.unwritten == 0)
      log().error("cached replies are not kept: {}", written.error().message);
    counts_.unwritten += static_cast<int64_t>(changes.added.size());
    undone_ = std::move(changes);
    undone_.added.clear();
    if (undone_.removed.size() > kMostUnwritten) undone_ = {{""}, {}, {}};
  }
  changed_.notify_all();
}

}  // namespace penstock
