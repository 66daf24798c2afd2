// Reads the inputs of speculation that depend on the tokenizer.
#pragma once
#include "engine/open/open.h"
#include "text/tokenizer.h"

namespace penstock {

// Opens config.draft_model and compares its vocabulary with the target's; reads config.spec_corpus
// as text. Errors: kInvalidArgument (the tokenizers differ; names the difference), kNotFound,
// kCorruptFile.
Result<SpeculationInputs> read_speculation_inputs(const EngineConfig& config,
                                                  const Tokenizer& target);

}  // namespace penstock
