// From the embeddings that a request gives (Request::embeddings) to what steps read.
#pragma once
#include <memory>

#include "engine/schedule/prompt_input.h"
#include "penstock/engine.h"

namespace penstock {

// most_of_step: tokens that a step has for one prompt whatever else runs. Error: kInvalidArgument
// (places, sizes, numbers that are not finite).
Status check_embeddings(const Request& request, const EngineInfo& info, int most_of_step = 1 << 30);

// Checks Request::encoder_rows, and what else a request to a model with an encoder may have. Errors:
// kInvalidArgument, kUnsupported.
Status check_encoder_rows(const Request& request, const EngineInfo& info);

// Returns null for prompts of token ids only. REQUIRES: check_embeddings() passed; the request's
// values outlive the result.
std::shared_ptr<const PromptInput> prompt_input_of(const Request& request, const EngineInfo& info);

}  // namespace penstock
