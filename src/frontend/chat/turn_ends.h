// Tokens that end what the assistant says, by the model's chat template.
#pragma once
#include <vector>

#include "text/tokenizer.h"

namespace penstock {

// Special tokens that the template puts behind an answer, or behind calls of tools, and nowhere else into the assistant's
// turn: a mark that also stands behind thoughts or between two calls ends no reply. Files may name further ends
// (Tokenizer::end_of_generation_ids). Empty without a template, and where it puts text there only.
std::vector<TokenId> turn_ends(const Tokenizer& tokenizer);

}  // namespace penstock
