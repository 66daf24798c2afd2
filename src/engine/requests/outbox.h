// The events of a step on their way to the sinks: one call per sink and step.
//
// Engine thread only. Keeps its memory from step to step; where an event must not be lost for want of memory, room for it
// is made beforehand.
#pragma once
#include <span>
#include <vector>

#include "base/arena.h"
#include "engine/requests/request_state.h"

namespace penstock {

class Outbox {
 public:
  // Before a request begins; n_requests: those that run, with this one. Throws std::bad_alloc and changes nothing.
  void make_room(RequestState& state, size_t n_requests);
  // Room for one more event of a request, which push() then takes in without memory. Throws std::bad_alloc.
  void make_room_for_event(RequestState& state);
  // The ends of all open sequences can be taken in, if need be in place of tokens. Allocates nothing.
  void make_room_for_ends(RequestState& state);

  // A copy of an event's alternatives that lasts until the event is delivered.
  std::span<const TokenLogprob> keep(std::span<const TokenLogprob> alternatives);
  // What the event refers to lasts until it is delivered.
  void push(RequestState& state, const TokenEvent& event);

  // Calls failed(state) for a request whose sink runs out of memory, which may push its end, and finished(state) for one
  // that has no open sequence any more.
  template <class Failed, class Finished>
  void deliver(Failed&& failed, Finished&& finished) {
    for (size_t i = 0; i < with_news_.size(); ++i) {  // one that failed adds its own end
      RequestState& state = *with_news_[i];
      if (!send(state)) failed(state);
      if (state.n_open == 0 && !state.has_news) finished(state);
    }
    with_news_.clear();
    alternatives_.reset();
  }

  // The ends of sequences [0, n) that nobody can be told of in another way: of a request that was never started, or whose
  // sink has no memory. Allocates nothing.
  static void send_ends(RequestState& state, int n, const Error& error);

 private:
  bool send(RequestState& state);  // false: the sink ran out of memory

  std::vector<RequestState*> with_news_;
  Arena alternatives_;
};

}  // namespace penstock
