// Chunk size of prefill beside decoding sequences: bounds the time of a mixed step, so that
// decoding sequences wait about equally long for their next token with and without prefill, and the
// batch is still filled quickly.
//
// The bound is a multiple of the time of a decode step with as many places filled as waiting
// prompts could fill. If the current number of decoding sequences were the measure, a small batch
// would be filled slowly.
#pragma once
#include "engine/compute/step_costs.h"

namespace penstock {

class PrefillPace {
 public:
  // max_tokens: most tokens of a step. n_places: most sequences that run at once.
  PrefillPace(int max_tokens, int n_places) : max_tokens_(max_tokens), n_places_(n_places) {}

  // Returns the most prompt tokens of a step with n_decoding decode rows, while n_prompts
  // sequences, admitted or waiting, have prompts to compute. 0 when a step without prefill is due,
  // to measure the time of decoding.
  int limit(int n_decoding, int n_prompts);

  // Returns the seconds that a prompt token takes in a step of prompts, or else beside decoding; 0:
  // none was measured.
  double prompt_token_seconds() const { return alone_ > 0 ? alone_ : token_seconds(); }

  // Notes the time of the step for which limit() was called. Rows of drafts count as decode rows.
  void note(int n_decoding, int n_prompt, double seconds);

 private:
  double decode_seconds(int rows) const;
  double token_seconds() const;
  bool calm(int n_decoding, int n_prompts) const;

  int max_tokens_, n_places_;
  // times of steps without prompt tokens by rows, which adapt slowly
  StepCosts shapes_;
  // recent times of such steps, relative to shapes_
  RecentMedian level_;
  int n_alone_ = 0;  // number of such steps
  int largest_ = 0;  // maximum rows of such a step
  // Prompt tokens beside decoding and the seconds that they added, both with exponential decay.
  double seconds_ = 0, rows_ = 0;
  // seconds per token of steps with prompts only
  double alone_ = 0;
  int limit_ = 0;  // last result of limit()
  // steps since the last one without prompt tokens
  int n_mixed_ = 0;
};

}  // namespace penstock
