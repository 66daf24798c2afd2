#include "server/http/apart_threads.h"

#include <malloc.h>
#include <pthread.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <boost/asio/as_tuple.hpp>
#include <boost/asio/associated_executor.hpp>
#include <boost/asio/async_result.hpp>
#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <exception>

#include "base/work.h"
#include "server/http/post_surely.h"

namespace penstock {
namespace {

constexpr size_t kMuch = 1 << 20;  // bytes
constexpr int kNicer =
    // nice value: threads for larger work have lower priority than those for smaller work
    5;

}  // namespace

// done: used on the executor only; failure: written before it.
struct ApartThreads::Job {
  Job(const net::any_io_executor& executor, size_t n_bytes, std::function<void()> task)
      : arrival(executor, net::steady_timer::time_point::max()),
        n_bytes(n_bytes),
        task(std::move(task)) {}
  net::steady_timer arrival;
  const size_t n_bytes;
  std::function<void()> task;
  Work work;
  std::exception_ptr failure;
  bool done = false;

  void run() {
    try {
      const WorkScope scope(work);
      give_way();
      task();
    } catch (...) {
      failure = std::current_exception();
    }
    // return the memory of large work to the system
    if (n_bytes > kMuch) malloc_trim(0);
  }
};

ApartThreads::ApartThreads() {
  try {
    for (size_t lane = 0; lane < kLanes; ++lane)
      threads_.emplace_back([this, lane] { serve(lane); });
  } catch (...) {  // no more threads available
    stop();
    throw;
  }
}

net::awaitable<void> ApartThreads::run(Exchange& exchange, size_t n_bytes,
                                       std::function<void()> work) {
  const auto job = std::make_shared<Job>(exchange.executor(), n_bytes, std::move(work));
  if (exchange.gone()) job->work.cancel();
  exchange.on_disconnect = [job] { job->work.cancel(); };
  if (!add(exchange.request().asker(), job)) throw WorkEnded({ErrorCode::kCancelled, "cancelled"});
  while (!job->done) co_await job->arrival.async_wait(net::as_tuple(net::use_awaitable));
  exchange.on_disconnect = nullptr;
  if (job->failure) std::rethrow_exception(job->failure);
}

bool ApartThreads::add(const std::string& asker, const std::shared_ptr<Job>& job) {
  const std::lock_guard lock(mutex_);
  if (closed_) return false;
  waiting_[job->n_bytes <= kSmall ? 0 : job->n_bytes <= kMedium ? 1 : 2].add(asker, job);
  wake_.notify_all();
  return true;
}

// Returns the next job of this lane, or else of the largest smaller one. REQUIRES: mutex_.
std::shared_ptr<ApartThreads::Job> ApartThreads::next(size_t lane) {
  for (size_t size = lane + 1; size > 0; --size) {
    auto& queue = waiting_[size - 1];
    if (!queue.empty()) return queue.take();
  }
  return nullptr;
}

void ApartThreads::serve(size_t lane) {
  pthread_setname_np(pthread_self(), "penstock-apart");
  setpriority(PRIO_PROCESS, static_cast<id_t>(syscall(SYS_gettid)),
              static_cast<int>(lane) * kNicer);
  for (std::unique_lock lock(mutex_);;) {
    auto job = next(lane);
    if (job == nullptr) {
      if (stopping_) return;
      wake_.wait(lock);
      continue;
    }
    running_[lane] = job;
    lock.unlock();
    job->run();
    lock.lock();
    running_[lane] = nullptr;
    lock.unlock();
    const auto executor = job->arrival.get_executor();
    post_surely(executor, [job = std::move(job)] {
      job->done = true;
      job->arrival.cancel();
    });
    lock.lock();
  }
}

void ApartThreads::cancel_all() {
  const std::lock_guard lock(mutex_);
  closed_ = true;
  for (const auto& queue : waiting_) queue.for_each([](const auto& job) { job->work.cancel(); });
  for (const auto& job : running_) {
    if (job != nullptr) job->work.cancel();
  }
}

void ApartThreads::stop() {
  cancel_all();
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
    wake_.notify_all();
  }
  for (std::thread& thread : threads_) thread.join();
  threads_.clear();
}

// The caller is resumed while the threads do other work, which co_spawn() does not promise: the
// next work may wait for what the caller holds.
net::awaitable<void> run_on(net::thread_pool& threads, std::function<void()> work) {
  std::exception_ptr thrown;
  const auto begin = [&](auto handler) {
    // keeps the executor running
    const auto executor = net::make_work_guard(net::get_associated_executor(handler));
    const auto kept = std::make_shared<decltype(handler)>(std::move(handler));
    net::post(threads, [&thrown, &work, executor, kept] {
      try {
        work();
      } catch (...) {
        thrown = std::current_exception();
      }
      post_surely(executor.get_executor(), [kept] { std::move (*kept)(); });
    });
  };
  co_await net::async_initiate<const net::use_awaitable_t<>, void()>(begin, net::use_awaitable);
  if (thrown) std::rethrow_exception(thrown);
}

}  // namespace penstock
