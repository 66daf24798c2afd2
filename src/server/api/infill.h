// Prompts that ask a model of code for what stands between two texts.
#pragma once
#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "server/services/served_model.h"

namespace penstock {

struct InfillFile {
  std::string name, text;
};

struct InfillParts {
  std::string prefix, suffix;
  std::string begun;              // of the middle: what is there already
  std::vector<InfillFile> files;  // beside them, the most important last
  // tokens of the context to leave for the reply
  int n_reserved = 0;
};

// The beginning of `files` is left out where all of it does not fit the context. Errors:
// kUnsupported, the model has no tokens for it; kContextOverflow, a text that is certainly too
// long.
Result<std::vector<TokenId>> infill_prompt(const ServedModel& model, const InfillParts& parts);

// Tokens that end a middle, beside those that end every text.
std::vector<TokenId> infill_ends(const ServedModel& model);

}  // namespace penstock
