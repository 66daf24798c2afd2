// Computes the batches of /v1/batches, one at a time, while other requests leave room. Owners take
// turns: a long batch pauses for others.
#pragma once
#include <atomic>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/thread_pool.hpp>
#include <chrono>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "server/batches/batch_lines.h"
#include "server/batches/store/batches.h"

namespace penstock {

struct Services;

class BatchRunner {
 public:
  // REQUIRES: both arguments outlive this object.
  BatchRunner(Services& services, StoredBatches& batches);
  // Gives up the lines under way, which the next process computes again.
  ~BatchRunner();

  // Resumes unfinished batches and runs until stop(). REQUIRES: called once.
  void start();
  // Reports a new batch or a cancellation. Any thread.
  void wake();
  // Does not wait for the end; the destructor does.
  void stop();

  struct Counts {
    std::atomic<int64_t> lines_completed{0}, lines_failed{0};
    std::atomic<int> lines_running{0};
  };
  const Counts& counts() const { return counts_; }

 private:
  struct Run;
  bool is_revoked(Run& run) const;
  Status look_for_end(Run& run, BatchStatus& end);
  Status look_for_room(Run& run, BatchStatus& end);
  class UnderWay;
  net::awaitable<void> run();
  net::awaitable<bool> run_next();  // false: nothing to do
  // Returns the oldest batch of the owner who has waited longest; nullopt: none can be tried now.
  std::optional<StoredBatch> next_of(std::vector<StoredBatch> unfinished);
  bool may_try(const StoredBatch& batch) const;
  bool others_wait(const Run& run);
  Status end_damaged(Run& run, const Error& error);
  net::awaitable<void> run_batch(StoredBatch batch);
  net::awaitable<void> run_lines(const std::shared_ptr<Run>& run);
  net::awaitable<void> compute_lines(const std::shared_ptr<Run>& shared);
  net::awaitable<void> run_line(UnderWay line);
  net::awaitable<void> wait(std::chrono::milliseconds most);
  int room() const;

  Services& services_;
  StoredBatches& batches_;
  net::thread_pool thread_{1};  // the members below are used on this thread only
  net::steady_timer news_{thread_};
  bool told_ = false;                     // by wake(): the store has changed
  std::map<std::string, int64_t> turns_;  // by owner: number of the last turn
  int64_t n_turns_ = 0;
  // failed batches: when to retry
  std::map<std::string, std::chrono::steady_clock::time_point> again_;
  LineComputer lines_;
  Counts counts_;
  std::atomic<bool> stopping_{false};
};

}  // namespace penstock
