// The tests of `value is test`, and the lookup of filters and tests by name.
#include <fmt/format.h>

#include "jinja/filters.h"
#include "jinja/ops.h"
#include "jinja/print.h"
#include "jinja/text.h"

namespace penstock::jinja {
namespace {

template <bool (*Test)(const Value&)>
Value plain(Runtime&, const Value& self, const Args& args) {
  args.bind("test", {}, 0);
  return Value::of(Test(self));
}

bool is_defined(const Value& v) { return !v.is(Kind::kUndefined); }
bool is_undefined(const Value& v) { return v.is(Kind::kUndefined); }
bool is_none(const Value& v) { return v.is(Kind::kNone); }
bool is_boolean(const Value& v) { return v.is(Kind::kBool); }
bool is_true(const Value& v) { return v.is(Kind::kBool) && v.boolean; }
bool is_false(const Value& v) { return v.is(Kind::kBool) && !v.boolean; }
bool is_integer(const Value& v) { return v.is(Kind::kInt); }
bool is_float(const Value& v) { return v.is(Kind::kFloat); }
bool is_number(const Value& v) { return v.is_number(); }
bool is_string(const Value& v) { return v.is(Kind::kString); }
bool is_mapping(const Value& v) { return v.is(Kind::kDict); }
bool is_sequence(const Value& v) { return has_length(v) && !v.is(Kind::kDictView); }
bool is_escaped(const Value& v) { return v.is(Kind::kString) && as<String>(v).markup; }

Value remainder(Runtime& rt, const Value& a, const Value& b) {
  return binary(rt, BinaryOp::kMod, a, b);
}

template <int64_t Rest>
Value parity(Runtime& rt, const Value& self, const Args& args) {
  args.bind("test", {}, 0);
  return Value::of(equals(rt, remainder(rt, self, Value::of(int64_t{2})), Value::of(Rest)));
}

Value divisible_by(Runtime& rt, const Value& self, const Args& args) {
  const auto a = args.bind("test_divisibleby", {"num"}, 1);
  return Value::of(equals(rt, remainder(rt, self, a[0]), Value::of(int64_t{0})));
}

template <bool Lower>
Value cased(Runtime& rt, const Value& self, const Args& args) {
  const Value text = rt.string(to_text(rt, self));
  const Value method = find_method(rt, text, Lower ? "islower" : "isupper");
  return as<Function>(method).body(rt, args);
}

Value same_as(Runtime&, const Value& self, const Args& args) {
  return Value::of(identical(self, args.bind("test_sameas", {"other"}, 1)[0]));
}

Value in(Runtime& rt, const Value& self, const Args& args) {
  return Value::of(contains(rt, self, args.bind("test_in", {"seq"}, 1)[0]));
}

template <FilterFunction (*Find)(std::string_view)>
Value named(Runtime&, const Value& self, const Args& args) {
  args.bind("test", {}, 0);
  return Value::of(self.is(Kind::kString) && Find(self.text()) != nullptr);
}

template <class Compare>
Value compared(const Args& args, Compare compare) {
  return Value::of(compare(args.bind("comparison", {"other"}, 1)[0]));
}

Value eq(Runtime& rt, const Value& a, const Args& args) {
  return compared(args, [&](const Value& b) { return equals(rt, a, b); });
}
Value ne(Runtime& rt, const Value& a, const Args& args) {
  return compared(args, [&](const Value& b) { return !equals(rt, a, b); });
}
Value lt(Runtime& rt, const Value& a, const Args& args) {
  return compared(args, [&](const Value& b) { return less(rt, a, b); });
}
Value le(Runtime& rt, const Value& a, const Args& args) {
  return compared(args, [&](const Value& b) { return less_equal(rt, a, b); });
}
Value gt(Runtime& rt, const Value& a, const Args& args) {
  return compared(args, [&](const Value& b) { return less(rt, b, a, ">"); });
}
Value ge(Runtime& rt, const Value& a, const Args& args) {
  return compared(args, [&](const Value& b) { return less_equal(rt, b, a, ">="); });
}

constexpr FilterRow kTests[] = {{"odd", parity<1>},
                                {"even", parity<0>},
                                {"divisibleby", divisible_by},
                                {"defined", plain<is_defined>},
                                {"undefined", plain<is_undefined>},
                                {"filter", named<find_filter>},
                                {"test", named<find_test>},
                                {"none", plain<is_none>},
                                {"boolean", plain<is_boolean>},
                                {"false", plain<is_false>},
                                {"true", plain<is_true>},
                                {"integer", plain<is_integer>},
                                {"float", plain<is_float>},
                                {"lower", cased<true>},
                                {"upper", cased<false>},
                                {"string", plain<is_string>},
                                {"mapping", plain<is_mapping>},
                                {"number", plain<is_number>},
                                {"sequence", plain<is_sequence>},
                                {"iterable", plain<is_iterable>},
                                {"callable", plain<is_callable>},
                                {"sameas", same_as},
                                {"escaped", plain<is_escaped>},
                                {"in", in},
                                {"==", eq},
                                {"eq", eq},
                                {"equalto", eq},
                                {"!=", ne},
                                {"ne", ne},
                                {">", gt},
                                {"gt", gt},
                                {"greaterthan", gt},
                                {"ge", ge},
                                {">=", ge},
                                {"<", lt},
                                {"lt", lt},
                                {"lessthan", lt},
                                {"<=", le},
                                {"le", le}};

FilterFunction find_in(std::span<const FilterRow> rows, std::string_view name) {
  for (const FilterRow& row : rows) {
    if (name == row.name) return row.function;
  }
  return nullptr;
}

}  // namespace

std::span<const FilterRow> tests() { return kTests; }

FilterFunction find_filter(std::string_view name) {
  const FilterFunction found = find_in(text_filters(), name);
  return found != nullptr ? found : find_in(list_filters(), name);
}

FilterFunction find_test(std::string_view name) { return find_in(tests(), name); }

Value call_filter(Runtime& rt, std::string_view name, const Value& self, const Args& args) {
  const FilterFunction function = find_filter(name);
  if (function == nullptr) fail("TemplateRuntimeError", fmt::format("No filter named '{}'.", name));
  rt.step();
  rt.read(self);
  rt.read(args);
  return function(rt, self, args);
}

bool call_test(Runtime& rt, std::string_view name, const Value& self, const Args& args) {
  const FilterFunction function = find_test(name);
  if (function == nullptr) fail("TemplateRuntimeError", fmt::format("No test named '{}'.", name));
  rt.step();
  rt.read(self);
  rt.read(args);
  return truthy(rt, function(rt, self, args));
}

}  // namespace penstock::jinja
