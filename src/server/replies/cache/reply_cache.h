// A cache of replies, found by the same request or by a request of the same meaning.
//
// The key of a reply is the hash of everything that determined it. A reply can also be found by the
// embedding of its question, among the replies that share everything else (their scope). The caller
// makes the hashes and decides which requests may be answered from the cache.
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
#include "base/text_hash.h"
#include "server/replies/cache/meaning_index.h"
#include "server/replies/cache/reply_table.h"

namespace penstock {

struct ReplyCacheConfig {
  int64_t bytes = 0;  // maximum bytes of all replies; 0: no cache
  int64_t entries = 100000;
  int64_t ttl = 3600;        // lifetime of a reply in seconds
  bool across_keys = false;  // share replies between API keys
  // cache replies that were sampled without a seed too
  bool sampled = false;
  // use the cache only for requests that ask for it
  bool only_on_request = false;
  // minimum cosine of two questions of the same meaning
  double threshold = 0.95;
};

// Thread-safe. A reply can be found as soon as put() returns; a thread of the cache writes it to
// disk later.
class ReplyCache {
 public:
  using Clock = int64_t (*)();  // unix time, seconds

  // file: the database that keeps replies between runs; "": none. Its content is read on the
  // cache's thread, so that open() does not wait for it. Errors: those of Database::open.
  static Result<std::unique_ptr<ReplyCache>> open(const ReplyCacheConfig& config,
                                                  const std::filesystem::path& file,
                                                  Clock clock = unix_now);
  // Writes all unwritten replies to disk. Deletes the file if forgotten replies cannot be removed
  // from it.
  ~ReplyCache();

  const ReplyCacheConfig& config() const { return config_; }
  // Returns the reply with this key, or null when there is none or it is older than max_age
  // seconds.
  CachedReplyRef find(const std::string& key, int64_t max_age);
  // The result of find_near(): the reply to the nearest question of the scope that reaches the
  // threshold and has the same particulars (particulars.h).
  struct Near {
    CachedReplyRef reply;  // null: none was found
    // similarity of `reply`, or of the nearest question when none was found
    float similarity = 0;
    // a question reached the threshold but has other particulars
    bool refused = false;
  };
  Near find_near(const std::string& scope, std::span<const float> meaning,
                 const std::string& question, int64_t max_age);
  // Adds a reply, replacing an older one with the same key, and sets its times. meaning: embedding
  // of its question, normalized to length 1; empty: the reply is found by its key only.
  void put(CachedReply reply, std::vector<float> meaning = {});
  // Removes the replies of one model ("": of all models) and returns their number.
  int64_t forget(const std::string& model);
  // Age and remaining lifetime of a reply in seconds.
  int64_t age_of(const CachedReply& reply) const {
    return std::max<int64_t>(clock_() - reply.created, 0);
  }
  int64_t left_of(const CachedReply& reply) const {
    return std::max<int64_t>(reply.expires - clock_(), 0);
  }
  // Waits until all replies that were put are on disk.
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
  using Order = std::list<Kept>;  // most recently used first
  ReplyCache(const ReplyCacheConfig& config, Clock clock) : config_(config), clock_(clock) {}
  static int64_t unix_now();
  static int64_t bytes_of(const CachedReply& reply, size_t dimensions);

  void work();
  void read_table();
  void write(std::unique_lock<std::mutex>& lock);
  void end();
  // REQUIRES (this and the functions below): mutex_ is held.
  void insert(CachedReplyRef reply, std::span<const float> meaning);
  bool usable(Order::iterator kept, int64_t max_age);
  void remove(Order::iterator kept, int64_t& counter);
  void make_room();
  ReplyTable::Changes take_changes();
  // Whether replies are still on disk that a failed write was to remove.
  bool must_forget() const { return forget_all_ || !undone_.empty(); }

  const ReplyCacheConfig config_;
  const Clock clock_;
  // used by thread_ only; null: replies are not written
  std::unique_ptr<ReplyTable> table_;

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  Order order_;
  TextMap<Order::iterator> by_key_;
  std::unordered_map<MeaningIndex::Id, Order::iterator> by_id_;  // replies that have an embedding
  MeaningIndex meanings_;
  MeaningIndex::Id last_id_ = 0;
  Counts counts_;
  ReplyTable::Changes changes_;  // changes that are not on disk yet
  // changes of a write that failed, to be repeated
  ReplyTable::Changes undone_;
  // what the table has is to be removed: a write ended without memory
  bool forget_all_ = false;
  // the table is being read; models forgotten meanwhile are in changes_
  bool reading_ = false;
  bool writing_ = false, hurry_ = false, stopping_ = false;
  std::thread thread_;
};

}  // namespace penstock
