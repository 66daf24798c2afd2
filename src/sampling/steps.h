// The sampler's steps, each one row of the list in steps.cc, applied in its order.
#pragma once
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "sampling/candidates.h"
#include "sampling/sampler_state.h"

namespace penstock {

struct SamplerScratch {
  std::vector<int32_t> match;                          // [context]
  std::vector<std::pair<TokenId, int32_t>> followers;  // a token and the length of the match it followed
};

struct StepContext {
  std::span<float> logits;          // [vocab_size], changed by the logit steps
  std::span<const TokenId> tokens;  // prompt and output so far
  int n_prompt = 0;
  std::span<const uint32_t> mask;  // bit per token id; empty = all allowed (a grammar's)
  SamplerState* state = nullptr;
  Candidates* candidates = nullptr;  // filter steps
  SamplerScratch* scratch = nullptr;

  const SamplingParams& params() const { return state->spec->params; }
  int n_output() const { return static_cast<int>(tokens.size()) - n_prompt; }
};

struct SamplerStep {
  const char* name;
  bool (*active)(const StepContext& context);
  void (*apply)(StepContext& context);
};

std::span<const SamplerStep> logit_steps();   // edit the logits, before temperature; also when greedy
std::span<const SamplerStep> filter_steps();  // narrow the candidates, after temperature

// Replaces the filters when params.mirostat is not 0: narrows, picks with u in [0, 1) and updates the state.
TokenId mirostat_pick(StepContext& context, double u);

}  // namespace penstock
