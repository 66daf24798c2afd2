#include "server/services/compile_queue.h"

#include <boost/asio/associated_executor.hpp>
#include <boost/asio/async_result.hpp>
#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <exception>
#include <limits>

namespace penstock {

bool CompileQueue::Lane::add(const std::string& asker, Job job, size_t most) {
  {
    const std::lock_guard lock(mutex_);
    std::deque<Job>& own = waiting_[asker];
    if (own.size() >= most) return false;
    if (own.empty()) turns_.push_back(asker);
    own.push_back(std::move(job));
  }
  net::post(threads_, [this] { run_next(); });
  return true;
}

void CompileQueue::Lane::run_next() {
  Job job;
  {
    const std::lock_guard lock(mutex_);
    const auto own = waiting_.find(turns_.front());
    turns_.pop_front();
    job = std::move(own->second.front());
    own->second.pop_front();
    if (own->second.empty()) {
      waiting_.erase(own);
    } else {
      turns_.push_back(own->first);
    }
  }
  job.work();
  job.done();
}

void CompileQueue::Lane::stop() {
  threads_.stop();
  threads_.join();
}

void CompileQueue::stop() {
  quick_.stop();
  long_.stop();
}

// Whether there was room for it; it has been carried out then.
net::awaitable<bool> CompileQueue::run_on(Lane& lane, const std::string& asker, std::function<void()> work,
                                          size_t most) {
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
    if (!lane.add(asker, {guarded, [come_back] { come_back(true); }}, most)) come_back(false);
  };
  const bool ran =
      co_await net::async_initiate<const net::use_awaitable_t<>, void(bool)>(begin, net::use_awaitable);
  if (thrown) std::rethrow_exception(thrown);
  co_return ran;
}

net::awaitable<Status> CompileQueue::run(std::string asker, const std::atomic<bool>& gone, Attempt attempt) {
  CompileEffort effort{.cancelled = &gone, .max_steps = kQuickSteps, .waits = false};
  const std::function<void()> work = [&] {
    if (!gone) attempt(effort);
  };
  co_await run_on(quick_, asker, work, std::numeric_limits<size_t>::max());
  if (!effort.ran_out) co_return Status();
  effort = {.cancelled = &gone};
  if (co_await run_on(long_, asker, work, kMostLong)) co_return Status();
  co_return errorf(ErrorCode::kResourceExhausted, "{} large grammars wait to be compiled already", kMostLong);
}

}  // namespace penstock
