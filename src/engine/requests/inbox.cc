#include "engine/requests/inbox.h"

#include <chrono>
#include <new>
#include <utility>

#include "base/result.h"

namespace penstock {

Result<RequestId> Inbox::submit(std::unique_ptr<RequestState> state) {
  const auto n_prompt = static_cast<int64_t>(state->request.prompt.size());
  const std::lock_guard lock(mutex_);
  if (closed_) return errorf(ErrorCode::kCancelled, "the engine is shutting down");
  if (n_queued_ >= max_requests_) {
    ++n_rejected_;
    return errorf(ErrorCode::kResourceExhausted, "the queue is full: {} requests are waiting",
                  n_queued_);
  }
  if (max_tokens_ > 0 && n_queued_ > 0 && n_queued_tokens_ + n_prompt > max_tokens_) {
    ++n_rejected_;
    return errorf(ErrorCode::kResourceExhausted,
                  "the queue is full: {} prompt tokens are waiting, at most {} may",
                  n_queued_tokens_, max_tokens_);
  }
  RequestState& request = *state;
  content_.requests.push_back(std::move(state));  // the last operation that may run out of memory
  const RequestId id{next_request_->fetch_add(1)};
  request.id = id;
  ++n_queued_;
  n_queued_tokens_ += n_prompt;
  filled_.notify_one();
  return id;
}

void Inbox::cancel(const Cancel& cancel) {
  const std::lock_guard lock(mutex_);
  content_.cancels.push_back(cancel);
  filled_.notify_one();
}

void Inbox::reset_prefix_cache() {
  const std::lock_guard lock(mutex_);
  content_.reset_prefix_cache = true;
  filled_.notify_one();
}

Status Inbox::between_steps(const std::function<void()>& work) {
  std::unique_lock lock(mutex_);
  if (!served_) {
    lock.unlock();
    work();
    return {};
  }
  if (closed_) return errorf(ErrorCode::kCancelled, "the engine is shutting down");
  Job job{&work};
  jobs_.push_back(&job);
  filled_.notify_one();
  job_done_.wait(lock, [&] { return job.done; });
  if (job.failed) return make_error(ErrorCode::kResourceExhausted, "out of memory");
  return {};
}

void Inbox::open() {
  const std::lock_guard lock(mutex_);
  closed_ = false;
  served_ = true;
}

void Inbox::close() {
  const std::lock_guard lock(mutex_);
  closed_ = true;
  filled_.notify_one();
}

void Inbox::unserved() {
  const std::lock_guard lock(mutex_);
  served_ = false;
}

void Inbox::take(Content& content) {
  const std::lock_guard lock(mutex_);
  content.requests.swap(content_.requests);
  content.cancels.swap(content_.cancels);
  content.reset_prefix_cache = std::exchange(content_.reset_prefix_cache, false);
}

void Inbox::run_jobs() {
  std::vector<Job*> jobs;
  {
    const std::lock_guard lock(mutex_);
    jobs.swap(jobs_);
  }
  if (jobs.empty()) return;
  for (Job* job : jobs) {
    try {
      (*job->work)();
    } catch (const std::bad_alloc&) {
      job->failed = true;
    }
  }
  const std::lock_guard lock(mutex_);
  for (Job* job : jobs) job->done = true;
  job_done_.notify_all();
}

void Inbox::leave(RequestState& state) {
  if (!state.queued) return;
  state.queued = false;
  const std::lock_guard lock(mutex_);
  --n_queued_;
  n_queued_tokens_ -= static_cast<int64_t>(state.request.prompt.size());
}

int64_t Inbox::n_rejected() const {
  const std::lock_guard lock(mutex_);
  return n_rejected_;
}

void Inbox::wake() {
  const std::lock_guard lock(mutex_);
  woken_ = true;
  filled_.notify_one();
}

bool Inbox::wait(Clock::time_point until) {
  std::unique_lock lock(mutex_);
  if (closed_) return false;
  const auto has_work = [&] {
    return closed_ || !content_.requests.empty() || !content_.cancels.empty() || !jobs_.empty() ||
           content_.reset_prefix_cache || woken_;
  };
  if (until == Clock::time_point::max()) {
    filled_.wait(lock, has_work);
  } else if (until != Clock::time_point::min()) {
    filled_.wait_until(lock, until, has_work);
  }
  woken_ = false;  // each wake() ends one wait
  return true;
}

}  // namespace penstock
