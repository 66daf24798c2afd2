// Threads for work that would block connections: parsing, rendering and tokenizing of bodies, and
// writing of large replies.
#pragma once
#include <array>
#include <boost/asio/thread_pool.hpp>
#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "server/http/exchange.h"
#include "server/http/turns.h"

namespace penstock {

// Three threads with growing limits on the size of work. Clients take turns, and each client's work
// runs in order. A thread whose queue is empty also takes smaller work, but small work never waits
// for large work. Thread-safe.
class ApartThreads {
 public:
  // Limits of the first and the second thread: approximate bytes read and written.
  static constexpr size_t kSmall = 256 * 1024, kMedium = 4 * 1024 * 1024;

  ApartThreads();
  ~ApartThreads() { stop(); }
  ApartThreads(const ApartThreads&) = delete;
  ApartThreads& operator=(const ApartThreads&) = delete;

  // Runs `work` inside a Work scope (base/work.h) that ends when the client leaves, then resumes on
  // the exchange's executor. REQUIRES: what `work` refers to lives until then. Throws what the work
  // throws, and WorkEnded when cancelled.
  net::awaitable<void> run(Exchange& exchange, size_t n_bytes, std::function<void()> work);
  // Cancels queued and running work, and all work that is added later.
  void cancel_all();
  // As cancel_all(), and waits for the end. REQUIRES: the exchanges' executors live until then.
  void stop();

 private:
  struct Job;
  static constexpr size_t kLanes = 3;
  // false: closed
  bool add(const std::string& asker, const std::shared_ptr<Job>& job);
  void serve(size_t lane);
  std::shared_ptr<Job> next(size_t lane);

  std::mutex mutex_;
  std::condition_variable wake_;
  std::array<Turns<std::shared_ptr<Job>>, kLanes> waiting_;
  std::array<std::shared_ptr<Job>, kLanes> running_;
  bool closed_ = false, stopping_ = false;
  std::vector<std::thread> threads_;
};

// Runs `work` on one of the threads and resumes the caller.
net::awaitable<void> run_on(net::thread_pool& threads, std::function<void()> work);

}  // namespace penstock
