// Work that would hold up the connections: bodies are parsed, rendered and tokenized, and large
// replies written, on threads of their own.
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

// Three threads, each for work up to a size. Whoever asks takes turns with the others who ask, and
// what each asks for is done in its order, by the thread of its size, or sooner by one for larger
// work that has none: small work never waits for large work. Methods may be called from any thread.
class ApartThreads {
 public:
  // Bytes that work reads and writes, about: what the first and the second thread take at most.
  static constexpr size_t kSmall = 256 * 1024, kMedium = 4 * 1024 * 1024;

  ApartThreads();
  ~ApartThreads() { stop(); }
  ApartThreads(const ApartThreads&) = delete;
  ApartThreads& operator=(const ApartThreads&) = delete;

  // Does `work` in the scope of a Work (base/work.h), which ends when the client leaves, and comes
  // back to the exchange's executor. What it refers to must live until then, which the caller's
  // frame does. Throws what the work throws, and WorkEnded when it was cancelled.
  net::awaitable<void> run(Exchange& exchange, size_t n_bytes, std::function<void()> work);
  // Cancels what is here, and from now on whatever comes.
  void cancel_all();
  // The same, and waits for it. Executors of the exchanges must live until then.
  void stop();

 private:
  struct Job;
  static constexpr size_t kLanes = 3;
  // false: nothing is taken any more
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

// Does `work` on one of these threads and comes back.
net::awaitable<void> run_on(net::thread_pool& threads, std::function<void()> work);

}  // namespace penstock
