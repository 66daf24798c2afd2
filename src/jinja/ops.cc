#include "jinja/ops.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "jinja/eval.h"
#include "jinja/print.h"
#include "jinja/text.h"

namespace penstock::jinja {
namespace {

constexpr std::array<const char*, 7> kSymbols = {"+", "-", "*", "/", "//", "%", "** or pow()"};

[[noreturn]] void fail_operands(BinaryOp op, const Value& a, const Value& b) {
  fail("TypeError", fmt::format("unsupported operand type(s) for {}: '{}' and '{}'",
                                kSymbols[static_cast<size_t>(op)], type_name(a), type_name(b)));
}

[[noreturn]] void fail_overflow() { fail("OverflowError", "integers are limited to 64 bits here"); }

int64_t integer_power(int64_t base, int64_t exponent) {
  int64_t result = 1;
  while (true) {
    if ((exponent & 1) != 0 && __builtin_mul_overflow(result, base, &result)) fail_overflow();
    exponent >>= 1;
    if (exponent == 0) return result;
    if (__builtin_mul_overflow(base, base, &base)) fail_overflow();
  }
}

Value divide_integers(BinaryOp op, int64_t x, int64_t y) {
  if (y == 0) {
    fail("ZeroDivisionError", op == BinaryOp::kDiv   ? "division by zero"
                              : op == BinaryOp::kMod ? "integer modulo by zero"
                                                     : "integer division or modulo by zero");
  }
  if (op == BinaryOp::kDiv) return Value::of(static_cast<double>(x) / static_cast<double>(y));
  if (y == -1) {  // INT64_MIN / -1 overflows
    if (op == BinaryOp::kMod) return Value::of(int64_t{0});
    if (__builtin_sub_overflow(int64_t{0}, x, &x)) fail_overflow();
    return Value::of(x);
  }
  const int64_t quotient = x / y, rest = x % y;
  const bool down = rest != 0 && (rest < 0) != (y < 0);
  return Value::of(op == BinaryOp::kMod ? rest + (down ? y : 0) : quotient - (down ? 1 : 0));
}

Value real_arithmetic(BinaryOp op, double x, double y) {
  switch (op) {
    case BinaryOp::kAdd: return Value::of(x + y);
    case BinaryOp::kSub: return Value::of(x - y);
    case BinaryOp::kMul: return Value::of(x * y);
    case BinaryOp::kPow: {
      if (x == 0 && y < 0) fail("ZeroDivisionError", "0.0 cannot be raised to a negative power");
      const double power = std::pow(x, y);
      if (std::isnan(power) && !std::isnan(x) && !std::isnan(y))
        fail("TypeError", "complex numbers are not supported");
      if (std::isinf(power) && std::isfinite(x) && std::isfinite(y))
        fail("OverflowError", "Numerical result out of range");
      return Value::of(power);
    }
    default: break;
  }
  if (y == 0) {
    fail("ZeroDivisionError",
         op == BinaryOp::kDiv ? "float division by zero" : "float floor division by zero");
  }
  if (op == BinaryOp::kDiv) return Value::of(x / y);
  double rest = std::fmod(x, y);
  if (rest != 0 && (rest < 0) != (y < 0)) rest += y;
  if (op == BinaryOp::kMod) return Value::of(rest == 0 ? std::copysign(0.0, y) : rest);
  return Value::of(std::floor((x - rest) / y + 0.5));
}

Value arithmetic(BinaryOp op, const Value& a, const Value& b) {
  if (!a.is_integral() || !b.is_integral())
    return real_arithmetic(op, a.as_double(), b.as_double());
  const int64_t x = a.as_int(), y = b.as_int();
  int64_t result = 0;
  bool overflow = false;
  switch (op) {
    case BinaryOp::kAdd: overflow = __builtin_add_overflow(x, y, &result); break;
    case BinaryOp::kSub: overflow = __builtin_sub_overflow(x, y, &result); break;
    case BinaryOp::kMul: overflow = __builtin_mul_overflow(x, y, &result); break;
    case BinaryOp::kPow:
      if (y < 0) return real_arithmetic(op, a.as_double(), b.as_double());
      return Value::of(integer_power(x, y));
    default: return divide_integers(op, x, y);
  }
  if (overflow) fail_overflow();
  return Value::of(result);
}

Value concatenate(Runtime& rt, const Value& a, const Value& b) {
  const bool left_markup = as<String>(a).markup, right_markup = as<String>(b).markup;
  std::string out = right_markup && !left_markup ? escape_html(a.text()) : a.text();
  rt.append(out, left_markup && !right_markup ? escape_html(b.text()) : b.text());
  return rt.string(std::move(out), left_markup || right_markup);
}

Value repeat(Runtime& rt, const Value& value, int64_t times) {
  const size_t n = times > 0 ? static_cast<size_t>(times) : 0;
  if (value.is(Kind::kString)) {
    const std::string& text = value.text();
    if (!text.empty() && n > rt.max_string()) rt.check_size(n);
    rt.check_size(text.size() * n);
    std::string out;
    out.reserve(text.size() * n);
    for (size_t i = 0; i < n && !text.empty(); ++i) out += text;
    return rt.string_like(value, std::move(out));
  }
  const auto& items = value.items();
  std::vector<Value> out;
  if (!items.empty()) {
    rt.check_items(n);
    rt.check_items(items.size() * n);
    for (size_t i = 0; i < n; ++i) out.insert(out.end(), items.begin(), items.end());
  }
  return value.is(Kind::kList) ? rt.list(std::move(out)) : rt.tuple(std::move(out));
}

Value add(Runtime& rt, const Value& a, const Value& b) {
  if (a.is(Kind::kString) && b.is(Kind::kString)) return concatenate(rt, a, b);
  if (a.is_sequence() && a.kind == b.kind) {
    std::vector<Value> items = a.items();
    items.insert(items.end(), b.items().begin(), b.items().end());
    return a.is(Kind::kList) ? rt.list(std::move(items)) : rt.tuple(std::move(items));
  }
  if (a.is(Kind::kString) || a.is_sequence()) {
    const char* name = a.is(Kind::kString) ? "str" : type_name(a);
    fail("TypeError",
         fmt::format("can only concatenate {} (not \"{}\") to {}", name, type_name(b), name));
  }
  fail_operands(BinaryOp::kAdd, a, b);
}

bool repeatable(const Value& value) { return value.is(Kind::kString) || value.is_sequence(); }

// Returns the position of a Python index in a sequence of n, or n if it is out of range.
size_t wrap_index(int64_t index, size_t n) {
  if (index < 0) index += static_cast<int64_t>(n);
  return index < 0 || index >= static_cast<int64_t>(n) ? n : static_cast<size_t>(index);
}

// Returns object[key], or kMissing for a TypeError or LookupError of Python.
Value subscript(Runtime& rt, const Value& object, const Value& key) {
  switch (object.kind) {
    case Kind::kUndefined: fail_undefined(object);
    case Kind::kDict: {
      if (key.is(Kind::kList) || key.is(Kind::kDict)) return Value();
      const Value* found = as<Dict>(object).find(rt, key);
      return found != nullptr ? *found : Value();
    }
    case Kind::kList:
    case Kind::kTuple: {
      if (!key.is_integral()) return Value();
      const auto& items = object.items();
      const size_t i = wrap_index(key.as_int(), items.size());
      return i < items.size() ? items[i] : Value();
    }
    case Kind::kString: {
      if (!key.is_integral()) return Value();
      const size_t n = as<String>(object).length();
      const size_t i = wrap_index(key.as_int(), n);
      if (i >= n) return Value();
      const std::string& text = object.text();
      if (n != text.size()) rt.step(text.size() / 64);
      size_t end = n == text.size() ? i : byte_offset(text, i);
      const size_t begin = end;
      decode(text, end);
      return rt.string_like(object, text.substr(begin, end - begin));
    }
    case Kind::kRange: {
      if (!key.is_integral()) return Value();
      const auto& range = as<Range>(object);
      const auto n = static_cast<size_t>(range.length());
      const size_t i = wrap_index(key.as_int(), n);
      return i < n ? Value::of(range.start + range.step * static_cast<int64_t>(i)) : Value();
    }
    default: return Value();
  }
}

struct SliceBounds {
  int64_t start, stop, step;
};

SliceBounds slice_bounds(const Value& start, const Value& stop, const Value& step, int64_t n) {
  const auto part = [](const Value& v, int64_t otherwise) {
    if (v.is(Kind::kNone) || v.is(Kind::kMissing)) return otherwise;
    if (!v.is_integral()) {
      fail("TypeError", "slice indices must be integers or None or have an __index__ method");
    }
    return v.as_int();
  };
  const int64_t by = std::max<int64_t>(part(step, 1), -INT64_MAX);
  if (by == 0) fail("ValueError", "slice step cannot be zero");
  const int64_t low = by > 0 ? 0 : -1, high = by > 0 ? n : n - 1;
  const auto bound = [&](const Value& v, int64_t otherwise) {
    int64_t i = part(v, otherwise);
    if (v.is(Kind::kNone) || v.is(Kind::kMissing)) return i;
    if (i < 0) i += n;
    return std::clamp(i, low, high);
  };
  return {bound(start, by > 0 ? 0 : n - 1), bound(stop, by > 0 ? n : -1), by};
}

template <class Take>
void for_slice(const SliceBounds& bounds, Take take) {
  for (int64_t i = bounds.start; bounds.step > 0 ? i < bounds.stop : i > bounds.stop;) {
    take(i);
    if (__builtin_add_overflow(i, bounds.step, &i)) break;
  }
}

Value slice_text(Runtime& rt, const Value& object, const SliceBounds& bounds) {
  const std::string& text = object.text();
  rt.step(text.size() / 16);
  if (bounds.step == 1) {
    if (bounds.stop <= bounds.start) return rt.string_like(object, "");
    const size_t begin = byte_offset(text, static_cast<size_t>(bounds.start));
    const std::string_view rest = std::string_view(text).substr(begin);
    return rt.string_like(
        object, std::string(rest.substr(
                    0, byte_offset(rest, static_cast<size_t>(bounds.stop - bounds.start)))));
  }
  std::vector<uint32_t> starts;
  for (size_t i = 0; i < text.size(); decode(text, i)) starts.push_back(static_cast<uint32_t>(i));
  starts.push_back(static_cast<uint32_t>(text.size()));
  std::string out;
  for_slice(bounds, [&](int64_t i) {
    const size_t at = static_cast<size_t>(i);
    out.append(text, starts[at], starts[at + 1] - starts[at]);
  });
  return rt.string_like(object, std::move(out));
}

// Whether it is an attribute of every Python object, which the sandbox does not expose.
bool is_internal(const std::string& name) {
  static constexpr std::array kNames = {"__class__",         "__init__",         "__doc__",
                                        "__dir__",           "__str__",          "__repr__",
                                        "__hash__",          "__eq__",           "__format__",
                                        "__reduce__",        "__getattribute__", "__subclasshook__",
                                        "__init_subclass__", "__new__",          "__setattr__"};
  return name.starts_with("__") && std::find(kNames.begin(), kNames.end(), name) != kNames.end();
}

// Returns Jinja's attribute of a macro.
Value macro_attribute(Runtime& rt, const MacroInfo& info, const std::string& name) {
  if (name == "name") return info.name.empty() ? Value::none() : rt.string(info.name);
  if (name == "catch_kwargs") return Value::of(info.kwargs_slot >= 0);
  if (name == "catch_varargs") return Value::of(info.varargs_slot >= 0);
  if (name == "caller") return Value::of(info.uses_caller);
  if (name == "explicit_caller")
    return Value::of(std::ranges::find(info.params, "caller") != info.params.end());
  if (name != "arguments") return {};
  std::vector<Value> names;
  for (const std::string& param : info.params) names.push_back(rt.string(param));
  return rt.tuple(std::move(names));
}

// Returns getattr(object, name), or kMissing for an AttributeError.
Value attribute(Runtime& rt, const Value& object, const std::string& name) {
  if (object.is(Kind::kUndefined)) fail_undefined(object);
  if (object.is(Kind::kNamespace)) {
    const Value* found = as<Dict>(object).find(name);
    if (found != nullptr && name.starts_with('_')) return rt.unsafe_attribute(object, name);
    return found != nullptr ? *found : Value();
  }
  if (is_internal(name)) return rt.unsafe_attribute(object, name);
  if (object.is(Kind::kMacro)) return macro_attribute(rt, as<Macro>(object).info, name);
  return find_method(rt, object, name);
}

}  // namespace

int64_t to_index(const Value& value, const char* what) {
  if (value.is(Kind::kUndefined)) fail_undefined(value);
  if (!value.is_integral()) {
    fail("TypeError", fmt::format("{} must be an integer, got '{}'", what, type_name(value)));
  }
  return value.as_int();
}

Value binary(Runtime& rt, BinaryOp op, const Value& a, const Value& b) {
  if (op == BinaryOp::kMod && a.is(Kind::kString)) rt.read(a);
  if (op == BinaryOp::kMod && a.is(Kind::kString))
    return rt.string_like(a, format_percent(rt, a.text(), b));
  if (a.is(Kind::kUndefined)) fail_undefined(a);
  if (b.is(Kind::kUndefined)) fail_undefined(b);
  if (a.is_number() && b.is_number()) return arithmetic(op, a, b);
  if (op == BinaryOp::kAdd) return add(rt, a, b);
  if (op == BinaryOp::kMul) {
    if (repeatable(a) && b.is_integral()) return repeat(rt, a, b.as_int());
    if (repeatable(b) && a.is_integral()) return repeat(rt, b, a.as_int());
    if (repeatable(a) || repeatable(b)) {
      fail("TypeError", fmt::format("can't multiply sequence by non-int of type '{}'",
                                    type_name(repeatable(a) ? b : a)));
    }
  }
  fail_operands(op, a, b);
}

Value negate(const Value& value) {
  if (value.is(Kind::kUndefined)) fail_undefined(value);
  if (value.is(Kind::kFloat)) return Value::of(-value.real);
  if (!value.is_integral()) {
    fail("TypeError", fmt::format("bad operand type for unary -: '{}'", type_name(value)));
  }
  return arithmetic(BinaryOp::kSub, Value::of(int64_t{0}), value);
}

Value positive(const Value& value) {
  if (value.is(Kind::kUndefined)) fail_undefined(value);
  if (!value.is_number())
    fail("TypeError", fmt::format("bad operand type for unary +: '{}'", type_name(value)));
  return value.is(Kind::kBool) ? Value::of(value.as_int()) : value;
}

Value get_attribute(Runtime& rt, const Value& object, const std::string& name) {
  Value found = attribute(rt, object, name);
  if (!found.is(Kind::kMissing)) return found;
  const Value key = rt.string(name);
  found = subscript(rt, object, key);
  return found.is(Kind::kMissing) ? rt.undefined_attribute(object, key) : found;
}

Value get_item(Runtime& rt, const Value& object, const Value& key) {
  Value found = subscript(rt, object, key);
  if (!found.is(Kind::kMissing)) return found;
  if (key.is(Kind::kString)) found = attribute(rt, object, key.text());
  return found.is(Kind::kMissing) ? rt.undefined_attribute(object, key) : found;
}

Value get_slice(Runtime& rt, const Value& object, const Value& start, const Value& stop,
                const Value& step) {
  switch (object.kind) {
    case Kind::kUndefined: fail_undefined(object);
    case Kind::kString:
      return slice_text(rt, object, slice_bounds(start, stop, step, length_of(rt, object)));
    case Kind::kList:
    case Kind::kTuple: {
      const auto& items = object.items();
      std::vector<Value> out;
      for_slice(slice_bounds(start, stop, step, static_cast<int64_t>(items.size())),
                [&](int64_t i) { out.push_back(items[static_cast<size_t>(i)]); });
      return object.is(Kind::kList) ? rt.list(std::move(out)) : rt.tuple(std::move(out));
    }
    case Kind::kRange: {
      const auto& range = as<Range>(object);
      const SliceBounds b = slice_bounds(start, stop, step, range.length());
      int64_t first = 0, last = 0, by = 0;
      if (__builtin_mul_overflow(b.start, range.step, &first) ||
          __builtin_add_overflow(range.start, first, &first) ||
          __builtin_mul_overflow(b.stop, range.step, &last) ||
          __builtin_add_overflow(range.start, last, &last) ||
          __builtin_mul_overflow(range.step, b.step, &by)) {
        fail_overflow();
      }
      return rt.range(first, last, by);
    }
    case Kind::kDict: fail("TypeError", "unhashable type: 'slice'");
    default: fail("TypeError", fmt::format("'{}' object is not subscriptable", type_name(object)));
  }
}

}  // namespace penstock::jinja
