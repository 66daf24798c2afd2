// A grammar's matcher as the sampler sees it.
#pragma once
#include <memory>

#include "grammar/grammar.h"
#include "grammar/token_matcher.h"

namespace penstock::grammar {

// At the beginning of an output that follows a prompt. Masks may have more tokens than the vocabulary, which are never
// allowed then. REQUIRES: compiled with a vocabulary that has an end of generation.
std::unique_ptr<TokenMatcher> make_sequence_matcher(std::shared_ptr<const Grammar> grammar);

}  // namespace penstock::grammar
