// Checks a request against its JSON schema, the one that /openapi.json shows.
//
// Understood, a subset of JSON Schema 2020-12: type, enum, minimum, exclusiveMinimum, maximum,
// minLength, minItems, maxItems, items, properties, required, additionalProperties, anyOf, title
// (what a value is called in a message).
#pragma once
#include <nlohmann/json_fwd.hpp>
#include "base/result.h"

namespace penstock {

// The first mismatch is the error: kInvalidArgument, "messages[0].role: expected a string, got 5".
// A value whose schema allows nothing but null is refused with the schema's description.
Status check_json(const nlohmann::json& schema, const nlohmann::ordered_json& value);

}  // namespace penstock
