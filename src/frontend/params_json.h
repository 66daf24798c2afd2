// Converts SamplingParams from and to JSON by their visit(): a new field needs no edit here.
#pragma once
#include <nlohmann/json_fwd.hpp>

#include "base/result.h"
#include "penstock/sampling_params.h"

namespace penstock {

// Overwrites the fields that `object` has; null counts as absent. Fields with other names are
// ignored. "stop" may be one string, "logit_bias" is an object of token id to bias,
// "allowed_token_ids" has at least one. Errors: kInvalidArgument with the field's name, the
// expected and the given value. Ranges are not checked here but by the sampler's validation.
Status params_from_json(const nlohmann::ordered_json& object, SamplingParams& params);

nlohmann::ordered_json params_to_json(const SamplingParams& params);

// Reads StructuredOutputs; fields with other names are errors, null counts as absent. A schema may
// be JSON or its text. Errors: kInvalidArgument, "structured_outputs.regex: expected a string, got
// 5".
Result<StructuredOutputs> structured_outputs_from_json(const nlohmann::ordered_json& object);
// Writes the fields that differ from their defaults.
nlohmann::ordered_json structured_outputs_to_json(const StructuredOutputs& outputs);

}  // namespace penstock
