// The hook by which rules refer to JSON Schemas.
#pragma once
#include <functional>

#include "grammar/parts/refusal.h"
#include "grammar/schema/json_value.h"

namespace penstock::grammar {

// Returns the goal of a JSON Schema in the program that the rules will be added to. python_words:
// see JsonStyle.
using GoalOfSchema = std::function<Compiled<uint32_t>(const JsonValue& schema, bool python_words)>;

}  // namespace penstock::grammar
