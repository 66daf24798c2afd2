// The sampler's steps, each one row of the list in steps.cc, applied in its order.
#pragma once
#include <cstdint>
#include <span>
#include <vector>

#include "sampling/candidates.h"
#include "sampling/logit_edits.h"
#include "sampling/repeats.h"
#include "sampling/sampler_state.h"

namespace penstock {

// Rows of logits that grammars constrained, and the time of making their masks.
struct GrammarWork {
  int64_t rows = 0;
  double seconds = 0;
};

struct SamplerScratch {
  GrammarWork grammar;
  RepeatFinder repeats;
  std::vector<TokenId> last_tokens;
};

struct StepContext {
  // null for a draw from a SampleRow, for which no active step needs it
  SamplerState* state = nullptr;
  std::span<const TokenId> tokens;  // prompt and output so far
  int n_prompt = 0;
  LogitEdits* edits = nullptr;  // for logit steps
  SamplerScratch* scratch = nullptr;
  const SampleRow* row = nullptr;    // for filter steps
  Candidates* candidates = nullptr;  // for filter steps

  const SamplingParams& params() const { return state->spec->params; }
  int n_output() const { return static_cast<int>(tokens.size()) - n_prompt; }
};

struct SamplerStep {
  const char* name;
  bool (*active)(const StepContext& context);
  void (*apply)(StepContext& context);
  bool host_only = false;  // a SampleRow cannot describe the step
  // the step depends on the output tokens, and not only on their number
  bool reads_tokens = false;
};

// Steps that collect edits of the logits, applied before temperature, also when greedy. They do not
// read the logits.
std::span<const SamplerStep> logit_steps();
// Steps that narrow the candidates, after temperature.
std::span<const SamplerStep> filter_steps();

// Mirostat, which replaces the filters when params.mirostat is not 0: narrows the candidates, picks
// with u in [0, 1) and updates the state.
TokenId mirostat_pick(StepContext& context, double u);

}  // namespace penstock
