// Logits to tokens: applies the steps, picks, and reports log-probabilities.
//
// A Sampler is scratch memory: one per thread, no state between calls. All randomness comes from the
// sequence's seed.
#pragma once
#include <span>
#include <vector>

#include "penstock/engine.h"
#include "sampling/candidates.h"
#include "sampling/draft_tree.h"
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

// A token drawn from a draft's distribution.
struct DrawnToken {
  TokenId token;
  const TokenDistribution& from;
};

class Sampler {
 public:
  // Does not append the token to the state. alternatives: grows by the top params.logprobs tokens.
  Sampled sample(SamplerState& state, const SampleInput& input, std::vector<TokenLogprob>& alternatives);

  // Keeps a drawn token x with probability min(1, p(x) / q(x)), where p is the distribution after all steps
  // and q is drawn.from; else draws from max(0, p - q). REQUIRES: neither greedy nor mirostat.
  Sampled accept_or_resample(SamplerState& state, const SampleInput& input, const DrawnToken& drawn,
                             bool& accepted, std::vector<TokenLogprob>& alternatives);

  // Draws as sample() does but with random numbers of its own kind, and tells the distribution. kNoToken when
  // no token is possible. REQUIRES: neither greedy nor mirostat.
  TokenId draw_draft(SamplerState& state, const SampleInput& input, TokenDistribution& from);

  // The log-probability and rank of `token` first, then the `n` most likely (-1: all), appended to `out`;
  // returns how many. logits are not changed.
  int logprobs(std::span<const float> logits, TokenId token, int n, std::vector<TokenLogprob>& out);

  // Masks, bias and penalties on a row, as sample() applies them before temperature and filters.
  void apply_logit_steps(SamplerState& state, const SampleInput& input) {
    StepContext context = context_of(state, input);
    apply_logit_steps(context);
  }

  void reserve(int vocab_size, int max_tokens);

 private:
  float log_sum(std::span<const float> logits);  // log of the sum of exp
  int top(std::span<const float> logits, float log_z, int n, std::vector<TokenLogprob>& out);
  StepContext context_of(SamplerState& state, const SampleInput& input);
  float keep_raw(const SamplingParams& params, const SampleInput& input, Sampled& result,
                 std::vector<TokenLogprob>& alternatives);
  void report_raw(float log_z, Sampled& result) const;
  void apply_logit_steps(StepContext& context);
  bool narrow(StepContext& context);
  TokenId pick_residual(const TokenDistribution& drawn_from, double u);

  Candidates candidates_;
  std::vector<float> block_max_, raw_;
  std::vector<float> q_of_;  // [vocab_size], all 0 between calls

  SamplerScratch scratch_;
};

}  // namespace penstock
