// SamplingParams from and to JSON, made from their visit(): a new field needs no edit here.
#pragma once
#include <nlohmann/json_fwd.hpp>

#include "base/result.h"
#include "penstock/sampling_params.h"

namespace penstock {

// Overwrites the fields that `object` has; null means "as if absent". Fields of other names are left to the caller.
// "stop" may be one string, "logit_bias" is an object of token id to bias, "allowed_token_ids" has at least one. Error: kInvalidArgument with the field's name,
// what was expected and what was there. Ranges are checked by the sampler's own validation.
Status params_from_json(const nlohmann::ordered_json& object, SamplingParams& params);

nlohmann::ordered_json params_to_json(const SamplingParams& params);

// The same for what a text must look like, whose fields have no other names; null means absent. A schema may be JSON or its
// text. Error: kInvalidArgument, "structured_outputs.regex: expected a string, got 5".
Result<StructuredOutputs> structured_outputs_from_json(const nlohmann::ordered_json& object);
// What is not as by default.
nlohmann::ordered_json structured_outputs_to_json(const StructuredOutputs& outputs);

}  // namespace penstock
