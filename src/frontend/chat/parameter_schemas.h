// What a tool's JSON Schema says about parameters that are written one by one.
#pragma once
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "frontend/chat/call_format.h"

namespace penstock {

// A schema and the document that its references point into. Both outlive the object.
struct SchemaPart {
  const nlohmann::ordered_json& root;
  const nlohmann::ordered_json& schema;
};

// The schema itself, or what its $ref names (inside of the document, siblings left out). Null: nothing is there.
const nlohmann::ordered_json* resolved(const SchemaPart& part);

// Kinds of values of which some may be allowed; every other is forbidden.
JsonTypes types_of(const SchemaPart& part);

// The same schema as a document of its own for values that are no strings. Error: kUnsupported, it refers to
// something beside definitions.
Result<nlohmann::ordered_json> document_of(const SchemaPart& part, bool without_strings);

// What is said about strings: one object of enum, const, pattern, format, minLength and maxLength for each alternative.
// Error: kUnsupported, it says it with other keywords.
Result<std::vector<nlohmann::ordered_json>> string_rules(const SchemaPart& part);

// Those of all tools whose parameters are an object. tools: OpenAI's list.
ParameterTypes parameter_types(const nlohmann::ordered_json& tools);

}  // namespace penstock
