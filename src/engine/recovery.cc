// When memory runs out on the engine's thread: whom it hits ends with an error, the others go on. Nothing
// here allocates.
#include <spdlog/spdlog.h>

#include "base/log.h"
#include "engine/engine_impl.h"

namespace penstock {
namespace {

// Short enough for a string without memory of its own.
Error out_of_memory() { return {ErrorCode::kResourceExhausted, "out of memory"}; }

}  // namespace

// Ends all sequences of a request.
void EngineImpl::fail(RequestState& state) {
  if (state.n_open == 0) return;
  log().error("request {}: ended because memory ran out", static_cast<uint64_t>(state.id));
  metrics_.out_of_memory.add();
  // There is room for the end of every sequence, if need be in place of tokens.
  if (state.news.capacity() - state.news.size() < static_cast<size_t>(state.n_open)) {
    std::erase_if(state.news,
                  [](const PendingEvent& news) { return news.event.finish == FinishReason::kNone; });
  }
  end_request(state, -1, FinishReason::kError, out_of_memory());
}

// A step came to no end: nobody knows what it left undone, so all who ran end. What waits goes on.
void EngineImpl::recover() {
  while (scheduler_->n_running() > 0) fail(*static_cast<Running*>(scheduler_->running().back())->request);
  scheduler_->abandon(plan_);
  plan_.clear();
}

// A request that could not be taken in. The scheduler does not know it.
void EngineImpl::refuse(RequestState& state) {
  log().error("request {}: not started because memory ran out", static_cast<uint64_t>(state.id));
  metrics_.out_of_memory.add();
  send_ends(state, state.request.sampling.n);
  leave_queue(state);
}

// The end of all sequences of a request, without memory for a list of events.
void EngineImpl::send_ends(RequestState& state, int n_sequences) {
  const RequestStats stats;
  const Error error = out_of_memory();
  for (int index = 0; index < n_sequences; ++index) {
    TokenEvent event{.index = index, .finish = FinishReason::kError, .stats = &stats, .error = &error};
    try {
      state.sink->on_tokens(state.id, {&event, 1});
    } catch (const std::bad_alloc&) {
      log().error("request {}: its end cannot be delivered: memory ran out", static_cast<uint64_t>(state.id));
    }
  }
}

// Gives a request's news to its sink. A sink without memory for them ends its request.
void EngineImpl::push_to_sink(RequestState& state) {
  state.has_news = false;
  outgoing_.clear();
  try {
    for (const PendingEvent& news : state.news) {
      outgoing_.push_back(news.event);
      outgoing_.back().alternatives =
          std::span<const TokenLogprob>(alternatives_).subspan(news.first_alternative, news.n_alternatives);
    }
    state.news.clear();
    if (!outgoing_.empty()) state.sink->on_tokens(state.id, outgoing_);
  } catch (const std::bad_alloc&) {
    state.news.clear();
    if (state.n_open > 0) {
      fail(state);
    } else {
      metrics_.out_of_memory.add();
      send_ends(state, state.request.sampling.n);
    }
  }
}

}  // namespace penstock
