// Fill-in-the-middle prompts: ask a code model for the text between a prefix and a suffix.
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
  std::string begun;              // start of the middle that is already written
  std::vector<InfillFile> files;  // files for context, the most important last
  // tokens of the context to leave for the reply
  int n_reserved = 0;
};

// Leaves out the beginning of `files` if they do not fit the context. Errors: kUnsupported (the
// model has no infill tokens), kContextOverflow (the text is certainly too long).
Result<std::vector<TokenId>> infill_prompt(const ServedModel& model, const InfillParts& parts);

// Returns the tokens that end a middle, in addition to those that end every text.
std::vector<TokenId> infill_ends(const ServedModel& model);

}  // namespace penstock
