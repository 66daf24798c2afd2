// A channel of engine events to the coroutine that answers a request.
//
// The engine thread writes, the connection's executor reads; at most one waiter at a time.
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

// The event sink of all prompts of a call.
class EventChannel : public EventSink, public std::enable_shared_from_this<EventChannel> {
 public:
  explicit EventChannel(const net::any_io_executor& executor);
  ~EventChannel() override;

  void on_tokens(RequestId request, std::span<const TokenEvent> events) override;
  void on_prompt_logprobs(RequestId request, int first,
                          std::span<const std::span<const TokenLogprob>> rows) override;

  // Delivers events only when a sequence ends or many events have gathered, since every wake-up
  // takes CPU time from the computation. For readers that need no early events. REQUIRES: called
  // before the request is submitted.
  void gather() { gathers_ = true; }

  // Consumes events on the executor; returns false to stop. May throw.
  using Take = std::function<bool(std::vector<OwnedEvent>&)>;
  // Calls `take` with events as they arrive, without resuming the coroutine. Returns when `take`
  // returns false, after wake(), or when no event has arrived for `timeout`. Rethrows exceptions of
  // `take`.
  net::awaitable<void> pass(const Take& take, std::chrono::milliseconds timeout);
  // Makes the current pass() return soon and all later ones at once, because the client is gone.
  // Throws nothing: whoever leaves may do so in a destructor or a thread's handler.
  void wake();
  // Ends the use of pass(). REQUIRES: called on the executor, before the waiting coroutine ends.
  void close();
  // Called once, on the executor, when more events are pending than a slow reader may leave; later
  // events are dropped. The callback should cancel the request.
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

  // The members from here to gathers_ are used on the executor only.
  std::optional<net::steady_timer> timer_;
  // expiry of timer_; max: it does not run
  Clock::time_point armed_ = Clock::time_point::max();
  Clock::time_point deadline_;  // end of the wait for the next event
  std::unique_ptr<Waiter> waiter_;
  const Take* take_ = nullptr;  // arguments and exception of the current pass()
  std::chrono::milliseconds timeout_{};
  std::exception_ptr failure_;
  std::vector<OwnedEvent> taken_;  // reused buffer
  bool woken_ = false;

  bool gathers_ = false;
  std::mutex mutex_;
  std::vector<OwnedEvent> events_;
  size_t pending_bytes_ = 0;
  bool waiting_ = false, overflowed_ = false;
};

}  // namespace penstock
