// Methods and properties of the built-in types. Those that change a list or a dict are unsafe, as
// in jinja2's immutable sandbox.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <optional>
#include <span>

#include "jinja/loop.h"
#include "jinja/ops.h"
#include "jinja/print.h"
#include "jinja/text.h"

namespace penstock::jinja {
namespace {

using Method = Value (*)(Runtime&, const Value& self, const Args&);
struct MethodRow {
  const char* name;
  Method method;
};

const std::string& string_argument(const Value& value, const char* method) {
  if (value.is(Kind::kUndefined)) {
    fail("TypeError", fmt::format("{}: expected str, got 'Undefined'", method));
  }
  if (!value.is(Kind::kString)) {
    fail("TypeError", fmt::format("{}: expected str, got '{}'", method, type_name(value)));
  }
  return value.text();
}

bool given(const Value& value) { return !value.is(Kind::kMissing) && !value.is(Kind::kNone); }

template <std::string (*Map)(std::string_view)>
Value str_mapped(Runtime& rt, const Value& self, const Args& args) {
  args.bind("str", {}, 0);
  rt.step(self.text().size());
  return rt.string_like(self, Map(self.text()));
}

template <bool (*Test)(char32_t), bool WhenEmpty = false>
Value all_of(Runtime& rt, const Value& self, const Args& args) {
  args.bind("str", {}, 0);
  const std::string& text = self.text();
  rt.step(text.size() / 8);
  for (size_t i = 0; i < text.size();) {
    if (!Test(decode(text, i))) return Value::of(false);
  }
  return Value::of(WhenEmpty || !text.empty());
}

// Implements islower and isupper: at least one cased character, and none of the other case.
template <bool Lower>
Value is_case(Runtime& rt, const Value& self, const Args& args) {
  args.bind("str", {}, 0);
  const std::string& text = self.text();
  rt.step(text.size() / 8);
  bool any = false;
  for (size_t i = 0; i < text.size();) {
    const char32_t c = decode(text, i);
    if (is_title(c) || (Lower ? is_upper(c) : is_lower(c))) return Value::of(false);
    any = any || (Lower ? is_lower(c) : is_upper(c));
  }
  return Value::of(any);
}

Value is_title_case(Runtime& rt, const Value& self, const Args&) {
  const std::string& text = self.text();
  rt.step(text.size() / 8);
  bool any = false, after_cased = false;
  for (size_t i = 0; i < text.size();) {
    const char32_t c = decode(text, i);
    const bool big = is_upper(c) || is_title(c), small = is_lower(c);
    if ((big && after_cased) || (small && !after_cased)) return Value::of(false);
    after_cased = big || small;
    any = any || after_cased;
  }
  return Value::of(any);
}

bool alnum(char32_t c) { return is_alpha(c) || is_decimal(c) || is_digit(c) || is_numeric(c); }
bool ascii(char32_t c) { return c < 0x80; }

template <Side S>
Value strip_method(Runtime& rt, const Value& self, const Args& args) {
  const auto a = args.bind("strip", {"chars"}, 0);
  if (!given(a[0])) return rt.string_like(self, std::string(strip(self.text(), S)));
  const std::string_view chars = string_argument(a[0], "strip");
  rt.step(self.text().size() * (1 + chars.size()) / 64);
  return rt.string_like(self, std::string(strip(self.text(), S, &chars)));
}

int64_t count_argument(const Value& value, int64_t otherwise) {
  return value.is(Kind::kMissing) ? otherwise : to_index(value, "count");
}

std::vector<std::string_view> split_white(Runtime& rt, std::string_view text, int64_t limit,
                                          bool from_right) {
  std::vector<std::string_view> parts;
  const Side side = from_right ? Side::kRight : Side::kLeft;
  for (text = strip(text, side); !text.empty(); text = strip(text, side)) {
    if (limit >= 0 && static_cast<int64_t>(parts.size()) == limit) {
      parts.push_back(text);
      break;
    }
    rt.check_items(parts.size() + 1);
    size_t end = from_right ? text.size() : 0;
    while (from_right ? end > 0 : end < text.size()) {
      size_t next = from_right ? previous(text, end) : end;
      size_t after = next;
      if (is_space(decode(text, after))) break;
      end = from_right ? next : after;
    }
    parts.push_back(from_right ? text.substr(end) : text.substr(0, end));
    text = from_right ? text.substr(0, end) : text.substr(end);
  }
  if (from_right) std::reverse(parts.begin(), parts.end());
  return parts;
}

std::vector<std::string_view> split_on(Runtime& rt, std::string_view text,
                                       std::string_view separator, int64_t limit, bool from_right) {
  if (separator.empty()) fail("ValueError", "empty separator");
  std::vector<std::string_view> parts;
  while (limit < 0 || static_cast<int64_t>(parts.size()) < limit) {
    const size_t hit = from_right ? rfind_text(text, separator) : find_text(text, separator);
    if (hit == std::string_view::npos) break;
    rt.step(from_right ? 1 + text.size() / 64 : 1);
    rt.check_items(parts.size() + 2);
    parts.push_back(from_right ? text.substr(hit + separator.size()) : text.substr(0, hit));
    text = from_right ? text.substr(0, hit) : text.substr(hit + separator.size());
  }
  parts.push_back(text);
  if (from_right) std::reverse(parts.begin(), parts.end());
  return parts;
}

Value to_list(Runtime& rt, const Value& like, const std::vector<std::string_view>& parts) {
  rt.check_items(parts.size());
  std::vector<Value> items;
  items.reserve(parts.size());
  for (const std::string_view part : parts)
    items.push_back(rt.string_like(like, std::string(part)));
  return rt.list(std::move(items));
}

template <bool FromRight>
Value split(Runtime& rt, const Value& self, const Args& args) {
  const auto a = args.bind("split", {"sep", "maxsplit"}, 0);
  const int64_t limit = count_argument(a[1], -1);
  rt.step(self.text().size() / 16);
  if (!given(a[0])) return to_list(rt, self, split_white(rt, self.text(), limit, FromRight));
  return to_list(rt, self,
                 split_on(rt, self.text(), string_argument(a[0], "split"), limit, FromRight));
}

Value split_lines_method(Runtime& rt, const Value& self, const Args& args) {
  const auto a = args.bind("splitlines", {"keepends"}, 0);
  return to_list(rt, self, split_lines(self.text(), truthy(rt, a[0]), kMaxItems));
}

template <bool FromRight>
Value partition(Runtime& rt, const Value& self, const Args& args) {
  const auto a = args.bind("partition", {"sep"}, 1);
  const std::string& text = self.text();
  const std::string& separator = string_argument(a[0], "partition");
  if (separator.empty()) fail("ValueError", "empty separator");
  rt.step(text.size() / 64);
  const size_t hit = FromRight ? rfind_text(text, separator) : find_text(text, separator);
  const Value empty = rt.string_like(self, "");
  if (hit == std::string::npos) {
    return FromRight ? rt.tuple({empty, empty, self}) : rt.tuple({self, empty, empty});
  }
  return rt.tuple({rt.string_like(self, text.substr(0, hit)), rt.string_like(self, separator),
                   rt.string_like(self, text.substr(hit + separator.size()))});
}

Value str_replace(Runtime& rt, const Value& self, const Args& args) {
  const auto a = args.bind("replace", {"old", "new", "count"}, 2);
  const std::string& text = self.text();
  const std::string& old = string_argument(a[0], "replace");
  const std::string& fresh = string_argument(a[1], "replace");
  int64_t left = a[2].is(Kind::kNone) ? -1 : count_argument(a[2], -1);
  rt.step(text.size() / 64);
  std::string out;
  size_t i = 0;
  while (left != 0) {
    const size_t hit = find_text(text, old, i);
    if (hit == std::string::npos) break;
    rt.append(out, std::string_view(text).substr(i, hit - i));
    rt.append(out, fresh);
    i = hit + old.size();
    if (old.empty()) {  // matches between all code points
      if (i >= text.size()) break;
      const size_t start = i;
      decode(text, i);
      rt.append(out, std::string_view(text).substr(start, i - start));
    }
    rt.step(1 + fresh.size() / 64);
    if (left > 0) --left;
  }
  rt.append(out, std::string_view(text).substr(std::min(i, text.size())));
  return rt.string_like(self, std::move(out));
}

// Returns the part of the text between two optional code point positions, and its start.
std::string_view window(const Value& self, const Value& from, const Value& to, size_t& start) {
  const std::string& text = self.text();
  const auto n = static_cast<int64_t>(as<String>(self).length());
  const auto position = [&](const Value& v, int64_t otherwise) {
    if (!given(v)) return otherwise;
    int64_t i = to_index(v, "index");
    if (i < 0) i = std::max<int64_t>(i + n, 0);
    return i;
  };
  const int64_t first = position(from, 0), last = std::min(position(to, n), n);
  start = first > n ? std::string::npos : byte_offset(text, static_cast<size_t>(first));
  if (first > last) return {};
  const size_t end = byte_offset(text, static_cast<size_t>(last));
  return std::string_view(text).substr(start, end - start);
}

template <bool FromRight, bool MustFind>
Value find(Runtime& rt, const Value& self, const Args& args) {
  const auto a = args.bind("find", {"sub", "start", "end"}, 1);
  rt.step(self.text().size() / 64);
  const std::string& wanted = string_argument(a[0], "find");
  size_t start = 0;
  const std::string_view part = window(self, a[1], a[2], start);
  size_t hit = std::string_view::npos;
  if (start != std::string::npos && (part.data() != nullptr || wanted.empty())) {
    hit = FromRight ? rfind_text(part, wanted) : find_text(part, wanted);
  }
  if (hit == std::string_view::npos) {
    if (MustFind) fail("ValueError", "substring not found");
    return Value::of(int64_t{-1});
  }
  return Value::of(static_cast<int64_t>(
      count_code_points(std::string_view(self.text()).substr(0, start + hit))));
}

Value count(Runtime& rt, const Value& self, const Args& args) {
  const auto a = args.bind("count", {"sub", "start", "end"}, 1);
  rt.step(self.text().size() / 16);
  const std::string& wanted = string_argument(a[0], "count");
  size_t start = 0;
  const std::string_view part = window(self, a[1], a[2], start);
  if (wanted.empty()) {
    return Value::of(start == std::string::npos
                         ? int64_t{0}
                         : static_cast<int64_t>(count_code_points(part)) + 1);
  }
  int64_t n = 0;
  for (size_t i = 0; (i = find_text(part, wanted, i)) != std::string_view::npos; i += wanted.size())
    ++n;
  return Value::of(n);
}

template <bool AtEnd>
Value has_affix(Runtime& rt, const Value& self, const Args& args) {
  const char* name = AtEnd ? "endswith" : "startswith";
  const auto a = args.bind(name, {"prefix", "start", "end"}, 1);
  size_t start = 0;
  const std::string_view part = window(self, a[1], a[2], start);
  const auto matches = [&](const Value& affix) {
    const std::string& wanted = affix.text();
    return start != std::string::npos &&
           (AtEnd ? part.ends_with(wanted) : part.starts_with(wanted));
  };
  if (a[0].is(Kind::kString)) return Value::of(matches(a[0]));
  if (!a[0].is(Kind::kTuple)) {
    fail("TypeError",
         fmt::format("{} first arg must be str or a tuple of str, not {}", name, type_name(a[0])));
  }
  for (const Value& affix : a[0].items()) {
    rt.step();
    string_argument(affix, name);
    if (matches(affix)) return Value::of(true);
  }
  return Value::of(false);
}

template <bool Prefix>
Value remove_affix(Runtime& rt, const Value& self, const Args& args) {
  const auto a = args.bind(Prefix ? "removeprefix" : "removesuffix", {"affix"}, 1);
  const std::string& text = self.text();
  const std::string& affix = string_argument(a[0], "removeprefix");
  if (Prefix && text.starts_with(affix)) return rt.string_like(self, text.substr(affix.size()));
  if (!Prefix && text.ends_with(affix))
    return rt.string_like(self, text.substr(0, text.size() - affix.size()));
  return self;
}

Value str_join(Runtime& rt, const Value& self, const Args& args) {
  const auto a = args.bind("join", {"iterable"}, 1);
  if (!is_iterable(a[0])) fail("TypeError", "can only join an iterable");
  std::string out;
  const auto iter = iterate(rt, a[0]);
  size_t n = 0;
  for (Value item; iter->next(rt, item); ++n) {
    if (!item.is(Kind::kString)) {
      fail("TypeError",
           fmt::format("sequence item {}: expected str instance, {} found", n, type_name(item)));
    }
    if (n > 0) rt.append(out, self.text());
    rt.append(out, item.text());
  }
  return rt.string_like(self, std::move(out));
}

// Pads to a width. Align: < left, > right, ^ center (odd padding like CPython).
template <char Align>
Value justify(Runtime& rt, const Value& self, const Args& args) {
  const auto a = args.bind("justify", {"width", "fillchar"}, 1);
  const int64_t width = to_index(a[0], "width");
  const std::string fill = a[1].is(Kind::kMissing) ? " " : string_argument(a[1], "justify");
  if (count_code_points(fill) != 1) {
    fail("TypeError", "The fill character must be exactly one character long");
  }
  const auto n = static_cast<int64_t>(as<String>(self).length());
  if (width <= n) return self;
  const auto missing = static_cast<size_t>(width - n);
  rt.check_size(missing);
  rt.check_size(self.text().size() + missing * fill.size());
  const size_t odd = missing & static_cast<size_t>(width) & 1;
  const size_t left = Align == '<' ? 0 : Align == '>' ? missing : missing / 2 + odd;
  std::string out;
  for (size_t i = 0; i < left; ++i) out += fill;
  out += self.text();
  for (size_t i = left; i < missing; ++i) out += fill;
  return rt.string_like(self, std::move(out));
}

Value zero_fill(Runtime& rt, const Value& self, const Args& args) {
  const auto a = args.bind("zfill", {"width"}, 1);
  const int64_t width = to_index(a[0], "width");
  const auto n = static_cast<int64_t>(as<String>(self).length());
  if (width <= n) return self;
  rt.check_size(static_cast<size_t>(width));
  std::string out = self.text();
  const size_t at = !out.empty() && (out[0] == '-' || out[0] == '+') ? 1 : 0;
  out.insert(at, static_cast<size_t>(width - n), '0');
  return rt.string_like(self, std::move(out));
}

Value expand_tabs(Runtime& rt, const Value& self, const Args& args) {
  const auto a = args.bind("expandtabs", {"tabsize"}, 0);
  const int64_t size = a[0].is(Kind::kMissing) ? 8 : to_index(a[0], "tabsize");
  std::string out;
  int64_t column = 0;
  const std::string& text = self.text();
  for (size_t i = 0; i < text.size();) {
    const size_t start = i;
    const char32_t c = decode(text, i);
    if (c == '\t') {
      const int64_t n = size > 0 ? size - column % size : 0;
      rt.check_size(static_cast<size_t>(n));
      rt.append(out, std::string(static_cast<size_t>(n), ' '));
      column += n;
      continue;
    }
    rt.append(out, std::string_view(text).substr(start, i - start));
    column = c == '\n' || c == '\r' ? 0 : column + 1;
  }
  return rt.string_like(self, std::move(out));
}

Value str_format(Runtime& rt, const Value& self, const Args& args) {
  return rt.string_like(self, format_braces(rt, self.text(), args));
}

Value format_map(Runtime& rt, const Value& self, const Args& args) {
  const auto a = args.bind("format_map", {"mapping"}, 1);
  if (!a[0].is(Kind::kDict)) fail("TypeError", "format_map() needs a mapping");
  Args fields;
  for (const auto& [key, value] : as<Dict>(a[0]).items) {
    if (key.is(Kind::kString)) fields.keyword.emplace_back(key.text(), value);
  }
  return rt.string_like(self, format_braces(rt, self.text(), fields));
}

Value is_identifier_method(Runtime& rt, const Value& self, const Args&) {
  rt.step(self.text().size() / 8);
  return Value::of(is_identifier(self.text()));
}

Value item_index(Runtime& rt, const Value& self, const Args& args) {
  const auto a = args.bind("index", {"value", "start", "stop"}, 1);
  const auto& items = self.items();
  for (size_t i = 0; i < items.size(); ++i) {
    if (equals(rt, items[i], a[0])) return Value::of(static_cast<int64_t>(i));
  }
  fail("ValueError", self.is(Kind::kList) ? to_repr(rt, a[0]) + " is not in list"
                                          : "tuple.index(x): x not in tuple");
}

Value item_count(Runtime& rt, const Value& self, const Args& args) {
  const auto a = args.bind("count", {"value"}, 1);
  int64_t n = 0;
  for (const Value& item : self.items()) n += equals(rt, item, a[0]) ? 1 : 0;
  return Value::of(n);
}

Value copy(Runtime& rt, const Value& self, const Args& args) {
  args.bind("copy", {}, 0);
  return self.is(Kind::kList) ? rt.list(self.items()) : rt.dict(as<Dict>(self).items);
}

Value dict_get(Runtime& rt, const Value& self, const Args& args) {
  args.no_keywords("dict.get");
  const auto a = args.bind("get", {"key", "default"}, 1);
  const Value* found = as<Dict>(self).find(rt, a[0]);
  return found != nullptr ? *found : a[1].is(Kind::kMissing) ? Value::none() : a[1];
}

template <DictView::What What>
Value dict_view(Runtime& rt, const Value& self, const Args& args) {
  args.bind("dict view", {}, 0);
  return from_object(Kind::kDictView,
                     rt.make<DictView>(std::static_pointer_cast<Dict>(self.object), What));
}

Value is_integer(Runtime&, const Value& self, const Args&) {
  return Value::of(std::isfinite(self.real) && self.real == std::floor(self.real));
}

Value bit_length(Runtime&, const Value& self, const Args&) {
  const int64_t n = self.as_int();
  uint64_t magnitude = n < 0 ? 0 - static_cast<uint64_t>(n) : static_cast<uint64_t>(n);
  int64_t bits = 0;
  for (; magnitude != 0; magnitude >>= 1) ++bits;
  return Value::of(bits);
}

constexpr MethodRow kStringMethods[] = {{"capitalize", str_mapped<capitalize>},
                                        {"casefold", str_mapped<to_lower>},
                                        {"center", justify<'^'>},
                                        {"count", count},
                                        {"endswith", has_affix<true>},
                                        {"expandtabs", expand_tabs},
                                        {"find", find<false, false>},
                                        {"format", str_format},
                                        {"format_map", format_map},
                                        {"index", find<false, true>},
                                        {"isalnum", all_of<alnum>},
                                        {"isalpha", all_of<is_alpha>},
                                        {"isascii", all_of<ascii, true>},
                                        {"isdecimal", all_of<is_decimal>},
                                        {"isdigit", all_of<is_digit>},
                                        {"isidentifier", is_identifier_method},
                                        {"islower", is_case<true>},
                                        {"isnumeric", all_of<is_numeric>},
                                        {"isprintable", all_of<is_printable, true>},
                                        {"isspace", all_of<is_space>},
                                        {"istitle", is_title_case},
                                        {"isupper", is_case<false>},
                                        {"join", str_join},
                                        {"ljust", justify<'<'>},
                                        {"lower", str_mapped<to_lower>},
                                        {"lstrip", strip_method<Side::kLeft>},
                                        {"partition", partition<false>},
                                        {"removeprefix", remove_affix<true>},
                                        {"removesuffix", remove_affix<false>},
                                        {"replace", str_replace},
                                        {"rfind", find<true, false>},
                                        {"rindex", find<true, true>},
                                        {"rjust", justify<'>'>},
                                        {"rpartition", partition<true>},
                                        {"rsplit", split<true>},
                                        {"rstrip", strip_method<Side::kRight>},
                                        {"split", split<false>},
                                        {"splitlines", split_lines_method},
                                        {"startswith", has_affix<false>},
                                        {"strip", strip_method<Side::kBoth>},
                                        {"swapcase", str_mapped<swap_case>},
                                        {"title", str_mapped<title_words>},
                                        {"upper", str_mapped<to_upper>},
                                        {"zfill", zero_fill}};
constexpr MethodRow kListMethods[] = {{"copy", copy}, {"count", item_count}, {"index", item_index}};
constexpr MethodRow kTupleMethods[] = {{"count", item_count}, {"index", item_index}};
constexpr MethodRow kDictMethods[] = {{"copy", copy},
                                      {"get", dict_get},
                                      {"items", dict_view<DictView::What::kItems>},
                                      {"keys", dict_view<DictView::What::kKeys>},
                                      {"values", dict_view<DictView::What::kValues>}};
constexpr MethodRow kIntMethods[] = {{"bit_length", bit_length}};
constexpr MethodRow kFloatMethods[] = {{"is_integer", is_integer}};
constexpr const char* kListUnsafe[] = {"append", "clear",  "extend",  "insert",
                                       "pop",    "remove", "reverse", "sort"};
constexpr const char* kDictUnsafe[] = {"clear", "pop", "popitem", "setdefault", "update"};

std::span<const MethodRow> methods_of(const Value& value) {
  switch (value.kind) {
    case Kind::kString: return kStringMethods;
    case Kind::kList: return kListMethods;
    case Kind::kTuple: return kTupleMethods;
    case Kind::kDict: return kDictMethods;
    case Kind::kBool:
    case Kind::kInt: return kIntMethods;
    case Kind::kFloat: return kFloatMethods;
    default: return {};
  }
}

std::span<const char* const> unsafe_of(const Value& value) {
  if (value.is(Kind::kList)) return kListUnsafe;
  if (value.is(Kind::kDict)) return kDictUnsafe;
  return {};
}

Value property(const Value& object, const std::string& name) {
  if (object.is(Kind::kTuple) && as<List>(object).is_group) {
    if (name == "grouper") return object.items()[0];
    if (name == "list") return object.items()[1];
  }
  if (object.is(Kind::kRange)) {
    const auto& range = as<Range>(object);
    if (name == "start") return Value::of(range.start);
    if (name == "stop") return Value::of(range.stop);
    if (name == "step") return Value::of(range.step);
  }
  if (object.is_number()) {
    if (name == "real") return object.is(Kind::kBool) ? Value::of(object.as_int()) : object;
    if (name == "imag") return object.is(Kind::kFloat) ? Value::of(0.0) : Value::of(int64_t{0});
  }
  if (object.is_integral()) {
    if (name == "numerator") return Value::of(object.as_int());
    if (name == "denominator") return Value::of(int64_t{1});
  }
  return Value();
}

Value cycler_member(Runtime& rt, const Value& object, const std::string& name) {
  auto& cycler = as<Cycler>(object);
  if (name == "current") return cycler.items[cycler.position];
  if (name != "next" && name != "reset") return Value();
  const bool advance = name == "next";
  return rt.function(
      name,
      [object, advance](Runtime&, const Args& args) {
        args.bind("cycler", {}, 0);
        auto& self = as<Cycler>(object);
        const Value current = self.items[self.position];
        self.position = advance ? (self.position + 1) % self.items.size() : 0;
        return advance ? current : Value::none();
      },
      object.depth() + 1);
}

}  // namespace

Value find_method(Runtime& rt, const Value& object, const std::string& name) {
  if (object.is(Kind::kCycler)) return cycler_member(rt, object, name);
  if (object.is(Kind::kLoop)) return loop_member(rt, object, name);
  for (const MethodRow& row : methods_of(object)) {
    if (name != row.name) continue;
    return rt.function(
        name,
        [object, method = row.method](Runtime& r, const Args& args) {
          r.read(object);
          r.read(args);
          return method(r, object, args);
        },
        object.depth() + 1);
  }
  for (const char* unsafe : unsafe_of(object)) {
    if (name == unsafe) return rt.unsafe_attribute(object, name);
  }
  return property(object, name);
}

}  // namespace penstock::jinja
