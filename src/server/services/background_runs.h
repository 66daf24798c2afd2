// Replies that are made while nobody waits for them: as streams of events that are kept until the
// run ends, so that whoever asks later gets all of them.
#pragma once
#include <atomic>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/thread_pool.hpp>
#include <condition_variable>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "server/http/unattended_exchange.h"
#include "server/keys/ledger/spending.h"

namespace penstock {

// One of them. Any thread.
class BackgroundRun {
 public:
  BackgroundRun(std::string id, std::string payer, bool keeps_events)
      : id_(std::move(id)), payer_(std::move(payer)), keeps_events_(keeps_events) {}

  const std::string& id() const { return id_; }
  bool keeps_events() const { return keeps_events_; }
  bool begun() const { return begun_; }
  bool cancelled() const { return cancelled_; }
  bool overflowed() const { return overflowed_; }  // it was cut, for it had too many events
  // Takes the events from the place `next` on into `text`, which they follow; false: there will be
  // no more.
  bool take(size_t& next, std::string& text) const;
  std::string events() const;  // all of them

  // Calls `news`, on whichever thread, when there is more, until it is destroyed.
  using News = std::function<void()>;
  void watch(const std::shared_ptr<News>& news);

 private:
  friend class BackgroundRuns;
  class Away;
  void add(std::string_view chunk);
  void end();
  void tell();

  const std::string id_, payer_;
  const bool keeps_events_;
  std::atomic<bool> begun_{false}, cancelled_{false}, overflowed_{false};
  mutable std::mutex mutex_;
  std::vector<std::string> events_;
  std::vector<std::weak_ptr<News>> watchers_;
  bool ended_ = false;
  // of the exchange under way, on the runs' thread
  std::function<void()> leave_;
};

// Any thread.
class BackgroundRuns {
 public:
  // What a run may keep of events, and where no more are begun.
  static constexpr size_t kMostBytes = size_t{32} << 20, kMostBytesOfAll = size_t{256} << 20;

  BackgroundRuns() = default;
  // What runs is cut.
  ~BackgroundRuns();

  // Answers the exchange, as a stream of events; called again after a while when that is refused
  // with 429. What it holds lives as long as the run.
  using Work = std::function<net::awaitable<void>(BackgroundRun&, UnattendedExchange&)>;
  // asked: the exchange that asked for it, whose request the run's has. n_held: bytes that `work`
  // holds.
  std::shared_ptr<BackgroundRun> start(const std::string& id, bool keeps_events,
                                       const Exchange& asked, size_t n_held, Work work);
  // Null: no such run is under way.
  std::shared_ptr<BackgroundRun> find(const std::string& id) const;
  // It ends soon, as one whose client leaves. Nothing when it is not there.
  void cancel(const std::string& id);
  // The same of all that the API key of that id has asked for.
  void cancel_those_of(const std::string& payer);
  // Waits for the runs to end, until `end`; then cuts them, and calls `at_end` for what they wait
  // for.
  void drain(std::chrono::steady_clock::time_point end, const std::function<void()>& at_end = {});
  int n_running() const;
  bool full() const { return n_bytes_ > kMostBytesOfAll; }

 private:
  // Ends its run when it is destroyed.
  struct Task {
    explicit Task(BackgroundRuns& runs) : runs(runs) {}
    ~Task() { runs.end(*this); }
    Task(const Task&) = delete;
    Task& operator=(const Task&) = delete;
    BackgroundRuns& runs;
    std::shared_ptr<BackgroundRun> run;
    HttpRequest request;
    std::shared_ptr<Spending> spending;  // that of the exchange which asked for it
    size_t n_held = 0;
    Work work;
  };
  void end(Task& task);
  net::awaitable<void> carry_out(std::unique_ptr<Task> task);
  net::awaitable<bool> try_once(Task& task);  // false: it is to be tried again

  net::thread_pool thread_{1};
  mutable std::mutex mutex_;
  std::condition_variable ended_;
  std::map<std::string, std::shared_ptr<BackgroundRun>, std::less<>> runs_;
  std::atomic<size_t> n_bytes_{0};  // of events and what the works hold
  std::atomic<bool> stopping_{false};
};

}  // namespace penstock
