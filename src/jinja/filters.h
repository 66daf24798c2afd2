// Filters and tests: tables of functions from a value and arguments to a value.
#pragma once
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "jinja/runtime.h"

namespace penstock::jinja {

using FilterFunction = Value (*)(Runtime& rt, const Value& self, const Args& args);

struct FilterRow {
  const char* name;
  FilterFunction function;
};

std::span<const FilterRow> text_filters();
std::span<const FilterRow> list_filters();
std::span<const FilterRow> tests();

FilterFunction find_filter(std::string_view name);  // return null for an unknown name
FilterFunction find_test(std::string_view name);

// Call a filter or test. Throw Failure with jinja2's message for an unknown name.
Value call_filter(Runtime& rt, std::string_view name, const Value& self, const Args& args);
bool call_test(Runtime& rt, std::string_view name, const Value& self, const Args& args);

// A path such as "a.b.0" into a value, as given by the attribute= arguments of filters.
class AttributePath {
 public:
  // attribute: kMissing or None means the value itself
  AttributePath(Runtime& rt, const Value& attribute);
  Value get(Runtime& rt, Value item, const Value& fallback = {}) const;

 private:
  std::vector<Value> parts_;
};

Value lower_if_text(Runtime& rt, const Value& value);

}  // namespace penstock::jinja
