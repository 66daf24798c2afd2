// Makes the sequences of a request that begins.
#pragma once
#include "engine/requests/request_state.h"

namespace penstock {

struct SequenceStart {
  const EngineInfo& info;
  // the engine's seed, for requests that bring none
  uint64_t seed;
  uint64_t& next_sequence;    // id of the next sequence; counted up
  bool prompts_only = false;  // no token is drawn
};

// The request's tenant as its sequences have it: a hash of Request::tenant; 0: of those who have none.
uint64_t tenant_of(const Request& request);
// Sequences that the request will have.
int n_sequences_of(const SamplingParams& params);

// Fills in the request's spec, its sequences (not added to a scheduler) and its beam search. Throws
// std::bad_alloc.
void make_sequences(RequestState& state, const SequenceStart& start);

}  // namespace penstock
