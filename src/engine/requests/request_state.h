// A request in the engine and its sequences. Engine thread only, once it was taken in.
#pragma once
#include <memory>
#include <vector>

#include "engine/requests/beam_search.h"
#include "engine/schedule/sequence.h"
#include "sampling/sampler_state.h"

namespace penstock {

struct RequestState;

// One of the n sequences of a request.
struct Running : Sequence {
  RequestState* request = nullptr;
  int index = 0;
  SamplerState sampler;
  bool joined = false;  // known to the scheduler (the others wait for the first one's prompt)
  bool done = false;
  bool draws_on_host = false;  // its next token: the device has left it to the host
  int n_prompt_logprobs = 0;   // prompt positions reported
  double first_scheduled = -1, first_token = -1, last_token = -1;
  bool draft_priced = false;  // the draft asked for is to stop where it does not pay
  bool drafted = false;       // a draft was asked for in this step
  RequestStats stats;
  Error error;

  const SamplingSpec& spec() const { return *sampler.spec; }
};

inline Running& running(Sequence& sequence) { return static_cast<Running&>(sequence); }
inline const Running& running(const Sequence& sequence) { return static_cast<const Running&>(sequence); }

struct RequestState {
  RequestId id{};
  Request request;  // its sampling parameters move to the spec when it begins
  int n = 1;        // sequences that its sink hears of
  std::shared_ptr<EventSink> sink;
  std::shared_ptr<const SamplingSpec> spec;
  std::vector<std::unique_ptr<Running>> sequences;
  std::unique_ptr<BeamSearch> beams;  // sequences [0, n_live) are the live beams
  int n_open = 0;
  double submitted = 0;
  bool queued = true;            // counts against the queue's bounds
  std::vector<TokenEvent> news;  // that the sink has not got yet
  bool has_news = false;         // stands in the outbox' list
};

}  // namespace penstock
