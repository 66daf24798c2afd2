// Filters and tests: explicit tables of functions from a value and arguments to a value.
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

FilterFunction find_filter(std::string_view name);  // null when there is none
FilterFunction find_test(std::string_view name);

// Fails with jinja2's message for an unknown name.
Value call_filter(Runtime& rt, std::string_view name, const Value& self, const Args& args);
bool call_test(Runtime& rt, std::string_view name, const Value& self, const Args& args);

// "a.b.0" applied to a value, as the attribute= arguments of filters mean it.
class AttributePath {
 public:
  AttributePath(Runtime& rt, const Value& attribute);  // kMissing or None: the value itself
  Value get(Runtime& rt, Value item, const Value& fallback = {}) const;

 private:
  std::vector<Value> parts_;
};

Value lower_if_text(Runtime& rt, const Value& value);

}  // namespace penstock::jinja
