#include "server/http/turn_threads.h"

#include <boost/asio/associated_executor.hpp>
#include <boost/asio/async_result.hpp>
#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <exception>
#include <memory>
#include <utility>

#include "server/http/post_surely.h"

namespace penstock {

TurnThreads::TurnThreads(size_t n_threads, size_t most_of_one, size_t most_further)
    : n_threads_(n_threads), most_of_one_(most_of_one), most_further_(most_further) {
  threads_.reserve(n_threads);
  threads_.emplace_back([this] { serve(); });
}

void TurnThreads::start_thread_if_needed() {
  if (stopping_ || n_waiting_ <= n_idle_ || threads_.size() == n_threads_) return;
  try {
    threads_.emplace_back([this] { serve(); });
  } catch (const std::exception&) {  // the system has no more threads: those that are there do it
  }
}

bool TurnThreads::add(Job job, size_t most) {
  const std::lock_guard lock(mutex_);
  const std::string asker = job.asker;
  if (waiting_.size_of(asker) >= most) return false;
  n_running_.try_emplace(asker, 0);
  waiting_.add(asker, std::move(job));
  ++n_waiting_;
  start_thread_if_needed();
  wake_.notify_one();
  return true;
}

void TurnThreads::end_of(const std::string& asker) {
  const std::lock_guard lock(mutex_);
  const auto running = n_running_.find(asker);
  if (--running->second > 0)
    --n_further_;
  else if (waiting_.size_of(asker) == 0)
    n_running_.erase(running);
}

void TurnThreads::serve() {
  for (;;) {
    std::optional<Job> job;
    {
      const auto may = [this](const std::string& asker) {
        const size_t n = n_running_.find(asker)->second;
        return n == 0 || (n < most_of_one_ && n_further_ < most_further_);
      };
      std::unique_lock lock(mutex_);
      ++n_idle_;
      wake_.wait(lock, [&] { return stopping_ || (job = waiting_.take_if(may)); });
      --n_idle_;
      if (stopping_) return;
      --n_waiting_;
      if (n_running_.find(job->asker)->second++ > 0) ++n_further_;
    }
    job->work();
    end_of(job->asker);
    job->done();
  }
}

void TurnThreads::stop() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
    wake_.notify_all();
  }
  for (std::thread& thread : threads_) thread.join();
  threads_.clear();
}

net::awaitable<bool> TurnThreads::run(std::string asker, std::function<void()> work, size_t most) {
  std::exception_ptr thrown;
  const auto guarded = [&thrown, &work] {
    try {
      work();
    } catch (...) {
      thrown = std::current_exception();
    }
  };
  const auto begin = [&](auto handler) {
    // keeps the executor running
    const auto executor = net::make_work_guard(net::get_associated_executor(handler));
    const auto kept = std::make_shared<decltype(handler)>(std::move(handler));
    const auto come_back = [kept, executor](bool ran) {
      post_surely(executor.get_executor(), [kept, ran] { std::move (*kept)(ran); });
    };
    if (!add({guarded, [come_back] { come_back(true); }, asker}, most)) come_back(false);
  };
  const bool ran = co_await net::async_initiate<const net::use_awaitable_t<>, void(bool)>(
      begin, net::use_awaitable);
  if (thrown) std::rethrow_exception(thrown);
  co_return ran;
}

}  // namespace penstock
