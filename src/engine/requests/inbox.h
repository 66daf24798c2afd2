// Queue of requests, cancellations and jobs from callers to the engine thread. Bounded: requests
// are refused when it is full.
//
// The callers' side: any thread. The engine's side: engine thread only.
#pragma once
#include <atomic>
#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <vector>

#include "engine/requests/request_state.h"

namespace penstock {

class Inbox {
 public:
  using Numbers = std::shared_ptr<std::atomic<uint64_t>>;  // number of the next request
  // max_requests, max_tokens: most requests that have not begun to run, and most prompt tokens of
  // these (0 = no limit). next_request: counter that several inboxes share; null: an own one.
  Inbox(int max_requests, int64_t max_tokens, Numbers next_request = nullptr)
      : max_requests_(max_requests),
        max_tokens_(max_tokens),
        next_request_(next_request != nullptr ? std::move(next_request)
                                              : std::make_shared<std::atomic<uint64_t>>(1)) {}

  struct Cancel {
    RequestId request;
    int index;  // which of the request's sequences; -1: all
    FinishReason reason;
  };
  struct Content {
    std::vector<std::unique_ptr<RequestState>> requests;
    std::vector<Cancel> cancels;
    bool reset_prefix_cache = false;
  };

  // --- Callers
  // Queues a request. Errors: kResourceExhausted (the queue is full, or no memory: then nothing was
  // queued), kCancelled.
  Result<RequestId> submit(std::unique_ptr<RequestState> state);
  void cancel(const Cancel& cancel);
  void reset_prefix_cache();
  // Has the engine thread do `work` between two steps and waits for it; does it on this thread when
  // there is no engine thread. Errors: kCancelled, kResourceExhausted.
  Status between_steps(const std::function<void()>& work);

  // --- The engine
  // an engine thread serves the inbox from now on
  void open();
  // refuses everything from now on; wait() returns false
  void close();
  void unserved();  // the engine thread has ended
  // Moves what came since the last call into `content`. REQUIRES: `content` is empty.
  void take(Content& content);
  // Does the work of between_steps(); called between two steps.
  void run_jobs();
  // Takes a request that begins to run, or has ended, out of the counts of queued requests and
  // tokens.
  void leave(RequestState& state);
  int64_t n_rejected() const;

  // Ends a wait() that goes on, or the next one. Any thread.
  void wake();
  // Waits until something comes, or for this time. False: the inbox was closed.
  bool wait(Clock::time_point until);

 private:
  struct Job {
    const std::function<void()>* work;
    bool done = false, failed = false;  // failed: it threw std::bad_alloc
  };

  const int max_requests_;
  const int64_t max_tokens_;
  mutable std::mutex mutex_;
  std::condition_variable filled_, job_done_;
  Content content_;
  // jobs of callers that wait in between_steps()
  std::vector<Job*> jobs_;
  bool closed_ = false, served_ = false, woken_ = false;
  const Numbers next_request_;
  int n_queued_ = 0;
  int64_t n_queued_tokens_ = 0, n_rejected_ = 0;
};

}  // namespace penstock
