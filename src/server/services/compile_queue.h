// Compiling the grammars of requests: in turns between those who ask, quick ones never behind long ones.
#pragma once
#include <atomic>
#include <boost/asio/awaitable.hpp>
#include <boost/asio/thread_pool.hpp>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>

#include "base/result.h"
#include "frontend/grammar_cache.h"

namespace penstock {

namespace net = boost::asio;

// Every compilation is begun with a few steps (CompileEffort), some ten milliseconds of work. Those that need more go on,
// from their beginning, on a thread for long ones. In both lanes whoever asks takes turns with the others who ask.
// Any thread may call.
class CompileQueue {
 public:
  static constexpr uint64_t kQuickSteps = 2'000'000;
  static constexpr size_t kMostLong = 16;  // that wait, of each who asks

  // n_threads: of the quick lane.
  explicit CompileQueue(size_t n_threads) : quick_(n_threads), long_(1) {}

  // Called on one of the threads with what it may do; once more where that ran out.
  using Attempt = std::function<void(CompileEffort& effort)>;
  // asker: whose turn it is. gone: set when nobody wants the result any longer; what waits is left out then. Comes back to
  // the caller's executor. Errors: kResourceExhausted, too many long ones wait already. What `attempt` throws is thrown.
  net::awaitable<Status> run(std::string asker, const std::atomic<bool>& gone, Attempt attempt);
  // Waits for what is being compiled; what waits is never called.
  void stop();

 private:
  struct Job {
    std::function<void()> work;
    std::function<void()> done;  // once, on whichever thread
  };
  // One job after the other of each asker, one asker after the other.
  class Lane {
   public:
    explicit Lane(size_t n_threads) : threads_(n_threads) {}
    // Whether there is room: fewer than `most` of the asker wait.
    bool add(const std::string& asker, Job job, size_t most);
    void stop();

   private:
    void run_next();
    std::mutex mutex_;
    std::map<std::string, std::deque<Job>> waiting_;  // by asker, none empty
    std::deque<std::string> turns_;                   // the askers that wait
    net::thread_pool threads_;                        // destroyed first: what it runs uses the others
  };
  net::awaitable<bool> run_on(Lane& lane, const std::string& asker, std::function<void()> work, size_t most);

  Lane quick_, long_;
};

}  // namespace penstock
