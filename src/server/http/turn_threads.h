// Threads that serve several askers in turns.
#pragma once
#include <boost/asio/awaitable.hpp>
#include <condition_variable>
#include <functional>
#include <limits>
#include <map>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "server/http/turns.h"

namespace penstock {

namespace net = boost::asio;

// Thread-safe.
class TurnThreads {
 public:
  static constexpr size_t kAny = std::numeric_limits<size_t>::max();

  // Threads are started as they are needed. most_of_one: maximum number of threads that work for one
  // asker at a time. most_further: maximum number that work for askers for whom another one works
  // already; the rest is left for those that have none.
  explicit TurnThreads(size_t n_threads, size_t most_of_one = kAny, size_t most_further = kAny);
  ~TurnThreads() { stop(); }
  TurnThreads(const TurnThreads&) = delete;
  TurnThreads& operator=(const TurnThreads&) = delete;

  // Runs `work` on one of the threads and resumes on the caller's executor. Throws what the work
  // throws. false: not run, since `most` jobs of the asker are already waiting.
  net::awaitable<bool> run(std::string asker, std::function<void()> work, size_t most = kAny);
  // Waits for running jobs; waiting ones are dropped.
  void stop();

 private:
  struct Job {
    std::function<void()> work;  // throws nothing
    std::function<void()> done;  // called once on any thread; throws nothing
    std::string asker;
  };
  bool add(Job job, size_t most);
  void start_thread_if_needed();
  void end_of(const std::string& asker);
  void serve();

  const size_t n_threads_, most_of_one_, most_further_;
  std::mutex mutex_;
  std::condition_variable wake_;
  Turns<Job> waiting_;
  std::map<std::string, size_t> n_running_;  // by asker; also has askers that only wait
  size_t n_waiting_ = 0, n_idle_ = 0;        // jobs; threads
  size_t n_further_ = 0;                     // running jobs beside another one of their asker
  bool stopping_ = false;
  std::vector<std::thread> threads_;
};

}  // namespace penstock
