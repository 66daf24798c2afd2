// Checks a request against its JSON schema, the one that /openapi.json shows.
//
// Understood, a subset of JSON Schema 2020-12: type, enum, minimum, exclusiveMinimum, maximum,
// minLength, minItems, maxItems, items, properties, required, additionalProperties, anyOf, not
// (with enum), title (what a value is called in a message).
#pragma once
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "base/result.h"

namespace penstock {

// The first mismatch is the error: kInvalidArgument, "messages[0].role: expected a string, got 5".
// A value whose schema allows nothing but null is refused with the schema's description.
Status check_json(const nlohmann::json& schema, const nlohmann::ordered_json& value);

// The same, but a field that an object's schema does not list is taken out of the value instead of
// refused, and its path goes to `unlisted`: at most kMostUnlisted of them, more are an error. A
// name that misspells a listed one is refused in both.
inline constexpr size_t kMostUnlisted = 100;
Status check_listed(const nlohmann::json& schema, nlohmann::ordered_json& value,
                    std::vector<std::string>& unlisted);

}  // namespace penstock
