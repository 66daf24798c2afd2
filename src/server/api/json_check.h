// Checks a request against its JSON schema, the same that /openapi.json publishes.
//
// Supports a subset of JSON Schema 2020-12: type, enum, minimum, exclusiveMinimum, maximum,
// minLength, minItems, maxItems, items, properties, required, additionalProperties, anyOf, not
// (with enum), title (name of the value in messages).
#pragma once
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "base/result.h"

namespace penstock {

// Errors: kInvalidArgument for the first mismatch: "messages[0].role: expected a string, got 5". A
// value whose schema allows only null is refused with the schema's description.
Status check_json(const nlohmann::json& schema, const nlohmann::ordered_json& value);

// As check_json(), but fields that an object's schema does not list are removed and their paths
// appended to `unlisted`, instead of refused. More than kMostUnlisted are an error, and so is a
// name that misspells a listed one.
inline constexpr size_t kMostUnlisted = 100;
Status check_listed(const nlohmann::json& schema, nlohmann::ordered_json& value,
                    std::vector<std::string>& unlisted);

}  // namespace penstock
