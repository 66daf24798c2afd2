// Operators, attributes and subscripts, as Python (and jinja2's immutable sandbox) define them.
#pragma once
#include <string>

#include "jinja/runtime.h"

namespace penstock::jinja {

enum class BinaryOp : uint8_t { kAdd, kSub, kMul, kDiv, kFloorDiv, kMod, kPow };

Value binary(Runtime& rt, BinaryOp op, const Value& a, const Value& b);
Value negate(const Value& value);
Value positive(const Value& value);

Value get_attribute(Runtime& rt, const Value& object, const std::string& name);  // object.name
Value get_item(Runtime& rt, const Value& object, const Value& key);              // object[key]
Value get_slice(Runtime& rt, const Value& object, const Value& start, const Value& stop,
                const Value& step);

// The method or property `name` of the value's type; kMissing when the type has none.
Value find_method(Runtime& rt, const Value& object, const std::string& name);

// Returns text % arguments.
std::string format_percent(Runtime& rt, const std::string& text, const Value& arguments);
// Returns text.format(*positional, **keyword).
std::string format_braces(Runtime& rt, const std::string& text, const Args& args);
// Returns format(value, spec).
std::string format_spec(Runtime& rt, const Value& value, std::string_view spec);

// Returns the integer value of an index, width or count; throws TypeError for other types. what:
// name of the value in messages.
int64_t to_index(const Value& value, const char* what);

}  // namespace penstock::jinja
