// Carries engine events to the coroutine that answers a request.
//
// Filled on the engine thread, emptied on the connection's executor; one waiter at a time.
#pragma once
#include <boost/asio/awaitable.hpp>
#include <boost/asio/steady_timer.hpp>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "frontend/session.h"
#include "server/http/exchange.h"

namespace penstock {

class Doorbell;

// The sink of all prompts of a call.
class EventChannel : public EventSink, public std::enable_shared_from_this<EventChannel> {
 public:
  explicit EventChannel(const net::any_io_executor& executor);
  ~EventChannel() override;

  void on_tokens(RequestId request, std::span<const TokenEvent> events) override;
  void on_prompt_logprobs(RequestId request, int first,
                          std::span<const std::span<const TokenLogprob>> rows) override;

  // From here on news are told of when a sequence ends, or many have gathered: for who needs none
  // of them sooner. A thread that is woken takes the CPU of one that computes. Before the request
  // is submitted.
  void gather() { gathers_ = true; }

  // Takes news, on the executor; false: no more for now. It may throw.
  using Take = std::function<bool(std::vector<OwnedEvent>&)>;
  // Hands news to `take` as they come, which resumes no coroutine; ends when `take` wants no more,
  // after wake(), or when nothing has come for `timeout`. What `take` throws comes out of here.
  net::awaitable<void> pass(const Take& take, std::chrono::milliseconds timeout);
  // Ends a pass() soon, and all later ones at once (the client is gone).
  void wake();
  // No more pass(); on the executor, before the coroutine that waited ends.
  void close();
  // Called once, on the executor, when more waits here than a reader may leave; later events are
  // dropped. The request should be cancelled.
  std::function<void()> on_overflow;

 private:
  friend class Doorbell;
  // A suspended coroutine.
  struct Waiter {
    virtual ~Waiter() = default;
    virtual void resume() = 0;
  };
  template <class Handler>
  struct WaiterOf;

  template <class Add>
  void push(size_t bytes, bool ended, Add&& add);
  void look();
  bool deliver();
  void resume();
  void arm(Clock::time_point when);
  void drop_waiter() { waiter_.reset(); }

  std::shared_ptr<Doorbell> bell_;

  // Of the executor only.
  std::optional<net::steady_timer> timer_;
  // when the timer runs out; max: it does not run
  Clock::time_point armed_ = Clock::time_point::max();
  Clock::time_point deadline_;  // of the wait for the next news
  std::unique_ptr<Waiter> waiter_;
  const Take* take_ = nullptr;  // of the pass() under way, as the next two
  std::chrono::milliseconds timeout_{};
  std::exception_ptr failure_;
  std::vector<OwnedEvent> taken_;  // kept for its memory
  bool woken_ = false;

  bool gathers_ = false;
  std::mutex mutex_;
  std::vector<OwnedEvent> events_;
  size_t pending_bytes_ = 0;
  bool waiting_ = false, overflowed_ = false;
};

}  // namespace penstock
