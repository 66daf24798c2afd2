// A caller's hook that changes the logits of a request.
#pragma once
#include <span>

#include "penstock/types.h"

namespace penstock {

// Changes logits before all other sampling steps: penalties, masks (grammars among them) and
// filters come after it.
class LogitsProcessor {
 public:
  virtual ~LogitsProcessor() = default;
  // tokens: the n_prompt tokens of the prompt, then the output so far; logits: [vocab_size],
  // finite, changed in place. Called from the engine's threads, for several sequences at once; with
  // speculation also for each draft token that is verified. The same arguments must give the same
  // logits. Must not throw.
  virtual void process(std::span<const TokenId> tokens, int n_prompt, std::span<float> logits) = 0;
};

}  // namespace penstock
