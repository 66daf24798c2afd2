#include "server/http/turn_threads.h"

#include <boost/asio/associated_executor.hpp>
#include <boost/asio/async_result.hpp>
#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <exception>
#include <memory>
#include <utility>

namespace penstock {

bool TurnThreads::add(const std::string& asker, Job job, size_t most) {
  {
    const std::lock_guard lock(mutex_);
    if (waiting_.size_of(asker) >= most) return false;
    waiting_.add(asker, std::move(job));
  }
  net::post(threads_, [this] { run_next(); });
  return true;
}

void TurnThreads::run_next() {
  Job job;
  {
    const std::lock_guard lock(mutex_);
    job = waiting_.take();
  }
  job.work();
  job.done();
}

void TurnThreads::stop() {
  threads_.stop();
  threads_.join();
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
    const auto executor = net::make_work_guard(net::get_associated_executor(handler));  // it is waited for
    const auto kept = std::make_shared<decltype(handler)>(std::move(handler));
    const auto come_back = [kept, executor](bool ran) {
      net::post(executor.get_executor(), [kept, ran] { std::move (*kept)(ran); });
    };
    if (!add(asker, {guarded, [come_back] { come_back(true); }}, most)) come_back(false);
  };
  const bool ran =
      co_await net::async_initiate<const net::use_awaitable_t<>, void(bool)>(begin, net::use_awaitable);
  if (thrown) std::rethrow_exception(thrown);
  co_return ran;
}

}  // namespace penstock
