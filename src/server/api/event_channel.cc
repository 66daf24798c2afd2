#include "server/api/event_channel.h"

#include <boost/asio/execution/context.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <unordered_set>

namespace penstock {
namespace {

// Maximum bytes of token events that wait for a slow reader. Prompt log-probabilities arrive in
// bursts and are not counted, since they are part of the reply anyway.
constexpr size_t kMostPendingBytes = 8 << 20;
constexpr size_t kMostGathered = 256;  // events

}  // namespace

// Notifies the io thread of channels with new events: one posted handler serves all channels that
// ring until it runs, instead of one per token of a step.
class Doorbell : public std::enable_shared_from_this<Doorbell> {
 public:
  // REQUIRES: called on the executor; all executors belong to one context.
  void use(const net::any_io_executor& executor) {
    const std::scoped_lock lock(mutex_);
    if (!executor_) executor_ = executor;
  }
  // Thread-safe. Throws std::bad_alloc; the next ring() notifies nevertheless.
  void ring(std::shared_ptr<EventChannel> channel) {
    const std::scoped_lock lock(mutex_);
    if (closed_) return;
    rung_.push_back(std::move(channel));
    if (posted_) return;
    net::post(executor_, [self = shared_from_this()] { self->answer(); });
    posted_ = true;
  }
  template <class F>
  void post(F&& f) {
    const std::scoped_lock lock(mutex_);
    if (!closed_) net::post(executor_, std::forward<F>(f));
  }

  // REQUIRES (add, remove): called on the executor.
  void add(EventChannel* channel) { channels_.insert(channel); }
  void remove(EventChannel* channel) { channels_.erase(channel); }

  // Called when the executor stops: ends waiting coroutines, as closing a socket does.
  void close() {
    {
      const std::scoped_lock lock(mutex_);
      closed_ = true;
      rung_.clear();
    }
    while (!channels_.empty()) {
      EventChannel* channel = *channels_.begin();
      channels_.erase(channels_.begin());
      channel->drop_waiter();
    }
  }

 private:
  void answer() {
    {
      const std::scoped_lock lock(mutex_);
      answered_.swap(rung_);
      posted_ = false;
    }
    for (const auto& channel : answered_) channel->look();
    answered_.clear();
  }

  net::any_io_executor executor_;
  std::unordered_set<EventChannel*> channels_;  // channels on which a coroutine may wait
  std::mutex mutex_;
  std::vector<std::shared_ptr<EventChannel>> rung_, answered_;
  bool posted_ = false, closed_ = false;
};

namespace {

// The doorbell of an execution context.
struct BellService : net::execution_context::service {
  using key_type = BellService;
  static net::execution_context::id id;
  explicit BellService(net::execution_context& context)
      : service(context), bell(std::make_shared<Doorbell>()) {}
  void shutdown() override { bell->close(); }

  std::shared_ptr<Doorbell> bell;
};
net::execution_context::id BellService::id;

size_t bytes_of(const TokenEvent& event) {
  return sizeof(OwnedEvent) + event.alternatives.size() * sizeof(TokenLogprob);
}

}  // namespace

template <class Handler>
struct EventChannel::WaiterOf final : Waiter {
  explicit WaiterOf(Handler&& waiting) : handler(std::move(waiting)) {}
  void resume() override {
    Handler local(std::move(handler));
    local();
  }
  Handler handler;
};

EventChannel::EventChannel(const net::any_io_executor& executor)
    : bell_(net::use_service<BellService>(net::query(executor, net::execution::context)).bell),
      timer_(std::in_place, executor) {
  bell_->use(executor);
  bell_->add(this);
}

EventChannel::~EventChannel() = default;

// Calls `add` to append events of `bytes` bytes. ended: a sequence ends with them. Throws
// std::bad_alloc: either no event was appended, or all were and the next push() rings again.
template <class Add>
void EventChannel::push(size_t bytes, bool ended, Add&& add) {
  bool ring = false;
  {
    const std::scoped_lock lock(mutex_);
    if (overflowed_) return;
    if (pending_bytes_ + bytes > kMostPendingBytes) {
      bell_->post([self = shared_from_this()] {
        if (self->on_overflow) self->on_overflow();
      });
      overflowed_ = true;
      return;
    }
    const auto n_before = static_cast<ptrdiff_t>(events_.size());
    try {
      add(events_);
    } catch (...) {
      events_.erase(events_.begin() + n_before, events_.end());
      throw;
    }
    pending_bytes_ += bytes;
    if (!gathers_ || ended || events_.size() >= kMostGathered)
      ring = std::exchange(waiting_, false);
  }
  if (!ring) return;
  try {
    bell_->ring(shared_from_this());
  } catch (...) {
    const std::scoped_lock lock(mutex_);
    waiting_ = true;
    throw;
  }
}

void EventChannel::on_tokens(RequestId request, std::span<const TokenEvent> events) {
  size_t bytes = 0;
  bool ended = false;
  for (const TokenEvent& event : events) {
    bytes += bytes_of(event);
    ended |= event.finish != FinishReason::kNone;
  }
  push(bytes, ended, [&](std::vector<OwnedEvent>& to) {
    for (const TokenEvent& event : events) to.emplace_back().assign(request, event);
  });
}

void EventChannel::on_prompt_logprobs(RequestId request, int first,
                                      std::span<const std::span<const TokenLogprob>> rows) {
  push(0, false,
       [&](std::vector<OwnedEvent>& to) { to.emplace_back().assign(request, first, rows); });
}

void EventChannel::wake() {
  woken_ = true;
  try {
    bell_->ring(shared_from_this());
  } catch (const std::bad_alloc&) {  // the next event rings
  }
}

void EventChannel::close() {
  on_overflow = nullptr;
  bell_->remove(this);
  // now: the engine may hold this channel longer than the executor lives
  timer_.reset();
}

// Delivers pending events or ends the wait.
void EventChannel::look() {
  if (waiter_ != nullptr && !deliver()) resume();
}

void EventChannel::resume() {
  const auto waiter = std::move(waiter_);
  waiter->resume();
}

// Delivers pending events and asks for notification; false: the wait is over.
bool EventChannel::deliver() {
  {
    const std::scoped_lock lock(mutex_);
    waiting_ = true;
    if (events_.empty() || woken_) return !woken_;
    taken_.swap(events_);
    pending_bytes_ = 0;
  }
  bool more = false;
  try {
    more = (*take_)(taken_);
  } catch (...) {
    failure_ = std::current_exception();
  }
  taken_.clear();
  deadline_ = Clock::now() + timeout_;
  return more && !woken_;
}

// A running timer that expires before `when` is kept and re-armed on expiry: most waits end
// earlier, so that they cost no timer operation.
void EventChannel::arm(Clock::time_point when) {
  if (armed_ <= when) return;
  armed_ = when;
  timer_->expires_at(when);
  timer_->async_wait([weak = weak_from_this()](const boost::system::error_code& error) {
    const auto self = weak.lock();
    if (error || self == nullptr) return;
    self->armed_ = Clock::time_point::max();
    if (self->waiter_ == nullptr) return;
    if (Clock::now() >= self->deadline_) return self->resume();
    self->arm(self->deadline_);
  });
}

net::awaitable<void> EventChannel::pass(const Take& take, std::chrono::milliseconds timeout) {
  take_ = &take;
  timeout_ = timeout;
  deadline_ = Clock::now() + timeout;
  if (deliver()) {
    arm(deadline_);
    // Events that arrive before the waiter is installed post a handler that runs after the
    // installation.
    co_await net::async_initiate<const net::use_awaitable_t<>, void()>(
        [this](auto&& handler) {
          waiter_ = std::make_unique<WaiterOf<std::decay_t<decltype(handler)>>>(
              std::forward<decltype(handler)>(handler));
        },
        net::use_awaitable);
  }
  take_ = nullptr;
  if (failure_) std::rethrow_exception(std::exchange(failure_, nullptr));
}

}  // namespace penstock
