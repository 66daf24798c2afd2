// Strings of a JSON Schema that are written without quotes and escapes, as some models write parameters of tools.
#pragma once
#include <vector>

#include "grammar/schema/json_value.h"
#include "grammar/syntax/rules.h"

namespace penstock::grammar {

// The node of texts that obey enum, const, pattern, format, minLength and maxLength of the schema and are in all of
// `also`. Errors: kInvalid, kUnsupported; the place is the keyword.
Compiled<uint32_t> add_raw_string(const JsonValue& schema, const std::vector<ExprId>& also, Rules& rules,
                                  int max_depth);

}  // namespace penstock::grammar
