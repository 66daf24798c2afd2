// What callers leave for the engine thread, and how the two wait for each other. Bounded: who comes when it is full is
// refused.
//
// Callers: any thread. The engine's side: its thread alone.
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
  using Numbers = std::shared_ptr<std::atomic<uint64_t>>;  // the next request's
  // Of requests that have not begun to run; max_tokens: of their prompts, 0 = no limit. next_request: with several inboxes that
  // number their requests together.
  Inbox(int max_requests, int64_t max_tokens, Numbers next_request = nullptr)
      : max_requests_(max_requests),
        max_tokens_(max_tokens),
        next_request_(next_request != nullptr ? std::move(next_request)
                                              : std::make_shared<std::atomic<uint64_t>>(1)) {}

  struct Cancel {
    RequestId request;
    int index;  // -1: all
    FinishReason reason;
  };
  struct Content {
    std::vector<std::unique_ptr<RequestState>> requests;
    std::vector<Cancel> cancels;
    bool reset_prefix_cache = false;
  };

  // --- Callers -------------------------------------------------------------------------------------------------
  // Errors: kResourceExhausted, kCancelled. What runs out of memory leaves nothing behind.
  Result<RequestId> submit(std::unique_ptr<RequestState> state);
  void cancel(const Cancel& cancel);
  void reset_prefix_cache();
  // Has `work` done by the engine thread between two steps, or does it here when there is none. Errors: kCancelled,
  // kResourceExhausted.
  Status between_steps(const std::function<void()>& work);

  // --- The engine ----------------------------------------------------------------------------------------------
  void open();      // a thread of the engine serves from here on
  void close();     // nobody gets in any more; wait() returns false
  void unserved();  // that thread is gone
  // What came since the last call; `content` was emptied.
  void take(Content& content);
  // Between two steps: what callers wait for.
  void run_jobs();
  // The request does not count against the bounds any more: it runs, or has ended.
  void leave(RequestState& state);
  int64_t n_rejected() const;

  enum class Patience : uint8_t { kNone, kSome, kUntilWork };
  // Until something comes, half a millisecond at most with kSome. False: it was closed.
  bool wait(Patience patience);

 private:
  struct Job {
    const std::function<void()>* work;
    bool done = false, failed = false;  // failed: for want of memory
  };

  const int max_requests_;
  const int64_t max_tokens_;
  mutable std::mutex mutex_;
  std::condition_variable filled_, job_done_;
  Content content_;
  std::vector<Job*> jobs_;  // of callers that wait in between_steps
  bool closed_ = false, served_ = false;
  const Numbers next_request_;
  int n_queued_ = 0;
  int64_t n_queued_tokens_ = 0, n_rejected_ = 0;
};

}  // namespace penstock
