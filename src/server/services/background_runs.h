// Background responses: generated without a waiting client. Their events are kept until the run
// ends, so that a client can stream them from the beginning at any time.
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

#include "server/http/http_body.h"
#include "server/http/unattended_exchange.h"
#include "server/keys/ledger/spending.h"

namespace penstock {

// One background response. Thread-safe.
class BackgroundRun {
 public:
  BackgroundRun(std::string id, std::string payer, bool keeps_events)
      : id_(std::move(id)), payer_(std::move(payer)), keeps_events_(keeps_events) {}

  const std::string& id() const { return id_; }
  bool keeps_events() const { return keeps_events_; }
  bool begun() const { return begun_; }
  bool cancelled() const { return cancelled_; }
  bool overflowed() const { return overflowed_; }  // was cut off, since it had too many events
  // Appends the events from index `next` on to `text` and advances `next`; false: there will be no
  // more events.
  bool take(size_t& next, std::string& text) const;
  std::string events() const;  // all events

  // Calls `news` on any thread when there are new events, as long as `news` exists.
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
  // disconnects the running exchange; used on the runs' thread
  std::function<void()> leave_;
};

// Thread-safe.
class BackgroundRuns {
 public:
  // Limits in bytes: events of one run, and events and captures of all runs together.
  static constexpr size_t kMostBytes = size_t{32} << 20, kMostBytesOfAll = size_t{256} << 20;

  BackgroundRuns() = default;
  // Cuts off running responses.
  ~BackgroundRuns();

  // Memory of a run: its captures and the events that it is known to have. Further events take more
  // memory from the budget.
  struct Room {
    BodyBudget budget;
    size_t events = 0;  // bytes of events that the budget covers
  };
  // Reserves memory for a run. asker: the client, which may use three quarters of the memory.
  // Null: there is not enough.
  std::unique_ptr<Room> room_for(const std::string& asker, size_t n_held, size_t n_events);

  // Answers the exchange with a stream of events; retried after a while if it is refused with 429.
  // Its captures live as long as the run.
  using Work = std::function<net::awaitable<void>(BackgroundRun&, UnattendedExchange&)>;
  // Starts a run. asked: the exchange that requested it, whose request is copied. A run is cut off
  // when there is no room for its events.
  std::shared_ptr<BackgroundRun> start(const std::string& id, bool keeps_events,
                                       const Exchange& asked, std::unique_ptr<Room> room,
                                       Work work);
  // Null: no such run is under way.
  std::shared_ptr<BackgroundRun> find(const std::string& id) const;
  // Ends a run soon, like a disconnect. No effect if there is none.
  void cancel(const std::string& id);
  // Cancels all runs requested with the API key of this id.
  void cancel_those_of(const std::string& payer);
  // Waits until `end` for the runs to finish, then cuts them off and calls `at_end`, which must end
  // what they wait for.
  void drain(std::chrono::steady_clock::time_point end, const std::function<void()>& at_end = {});
  int n_running() const;

 private:
  // Ends its run in the destructor.
  struct Task {
    explicit Task(BackgroundRuns& runs) : runs(runs) {}
    ~Task() { runs.end(*this); }
    Task(const Task&) = delete;
    Task& operator=(const Task&) = delete;
    BackgroundRuns& runs;
    std::shared_ptr<BackgroundRun> run;
    HttpRequest request;
    // spending of the exchange that requested the run
    std::shared_ptr<Spending> spending;
    std::unique_ptr<Room> room;
    Work work;
  };
  void end(Task& task);
  net::awaitable<void> carry_out(std::unique_ptr<Task> task);
  net::awaitable<bool> try_once(Task& task);  // false: to be retried

  net::thread_pool thread_{1};
  mutable std::mutex mutex_;
  std::condition_variable ended_;
  std::map<std::string, std::shared_ptr<BackgroundRun>, std::less<>> runs_;
  std::atomic<int64_t> n_bytes_{0};  // bytes of all rooms
  BodyShares shares_;                // the same by client
  std::atomic<bool> stopping_{false};
};

}  // namespace penstock
