// A request in the engine and its sequences. Engine thread only, once it was taken from the inbox.
#pragma once
#include <algorithm>
#include <array>
#include <memory>
#include <vector>

#include "engine/requests/beam_search.h"
#include "engine/schedule/sequence.h"
#include "sampling/sampler_state.h"

namespace penstock {

struct RequestState;

// Tokens that a sequence's grammar forces next, which are verified as a draft in this step.
struct ForcedText {
  static constexpr int kMost = 24;  // maximum tokens of a step
  std::array<TokenId, kMost> tokens;
  int n = 0;
  // Moving average of the share of forced tokens that the target accepted: it may prefer another
  // tokenization of the same text.
  float right = kPrior;

  void learn(int n_proposed, int n_accepted) {
    for (int i = 0; i < std::min(n_accepted + 1, n_proposed); ++i)
      right += kWeight * ((i < n_accepted ? 1.0f : 0.0f) - right);
  }
  // Moves `right` towards the prior in a step without verification, so that forced tokens are
  // proposed again after some steps.
  void fade() { right += kFade * (kPrior - right); }

 private:
  static constexpr float kPrior = 0.9f, kWeight = 0.08f, kFade = 0.02f;
};

// One of the n sequences of a request.
struct Running : Sequence {
  RequestState* request = nullptr;
  int index = 0;
  SamplerState sampler;
  // Added to the scheduler. (The request's other sequences are added after the first one's
  // prefill.)
  bool joined = false;
  bool done = false;
  // its next token is drawn on the host, since the device could not draw it
  bool draws_on_host = false;
  // prompt positions whose log-probabilities were reported
  int n_prompt_logprobs = 0;
  double first_scheduled = -1, first_token = -1, last_token = -1;
  // its draft stops where a further token does not pay (Speculation::Choice)
  bool draft_priced = false;
  // the drafter was asked for a draft in this step
  bool drafted = false;
  ForcedText forced;
  RequestStats stats;
  Error error;
  // it has ended, and its last event waits for Requests::release()
  bool held = false;
  TokenEvent last_event;

  const SamplingSpec& spec() const { return *sampler.spec; }
};

inline Running& running(Sequence& sequence) { return static_cast<Running&>(sequence); }
inline const Running& running(const Sequence& sequence) {
  return static_cast<const Running&>(sequence);
}

struct RequestState {
  RequestId id{};
  // its sampling parameters are moved to `spec` when it begins
  Request request;
  int n = 1;  // sequences that its sink gets events of
  std::shared_ptr<EventSink> sink;
  std::shared_ptr<const SamplingSpec> spec;
  std::vector<std::unique_ptr<Running>> sequences;
  std::unique_ptr<BeamSearch> beams;  // sequences [0, n_live) are the live beams
  // sequences whose last event was not pushed yet
  int n_open = 0;
  int adapter_slot = -1;  // slot taken from the pool; -1 = none
  uint64_t turn = 0;      // its place among those that wait for a slot (tenant_turns.h)
  double submitted = 0;
  bool queued = true;            // counts against the inbox' limits
  std::vector<TokenEvent> news;  // events not delivered yet
  bool has_news = false;         // the request is in the outbox' list
};

}  // namespace penstock
