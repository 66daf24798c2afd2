// Threads whose work is done in turns between those who ask for it.
#pragma once
#include <boost/asio/awaitable.hpp>
#include <condition_variable>
#include <functional>
#include <limits>
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
  explicit TurnThreads(size_t n_threads);
  ~TurnThreads() { stop(); }
  TurnThreads(const TurnThreads&) = delete;
  TurnThreads& operator=(const TurnThreads&) = delete;

  // Does `work` on one of the threads and comes back to the caller's executor. Throws what the work
  // throws. False: it was not done, as `most` of the asker wait already.
  net::awaitable<bool> run(std::string asker, std::function<void()> work,
                           size_t most = std::numeric_limits<size_t>::max());
  // Waits for what is being done; what waits never is.
  void stop();

 private:
  struct Job {
    std::function<void()> work;  // throws nothing
    std::function<void()> done;  // once, on whichever thread; throws nothing
  };
  bool add(const std::string& asker, Job job, size_t most);
  void serve();

  std::mutex mutex_;
  std::condition_variable wake_;
  Turns<Job> waiting_;
  bool stopping_ = false;
  std::vector<std::thread> threads_;
};

}  // namespace penstock
