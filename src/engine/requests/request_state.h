// A request in the engine and its sequences. Engine thread only, once it was taken in.
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

// What a sequence's grammar forces to come next, as far as it is to be checked in this step.
struct ForcedText {
  static constexpr int kMost = 24;  // tokens at a time
  std::array<TokenId, kMost> tokens;
  int n = 0;
  float right =
      kPrior;  // how often such tokens were what the target chose: it may spell the same text otherwise

  void learn(int n_proposed, int n_accepted) {
    for (int i = 0; i < std::min(n_accepted + 1, n_proposed); ++i)
      right += kWeight * ((i < n_accepted ? 1.0f : 0.0f) - right);
  }
  // What is never tried is forgotten slowly, so that it is tried again.
  void fade() { right += kFade * (kPrior - right); }

 private:
  static constexpr float kPrior = 0.9f, kWeight = 0.08f, kFade = 0.02f;
};

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
  ForcedText forced;
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
  int adapter_slot = -1;  // taken from the pool; -1 = none
  double submitted = 0;
  bool queued = true;            // counts against the queue's bounds
  std::vector<TokenEvent> news;  // that the sink has not got yet
  bool has_news = false;         // stands in the outbox' list
};

}  // namespace penstock
