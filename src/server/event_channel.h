// Carries engine events to the coroutine that answers a request.
//
// Filled on the engine thread, emptied on the connection's executor; one waiter at a time.
#pragma once
#include <boost/asio/awaitable.hpp>
#include <boost/asio/steady_timer.hpp>
#include <functional>
#include <memory>
#include <mutex>
#include <vector>

#include "frontend/session.h"
#include "server/exchange.h"

namespace penstock {

// An event of one of the prompts of a call.
struct PromptEvent {
  int prompt = 0;
  OwnedEvent event;
};

class EventChannel : public std::enable_shared_from_this<EventChannel> {
 public:
  explicit EventChannel(const net::any_io_executor& executor) : executor_(executor), wake_(executor) {}

  // The sink to submit prompt number `prompt` with.
  std::shared_ptr<EventSink> sink(int prompt);

  // Waits until there is news or `timeout` has passed; `out` becomes the news, its memory is used again.
  net::awaitable<void> next(std::vector<PromptEvent>& out, std::chrono::milliseconds timeout);
  // Ends a wait at once (the client is gone).
  void wake();
  // Called once, on the executor, when more waits here than a reader may leave; later events are dropped. The
  // request should be cancelled.
  std::function<void()> on_overflow;

 private:
  class Sink;
  void push(PromptEvent event);

  net::any_io_executor executor_;
  net::steady_timer wake_;  // used on the executor only
  mutable std::mutex mutex_;
  std::vector<PromptEvent> events_;
  size_t pending_bytes_ = 0;
  bool waiting_ = false, woken_ = false, overflowed_ = false;
};

}  // namespace penstock
