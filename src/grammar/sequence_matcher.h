// The adapter from a grammar's Matcher to the sampler's TokenMatcher.
#pragma once
#include <memory>

#include "grammar/grammar.h"
#include "grammar/token_matcher.h"

namespace penstock::grammar {

// Returns a matcher at the start of an output that follows a prompt. Masks may have more tokens
// than the vocabulary; the additional ones are never allowed. REQUIRES: the grammar was compiled
// with a vocabulary that has an end-of-generation token.
std::unique_ptr<TokenMatcher> make_sequence_matcher(std::shared_ptr<const Grammar> grammar);

}  // namespace penstock::grammar
