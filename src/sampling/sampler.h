// Logits to tokens: applies the steps, picks, and reports log-probabilities.
//
// A Sampler is scratch memory: one per thread, no state between calls. All randomness comes from the
// sequence's seed.
#pragma once
#include <span>
#include <vector>

#include "penstock/engine.h"
#include "sampling/candidates.h"
#include "sampling/sampler_state.h"
#include "sampling/steps.h"

namespace penstock {

struct SampleInput {
  std::span<float> logits;          // [vocab_size], overwritten
  std::span<const TokenId> tokens;  // the sequence so far, prompt first
  int n_prompt = 0;
  std::span<const uint32_t> mask;  // bit per token; empty = all allowed
};

struct Sampled {
  TokenId token = kNoToken;  // kNoToken: no token has a finite logit
  float logprob = 0;         // of the raw distribution, with params.logprobs
  int rank = 0;
  int n_alternatives = 0;  // appended to `alternatives`
};

class Sampler {
 public:
  // Does not append the token to the state. alternatives: grows by the top params.logprobs tokens.
  Sampled sample(SamplerState& state, const SampleInput& input, std::vector<TokenLogprob>& alternatives);

  // The log-probability and rank of `token` first, then the `n` most likely (-1: all), appended to `out`;
  // returns how many. logits are not changed.
  int logprobs(std::span<const float> logits, TokenId token, int n, std::vector<TokenLogprob>& out);

  void reserve(int vocab_size, int max_tokens);

 private:
  float log_sum(std::span<const float> logits);  // log of the sum of exp
  int top(std::span<const float> logits, float log_z, int n, std::vector<TokenLogprob>& out);

  Candidates candidates_;
  std::vector<float> block_max_, raw_;
  SamplerScratch scratch_;
};

}  // namespace penstock
