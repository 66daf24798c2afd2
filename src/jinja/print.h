// How values turn into text: str(), repr(), json.dumps and number formatting, as Python does.
#pragma once
#include <optional>
#include <string>
#include <string_view>

#include "jinja/value.h"

namespace penstock::jinja {

std::string quote(std::string_view text);      // repr of a str
std::string repr_double(double value);         // shortest digits that read back the same
std::string plain_number(const Value& value);  // repr of what needs no runtime; the type's name for the rest
std::string to_text(Runtime& rt, const Value& value);  // str(value)
std::string to_repr(Runtime& rt, const Value& value);

struct JsonStyle {
  bool ensure_ascii = false;
  bool sort_keys = false;
  std::optional<std::string> indent;  // one level's white space
  std::string item_separator, key_separator;
};
std::string to_json(Runtime& rt, const Value& value, const JsonStyle& style);

std::string escape_html(std::string_view text);

}  // namespace penstock::jinja
