// Reads from a tool's JSON Schema the rules for parameters that are written one by one.
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

// Returns the schema itself, or the target of its $ref inside the document (siblings of $ref are
// ignored); null when the target does not exist.
const nlohmann::ordered_json* resolved(const SchemaPart& part);

// Returns the JSON types of which some values may be allowed; values of every other type are
// forbidden.
JsonTypes types_of(const SchemaPart& part);

// Returns the schema as a self-contained document; without_strings: strings are excluded. Errors:
// kUnsupported, when it has a reference to anything but definitions.
Result<nlohmann::ordered_json> document_of(const SchemaPart& part, bool without_strings);

// Returns the rules for strings: for each alternative an object of enum, const, pattern, format,
// minLength and maxLength. Errors: kUnsupported, when strings are restricted by other keywords.
Result<std::vector<nlohmann::ordered_json>> string_rules(const SchemaPart& part);

// Returns the parameter types of all tools whose parameters are an object. tools: OpenAI's list.
ParameterTypes parameter_types(const nlohmann::ordered_json& tools);

}  // namespace penstock
