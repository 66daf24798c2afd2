// Replies that are given again: to the same request, or to one that means the same.
//
// A reply is found by the hash of all that made it, or by the meaning of its question among the replies whose everything
// else is the same (their scope). What the hashes are made of, and which requests may be answered so, is the caller's.
#pragma once
#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <filesystem>
#include <list>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <unordered_map>
#include <vector>

#include "base/result.h"
#include "gateway/cache/meaning_index.h"
#include "gateway/cache/reply_table.h"

namespace penstock {

struct ReplyCacheConfig {
  int64_t bytes = 0;  // of all replies together; 0: there is no cache
  int64_t entries = 100000;
  int64_t ttl = 3600;            // seconds
  bool across_keys = false;      // replies to one API key answer the others too
  bool sampled = false;          // replies that were drawn without a seed are given again too
  bool only_on_request = false;  // nothing is kept or answered unless a request asks for it
  double threshold = 0.95;       // cosine from which two questions may mean the same
};

// Any thread. What is kept is findable by its hash at once; a thread of the cache's own writes it to the disk.
class ReplyCache {
 public:
  using Clock = int64_t (*)();  // unix time, seconds

  // file: where replies stay from one run to the next, "" = nowhere. What is in it is read on the cache's thread, so that
  // a start does not wait for it. Errors: those of Database::open.
  static Result<std::unique_ptr<ReplyCache>> open(const ReplyCacheConfig& config,
                                                  const std::filesystem::path& file, Clock clock = unix_now);
  // Writes what is not on the disk yet.
  ~ReplyCache();

  const ReplyCacheConfig& config() const { return config_; }
  // Null: there is none, or only older ones. max_age: seconds.
  CachedReplyRef find(const std::string& key, int64_t max_age);
  // The reply to a question of this scope whose meaning is nearest, if it is near enough and both have the same particulars
  // (particulars.h).
  struct Near {
    CachedReplyRef reply;  // null: there is none
    float similarity = 0;  // of it, or of the nearest that is none
    bool refused = false;  // one that was near enough has other particulars
  };
  Near find_near(const std::string& scope, std::span<const float> meaning, const std::string& question,
                 int64_t max_age);
  // In the place of an older one of the same key. The reply's times are set here. meaning: of its question, of length 1.
  void put(CachedReply reply, std::vector<float> meaning = {});
  // Those of one model, or with "" all. How many there were.
  int64_t forget(const std::string& model);
  // Seconds that a reply has been here, and has left.
  int64_t age_of(const CachedReply& reply) const { return std::max<int64_t>(clock_() - reply.created, 0); }
  int64_t left_of(const CachedReply& reply) const { return std::max<int64_t>(reply.expires - clock_(), 0); }
  // Waits until everything that was put is on the disk.
  void flush();

  struct Counts {
    int64_t entries = 0, bytes = 0;
    int64_t evicted = 0, expired = 0, forgotten = 0;
    int64_t unwritten = 0;  // replies that could not be written
  };
  Counts counts() const;

 private:
  struct Kept {
    CachedReplyRef reply;
    MeaningIndex::Id id;
    int64_t bytes;
  };
  using Order = std::list<Kept>;  // the one used last comes first
  ReplyCache(const ReplyCacheConfig& config, Clock clock) : config_(config), clock_(clock) {}
  static int64_t unix_now();
  static int64_t bytes_of(const CachedReply& reply, size_t dimensions);

  void work();
  void read_table();
  void write(std::unique_lock<std::mutex>& lock);
  // With mutex_ held, as those below.
  void insert(CachedReplyRef reply, std::span<const float> meaning);
  bool usable(Order::iterator kept, int64_t max_age);
  void remove(Order::iterator kept, int64_t& counter);
  void make_room();
  ReplyTable::Changes take_changes();

  const ReplyCacheConfig config_;
  const Clock clock_;
  std::unique_ptr<ReplyTable> table_;  // of the thread; null: nothing is written

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  Order order_;
  std::unordered_map<std::string, Order::iterator> by_key_;
  std::unordered_map<MeaningIndex::Id, Order::iterator> by_id_;  // of those that have a meaning
  MeaningIndex meanings_;
  MeaningIndex::Id last_id_ = 0;
  Counts counts_;
  ReplyTable::Changes changes_;  // that are not on the disk yet
  ReplyTable::Changes undone_;   // of a write that failed
  bool reading_ = false;         // the table; what is forgotten meanwhile is in changes_
  bool writing_ = false, hurry_ = false, stopping_ = false;
  std::thread thread_;
};

}  // namespace penstock
