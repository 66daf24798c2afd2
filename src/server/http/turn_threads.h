// Threads whose work is done in turns between those who ask for it.
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

// Any thread may call.
class TurnThreads {
 public:
  static constexpr size_t kAny = std::numeric_limits<size_t>::max();

  // most_of_one: so many threads work for one asker at once.
  explicit TurnThreads(size_t n_threads, size_t most_of_one = kAny);
  ~TurnThreads() { stop(); }
  TurnThreads(const TurnThreads&) = delete;
  TurnThreads& operator=(const TurnThreads&) = delete;

  // Does `work` on one of the threads and comes back to the caller's executor. Throws what the work
  // throws. False: it was not done, as `most` of the asker wait already.
  net::awaitable<bool> run(std::string asker, std::function<void()> work, size_t most = kAny);
  // Waits for what is being done; what waits never is.
  void stop();

 private:
  struct Job {
    std::function<void()> work;  // throws nothing
    std::function<void()> done;  // once, on whichever thread; throws nothing
    std::string asker;
  };
  bool add(Job job, size_t most);
  void end_of(const std::string& asker);
  void serve();

  const size_t most_of_one_;
  std::mutex mutex_;
  std::condition_variable wake_;
  Turns<Job> waiting_;
  std::map<std::string, size_t> n_running_;  // by asker, also of those that only wait
  bool stopping_ = false;
  std::vector<std::thread> threads_;
};

}  // namespace penstock
