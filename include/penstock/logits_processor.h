// The caller's own hand in a request's logits.
#pragma once
#include <span>

#include "penstock/types.h"

namespace penstock {

// Changes logits before everything else does: penalties, masks (grammars among them) and filters come after it.
class LogitsProcessor {
 public:
  virtual ~LogitsProcessor() = default;
  // tokens: the prompt's n_prompt and the output so far; logits: [vocab_size], finite, to be changed in place. Called from
  // the engine's threads, for several sequences at once; where tokens were guessed, for each guess that is checked. The
  // same arguments must give the same logits. Must not throw.
  virtual void process(std::span<const TokenId> tokens, int n_prompt, std::span<float> logits) = 0;
};

}  // namespace penstock
