// JSON values among rules.
#pragma once
#include <functional>

#include "grammar/parts/refusal.h"
#include "grammar/schema/json_value.h"

namespace penstock::grammar {

// The goal of a JSON Schema in the program that the rules will be added to. python_words: as JsonStyle has it.
using GoalOfSchema = std::function<Compiled<uint32_t>(const JsonValue& schema, bool python_words)>;

}  // namespace penstock::grammar
