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

  // Delivers all events. A sink that runs out of memory may have lost any of them: it gets the ends
  // among them once more, each alone and with `error`. Then failed(state) is called, which may push
  // ends of the other sequences. Calls finished(state) for a request without open sequences.
  template <class Failed, class Finished>
  void deliver(const Error& error, Failed&& failed, Finished&& finished) {
    for (size_t i = 0; i < with_news_.size(); ++i) {  // failed() may append to the list
      RequestState& state = *with_news_[i];
      if (!send(state, error)) failed(state);
      if (state.n_open == 0 && !state.has_news) finished(state);
    }
    with_news_.clear();
    alternatives_.reset();
  }

  // Sends the last events, with `error`, of sequences [0, n) directly to the sink: for a request
  // that was never started. Allocates nothing.
  static void send_ends(RequestState& state, int n, const Error& error);

 private:
  // Sends the request's events. Returns false if the sink ran out of memory.
  static bool send(RequestState& state, const Error& error);
  static void send_end(RequestState& state, int index, const Error& error);

  std::vector<RequestState*> with_news_;
  Arena alternatives_;
};

}  // namespace penstock
