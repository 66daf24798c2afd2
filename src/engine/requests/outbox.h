// Collects the events of a step and delivers them to the sinks, in one call per sink.
//
// Engine thread only. Keeps its memory from step to step. Events that must not be lost when memory
// runs out get their room beforehand.
#pragma once
#include <span>
#include <vector>

#include "base/arena.h"
#include "engine/requests/request_state.h"

namespace penstock {

class Outbox {
 public:
  // Reserves room for a request that begins; n_requests: running requests, with this one. Throws
  // std::bad_alloc and then changes nothing.
  void make_room(RequestState& state, size_t n_requests);
  // Returns a copy of an event's alternatives that is valid until the events are delivered.
  std::span<const TokenLogprob> keep(std::span<const TokenLogprob> alternatives);
  // Adds an event. What it refers to must stay valid until it is delivered. A token leaves room for
  // the ends of all open sequences, so that an end allocates nothing. Throws std::bad_alloc and then
  // changes nothing.
  void push(RequestState& state, const TokenEvent& event);

  // Delivers all events. Calls failed(state) for a request whose sink ran out of memory, which may
  // push its last events, and finished(state) for a request without open sequences.
  template <class Failed, class Finished>
  void deliver(Failed&& failed, Finished&& finished) {
    for (size_t i = 0; i < with_news_.size(); ++i) {  // failed() may append to the list
      RequestState& state = *with_news_[i];
      if (!send(state)) failed(state);
      if (state.n_open == 0 && !state.has_news) finished(state);
    }
    with_news_.clear();
    alternatives_.reset();
  }

  // Sends the last events, with `error`, of sequences [0, n) directly to the sink: for a request
  // that was never started, or whose sink ran out of memory. Allocates nothing.
  static void send_ends(RequestState& state, int n, const Error& error);

 private:
  bool send(RequestState& state);  // false: the sink ran out of memory

  std::vector<RequestState*> with_news_;
  Arena alternatives_;
};

}  // namespace penstock
