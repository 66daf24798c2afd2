// How many prompt tokens a step takes beside sequences that decode, so that these wait about as long for
// their next token whether a prompt is taken in or not, and the places of the batch are filled all the same.
//
// The bound is a multiple of what decoding takes with all places filled that can be: a batch that has thinned
// out while others wait would be filled slowly if its own shorter steps were the measure.
#pragma once
#include "engine/compute/step_costs.h"

namespace penstock {

class PrefillPace {
 public:
  // max_tokens: of a step. n_places: sequences that may run at once.
  PrefillPace(int max_tokens, int n_places) : max_tokens_(max_tokens), n_places_(n_places) {}

  // Most prompt tokens beside n_decoding rows, while n_prompts sequences wait for theirs to be computed, with a
  // place or without. 0 when a step without any is due, whose time is the measure.
  int limit(int n_decoding, int n_prompts);

  // What the step took that limit() was asked for. Rows of drafts count as decoding.
  void note(int n_decoding, int n_prompt, double seconds);

 private:
  double decode_seconds(int rows) const;
  double token_seconds() const;
  bool calm(int n_decoding, int n_prompts) const;

  int max_tokens_, n_places_;
  StepCosts shapes_;               // of steps without prompt tokens, which follows slowly
  RecentMedian level_;             // of their times beside it
  int n_alone_ = 0;                // such steps
  int largest_ = 0;                // of their rows
  double seconds_ = 0, rows_ = 0;  // of prompt tokens beside decoding, what they added; older ones count less
  double alone_ = 0;               // seconds per token of steps of prompts only
  int limit_ = 0;                  // as last told
  int n_mixed_ = 0;                // steps since the last one without prompt tokens
};

}  // namespace penstock
