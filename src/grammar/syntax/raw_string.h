// Raw strings: strings of a JSON Schema without quotation marks and escapes, as some models write
// parameters of tools.
#pragma once
#include <vector>

#include "grammar/schema/json_value.h"
#include "grammar/syntax/rules.h"

namespace penstock::grammar {

// Returns the node of the texts that obey enum, const, pattern, format, minLength and maxLength of
// the schema and match all of `also`. Errors: kInvalid, kUnsupported; `where` names the keyword.
Compiled<uint32_t> add_raw_string(const JsonValue& schema, const std::vector<ExprId>& also,
                                  Rules& rules, int max_depth);

}  // namespace penstock::grammar
