// Tokens that end the assistant's turn, found in the model's chat template.
#pragma once
#include <vector>

#include "text/tokenizer.h"

namespace penstock {

// Returns the special tokens that the template puts after an answer or after tool calls and nowhere
// else in the assistant's turn: a mark that also stands after reasoning or between two calls ends
// no reply. Files may name further end tokens (Tokenizer::end_of_generation_ids). Empty when there
// is no template or it puts only text there.
std::vector<TokenId> turn_ends(const Tokenizer& tokenizer);

}  // namespace penstock
