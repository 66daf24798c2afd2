// The sequences of a request that begins.
#pragma once
#include "engine/requests/request_state.h"

namespace penstock {

struct SequenceStart {
  const EngineInfo& info;
  uint64_t seed;            // of requests that bring none
  uint64_t& next_sequence;  // ascending ids
};

// Fills in the request's spec, its sequences, none of which is known to a scheduler, and its beam search. Throws
// std::bad_alloc.
void make_sequences(RequestState& state, const SequenceStart& start);

}  // namespace penstock
