#include "server/event_channel.h"

#include <boost/asio/as_tuple.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/use_awaitable.hpp>

namespace penstock {
namespace {

// Token events that may wait for a reader that does not read. The prompt's log-probabilities, which come in
// bursts, do not count: what there is of them is part of the reply in any case.
constexpr size_t kMostPendingBytes = 8 << 20;

size_t bytes_of(const OwnedEvent& event) {
  if (event.first_position >= 0) return 0;
  return sizeof(event) + event.alternatives.size() * sizeof(TokenLogprob);
}

}  // namespace

class EventChannel::Sink : public EventQueue {
 public:
  Sink(std::shared_ptr<EventChannel> channel, int prompt) : channel_(std::move(channel)), prompt_(prompt) {}

  void on_tokens(RequestId request, std::span<const TokenEvent> events) override {
    EventQueue::on_tokens(request, events);
    forward();
  }
  void on_prompt_logprobs(RequestId request, int first,
                          std::span<const std::span<const TokenLogprob>> rows) override {
    EventQueue::on_prompt_logprobs(request, first, rows);
    forward();
  }

 private:
  void forward() {
    std::vector<OwnedEvent> events;
    pop(events, std::chrono::milliseconds(0));
    for (OwnedEvent& event : events) channel_->push({prompt_, std::move(event)});
  }

  std::shared_ptr<EventChannel> channel_;
  int prompt_;
};

std::shared_ptr<EventSink> EventChannel::sink(int prompt) {
  return std::make_shared<Sink>(shared_from_this(), prompt);
}

void EventChannel::push(PromptEvent event) {
  bool wake_needed = false;
  {
    const std::scoped_lock lock(mutex_);
    if (overflowed_) return;
    pending_bytes_ += bytes_of(event.event);
    if (pending_bytes_ > kMostPendingBytes) {
      overflowed_ = true;
      net::post(executor_, [self = shared_from_this()] {
        if (self->on_overflow) self->on_overflow();
      });
      return;
    }
    events_.push_back(std::move(event));
    wake_needed = std::exchange(waiting_, false);
  }
  if (wake_needed) {
    net::post(executor_, [self = shared_from_this()] { self->wake_.cancel(); });
  }
}

void EventChannel::wake() {
  woken_ = true;
  wake_.cancel();
}

net::awaitable<void> EventChannel::next(std::vector<PromptEvent>& out, std::chrono::milliseconds timeout) {
  bool wait = false;
  {
    const std::scoped_lock lock(mutex_);
    if (events_.empty() && !woken_) {
      wait = waiting_ = true;
      // Armed before the lock is released: a push that comes now posts its cancel after this point.
      wake_.expires_after(timeout);
    }
  }
  if (wait) co_await wake_.async_wait(net::as_tuple(net::use_awaitable));
  const std::scoped_lock lock(mutex_);
  waiting_ = false;
  out.clear();
  out.swap(events_);
  pending_bytes_ = 0;
}

}  // namespace penstock
