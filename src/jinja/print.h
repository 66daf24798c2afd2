// Conversion of values to text as in Python: str(), repr(), json.dumps and number formatting.
#pragma once
#include <optional>
#include <string>
#include <string_view>

#include "jinja/value.h"

namespace penstock::jinja {

std::string quote(std::string_view text);  // repr of a str
// repr of a float: the shortest digits that round-trip
std::string repr_double(double value);
// Repr of values that need no runtime; for others the name of the type.
std::string plain_number(const Value& value);
std::string to_text(Runtime& rt, const Value& value);  // str(value)
std::string to_repr(Runtime& rt, const Value& value);

struct JsonStyle {
  bool ensure_ascii = false;
  bool sort_keys = false;
  // white space of one level; nullopt: on one line
  std::optional<std::string> indent;
  std::string item_separator, key_separator;
};
std::string to_json(Runtime& rt, const Value& value, const JsonStyle& style);

std::string escape_html(std::string_view text);

}  // namespace penstock::jinja
