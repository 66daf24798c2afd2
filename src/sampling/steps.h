// The sampler's steps, each one row of the list in steps.cc, applied in its order.
#pragma once
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "sampling/candidates.h"
#include "sampling/logit_edits.h"
#include "sampling/sampler_state.h"

namespace penstock {

// What grammars cost.
struct GrammarWork {
  int64_t rows = 0;
  double seconds = 0;
};

struct SamplerScratch {
  GrammarWork grammar;
  std::vector<int32_t> match;                          // [context]
  std::vector<std::pair<TokenId, int32_t>> followers;  // a token and the length of the match it followed
};

struct StepContext {
  SamplerState* state =
      nullptr;  // null for a draw that comes as a SampleRow: then no step is active that needs it
  std::span<const TokenId> tokens;  // prompt and output so far
  int n_prompt = 0;
  LogitEdits* edits = nullptr;  // logit steps
  SamplerScratch* scratch = nullptr;
  const SampleRow* row = nullptr;    // filter steps
  Candidates* candidates = nullptr;  // filter steps

  const SamplingParams& params() const { return state->spec->params; }
  int n_output() const { return static_cast<int>(tokens.size()) - n_prompt; }
};

struct SamplerStep {
  const char* name;
  bool (*active)(const StepContext& context);
  void (*apply)(StepContext& context);
  bool host_only = false;     // a SampleRow cannot say it
  bool reads_tokens = false;  // of the output so far, not only how many there are
};

// What the history does to the next logits, before temperature; also when greedy. They do not see the logits.
std::span<const SamplerStep> logit_steps();
std::span<const SamplerStep> filter_steps();  // narrow the candidates, after temperature

// Replaces the filters when params.mirostat is not 0: narrows, picks with u in [0, 1) and updates the state.
TokenId mirostat_pick(StepContext& context, double u);

}  // namespace penstock
