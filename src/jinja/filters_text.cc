// Filters that produce or read text.
#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <optional>

#include "base/ascii.h"
#include "base/locale_free.h"
#include "jinja/filters.h"
#include "jinja/ops.h"
#include "jinja/print.h"
#include "jinja/text.h"

namespace penstock::jinja {
namespace {

// Returns str(value); Markup stays Markup.
Value soft(Runtime& rt, const Value& value) {
  return value.is(Kind::kString) ? value : rt.string(to_text(rt, value));
}

template <std::string (*Map)(std::string_view)>
Value mapped(Runtime& rt, const Value& self, const Args& args) {
  args.bind("filter", {}, 0);
  const Value text = soft(rt, self);
  rt.step(text.text().size());
  return rt.string_like(text, Map(text.text()));
}

// Calls the method of str with the same arguments.
Value method(Runtime& rt, const Value& self, const char* name, const Args& args) {
  return as<Function>(find_method(rt, soft(rt, self), name)).body(rt, args);
}

Value center(Runtime& rt, const Value& self, const Args& args) {
  const auto a = args.bind("do_center", {"width"}, 0);
  return method(rt, self, "center",
                {{a[0].is(Kind::kMissing) ? Value::of(int64_t{80}) : a[0]}, {}});
}

Value trim(Runtime& rt, const Value& self, const Args& args) {
  const auto a = args.bind("do_trim", {"chars"}, 0);
  return method(rt, self, "strip", {{a[0].is(Kind::kMissing) ? Value::none() : a[0]}, {}});
}

Value replace(Runtime& rt, const Value& self, const Args& args) {
  const auto a = args.bind("do_replace", {"old", "new", "count"}, 2);
  const Value count =
      a[2].is(Kind::kMissing) || a[2].is(Kind::kNone) ? Value::of(int64_t{-1}) : a[2];
  const Value plain = rt.string(to_text(rt, self));
  return method(rt, plain, "replace",
                {{rt.string(to_text(rt, a[0])), rt.string(to_text(rt, a[1])), count}, {}});
}

Value escape(Runtime& rt, const Value& self, const Args& args) {
  args.bind("escape", {}, 0);
  if (self.is(Kind::kString) && as<String>(self).markup) return self;
  return rt.string(escape_html(to_text(rt, self)), true);
}

Value force_escape(Runtime& rt, const Value& self, const Args& args) {
  args.bind("do_forceescape", {}, 0);
  return rt.string(escape_html(to_text(rt, self)), true);
}

Value safe(Runtime& rt, const Value& self, const Args& args) {
  args.bind("do_mark_safe", {}, 0);
  return rt.string(to_text(rt, self), true);
}

Value string(Runtime& rt, const Value& self, const Args& args) {
  args.bind("soft_str", {}, 0);
  return soft(rt, self);
}

Value title(Runtime& rt, const Value& self, const Args& args) {
  args.bind("do_title", {}, 0);
  const Value source = soft(rt, self);
  const std::string& text = source.text();
  rt.step(text.size());
  std::string out;
  bool at_start = true;
  size_t word = 0;
  const auto flush = [&](size_t end) {
    out += to_lower(std::string_view(text).substr(word, end - word));
  };
  for (size_t i = 0; i < text.size();) {
    const size_t start = i;
    const char32_t c = decode(text, i);
    if (is_space(c) || std::string_view("-({[<").find(static_cast<char>(c < 0x80 ? c : 0)) !=
                           std::string_view::npos) {
      flush(start);
      out += text.substr(start, i - start);
      word = i;
      at_start = true;
    } else if (at_start) {
      out += to_upper(std::string_view(text).substr(start, i - start));
      word = i;
      at_start = false;
    }
  }
  flush(text.size());
  return rt.string_like(source, std::move(out));
}

Value file_size(Runtime& rt, const Value& self, const Args& args) {
  const auto a = args.bind("do_filesizeformat", {"binary"}, 0);
  const bool is_binary = truthy(rt, a[0]);
  if (!self.is_number()) fail("TypeError", "filesizeformat needs a number");
  const double bytes = self.as_double(), base = is_binary ? 1024 : 1000;
  if (bytes == 1) return rt.string("1 Byte");
  if (bytes < base) return rt.string(fmt::format("{:.0f} Bytes", std::trunc(bytes)));
  static constexpr const char* kDecimal[] = {"kB", "MB", "GB", "TB", "PB", "EB", "ZB", "YB"};
  static constexpr const char* kBinary[] = {"KiB", "MiB", "GiB", "TiB", "PiB", "EiB", "ZiB", "YiB"};
  double unit = base;
  for (int i = 0;; ++i) {
    unit *= base;
    if (bytes < unit || i == 7) {
      return rt.string(
          fmt::format("{:.1f} {}", base * bytes / unit, (is_binary ? kBinary : kDecimal)[i]));
    }
  }
}

std::string without_underscores(std::string_view text, bool& valid) {
  std::string out;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '_') {
      out += text[i];
    } else if (i == 0 || i + 1 == text.size() || text[i - 1] == '_') {
      valid = false;
    }
  }
  return out;
}

std::optional<int64_t> parse_integer(std::string_view text, int base) {
  bool valid = true;
  std::string digits = without_underscores(strip(text, Side::kBoth), valid);
  bool negative = false;
  if (!digits.empty() && (digits[0] == '-' || digits[0] == '+')) {
    negative = digits[0] == '-';
    digits.erase(0, 1);
  }
  const auto prefixed = [&](char letter) {
    return digits.size() > 2 && digits[0] == '0' && (digits[1] | 0x20) == letter;
  };
  const int implied = prefixed('x') ? 16 : prefixed('o') ? 8 : prefixed('b') ? 2 : 10;
  if (implied != 10 && (base == implied || base == 0)) digits.erase(0, 2);
  if (base == 0) base = implied;
  if (base < 2 || base > 36 || digits.empty() || digits[0] == '-') return std::nullopt;
  uint64_t magnitude = 0;
  const auto parsed =
      std::from_chars(digits.data(), digits.data() + digits.size(), magnitude, base);
  if (!valid || parsed.ptr != digits.data() + digits.size()) return std::nullopt;
  if (parsed.ec != std::errc() || magnitude > INT64_MAX) {
    fail("OverflowError", "integers are limited to 64 bits here");
  }
  return negative ? -static_cast<int64_t>(magnitude) : static_cast<int64_t>(magnitude);
}

std::optional<double> parse_real(std::string_view text) {
  bool valid = true;
  std::string digits = without_underscores(strip(text, Side::kBoth), valid);
  if (!digits.empty() && digits[0] == '+') {
    digits.erase(0, 1);
    if (!digits.empty() && digits[0] == '-') return std::nullopt;
  }
  double value = 0;
  const auto parsed = std::from_chars(digits.data(), digits.data() + digits.size(), value);
  if (!valid || digits.empty() || parsed.ptr != digits.data() + digits.size()) return std::nullopt;
  if (digits.find('(') != std::string::npos) return std::nullopt;  // nan(...)
  if (parsed.ec == std::errc::result_out_of_range)
    return locale_free_strtod(digits.c_str(), nullptr);
  return value;
}

// Returns float(value); nullopt for a TypeError or a ValueError.
std::optional<double> real_of(const Value& value) {
  if (value.is(Kind::kUndefined)) fail_undefined(value);
  if (value.is_number()) return value.as_double();
  return value.is(Kind::kString) ? parse_real(value.text()) : std::nullopt;
}

Value integer(Runtime&, const Value& self, const Args& args) {
  const auto a = args.bind("do_int", {"default", "base"}, 0);
  const Value fallback = a[0].is(Kind::kMissing) ? Value::of(int64_t{0}) : a[0];
  const int64_t base = a[1].is(Kind::kMissing) ? 10 : to_index(a[1], "base");
  if (self.is_integral()) return Value::of(self.as_int());
  if (self.is(Kind::kString)) {
    const auto parsed =
        parse_integer(self.text(), static_cast<int>(std::clamp<int64_t>(base, -1, 99)));
    if (parsed) return Value::of(*parsed);
  }
  const auto real = real_of(self);
  if (!real || std::isnan(*real)) return fallback;
  if (std::isinf(*real)) {
    if (self.is(Kind::kString)) return fallback;
    fail("OverflowError", "cannot convert float infinity to integer");
  }
  if (std::fabs(*real) >= 9.2e18) fail("OverflowError", "integers are limited to 64 bits here");
  return Value::of(static_cast<int64_t>(*real));
}

Value real(Runtime&, const Value& self, const Args& args) {
  const auto a = args.bind("do_float", {"default"}, 0);
  const auto value = real_of(self);
  return value ? Value::of(*value) : a[0].is(Kind::kMissing) ? Value::of(0.0) : a[0];
}

Value format(Runtime& rt, const Value& self, const Args& args) {
  if (!args.positional.empty() && !args.keyword.empty()) {
    fail("FilterArgumentError", "can't handle positional and keyword arguments at the same time");
  }
  Value arguments;
  if (args.keyword.empty()) {
    arguments = rt.tuple(args.positional);
  } else {
    Pairs pairs;
    for (const auto& [key, value] : args.keyword) pairs.emplace_back(rt.string(key), value);
    arguments = rt.dict(std::move(pairs));
  }
  const Value text = soft(rt, self);
  return rt.string_like(text, format_percent(rt, text.text(), arguments));
}

const std::string& need_text(const Value& value, const char* what) {
  if (value.is(Kind::kUndefined)) fail_undefined(value);
  if (!value.is(Kind::kString))
    fail("TypeError", fmt::format("{} needs a string, got '{}'", what, type_name(value)));
  return value.text();
}

Value indent(Runtime& rt, const Value& self, const Args& args) {
  const auto a = args.bind("do_indent", {"width", "first", "blank"}, 0);
  std::string indention(4, ' ');
  if (a[0].is(Kind::kString)) {
    indention = a[0].text();
  } else if (!a[0].is(Kind::kMissing)) {
    const int64_t width = std::max<int64_t>(to_index(a[0], "width"), 0);
    rt.check_size(static_cast<size_t>(width));
    indention.assign(static_cast<size_t>(width), ' ');
  }
  const std::string text = need_text(self, "indent") + "\n";
  const bool blank = truthy(rt, a[2]);
  std::string out = truthy(rt, a[1]) ? indention : "";
  bool first_line = true;
  const auto lines = split_lines(text, false, kMaxItems);
  rt.check_items(lines.size());
  for (const std::string_view line : lines) {
    if (!first_line) {
      rt.append(out, "\n");
      if (blank || !line.empty()) rt.append(out, indention);
    }
    first_line = false;
    rt.append(out, line);
  }
  return rt.string_like(self, std::move(out));
}

Value join(Runtime& rt, const Value& self, const Args& args) {
  const auto a = args.bind("do_join", {"d", "attribute"}, 0);
  const std::string separator = a[0].is(Kind::kMissing) ? "" : to_text(rt, a[0]);
  const AttributePath path(rt, a[1]);
  std::string out;
  bool first = true;
  const auto iter = iterate(rt, self);
  for (Value item; iter->next(rt, item); first = false) {
    if (!first) rt.append(out, separator);
    rt.append(out, to_text(rt, path.get(rt, std::move(item))));
  }
  return rt.string(std::move(out));
}

Value strip_tags(Runtime& rt, const Value& self, const Args& args) {
  args.bind("do_striptags", {}, 0);
  std::string text = to_text(rt, self);
  rt.step(text.size() / 4);
  const auto cut = [&](std::string_view open, std::string_view close) {
    std::string kept;
    size_t i = 0;
    for (size_t start; (start = find_text(text, open, i)) != std::string::npos;) {
      const size_t end = find_text(text, close, start);
      if (end == std::string::npos) break;
      kept += text.substr(i, start - i);
      i = end + close.size();
    }
    text = kept + text.substr(i);
  };
  cut("<!--", "-->");
  cut("<", ">");
  const Value words = method(rt, rt.string(std::move(text)), "split", {});
  std::string joined;
  for (const Value& word : words.items()) joined += (joined.empty() ? "" : " ") + word.text();
  static constexpr std::pair<std::string_view, char> kEntities[] = {
      {"&lt;", '<'},   {"&gt;", '>'},   {"&#34;", '"'},
      {"&quot;", '"'}, {"&#39;", '\''}, {"&amp;", '&'}};
  std::string out;
  for (size_t i = 0; i < joined.size();) {
    const std::string_view rest = std::string_view(joined).substr(i);
    const auto* entity = std::find_if(std::begin(kEntities), std::end(kEntities),
                                      [&](const auto& e) { return rest.starts_with(e.first); });
    const bool found = entity != std::end(kEntities);
    out += found ? entity->second : joined[i];
    i += found ? entity->first.size() : 1;
  }
  return rt.string(std::move(out));
}

Value to_json_filter(Runtime& rt, const Value& self, const Args& args) {
  const auto a = args.bind("tojson", {"ensure_ascii", "indent", "separators", "sort_keys"}, 0);
  JsonStyle style;
  style.ensure_ascii = truthy(rt, a[0]);
  style.sort_keys = truthy(rt, a[3]);
  if (a[1].is(Kind::kString)) {
    style.indent = a[1].text();
  } else if (a[1].is_integral()) {
    const int64_t width = std::max<int64_t>(a[1].as_int(), 0);
    rt.check_size(static_cast<size_t>(width));
    style.indent = std::string(static_cast<size_t>(width), ' ');
  } else if (!a[1].is(Kind::kMissing) && !a[1].is(Kind::kNone)) {
    fail("TypeError",
         fmt::format("can't multiply sequence by non-int of type '{}'", type_name(a[1])));
  }
  style.item_separator = style.indent ? "," : ", ";
  style.key_separator = ": ";
  if (!a[2].is(Kind::kMissing) && !a[2].is(Kind::kNone)) {
    const auto pair = to_vector(rt, a[2]);
    if (pair.size() != 2 || !pair[0].is(Kind::kString) || !pair[1].is(Kind::kString)) {
      fail("ValueError", "separators must be a pair of strings");
    }
    style.item_separator = pair[0].text();
    style.key_separator = pair[1].text();
  }
  return rt.string(to_json(rt, self, style));
}

Value truncate(Runtime& rt, const Value& self, const Args& args) {
  const auto a = args.bind("do_truncate", {"length", "killwords", "end", "leeway"}, 0);
  const int64_t length = a[0].is(Kind::kMissing) ? 255 : to_index(a[0], "length");
  const std::string end = a[2].is(Kind::kMissing) ? "..." : need_text(a[2], "truncate");
  const int64_t leeway =
      a[3].is(Kind::kMissing) || a[3].is(Kind::kNone) ? 5 : to_index(a[3], "leeway");
  const auto end_length = static_cast<int64_t>(count_code_points(end));
  if (length < end_length)
    fail("AssertionError", fmt::format("expected length >= {}, got {}", end_length, length));
  if (leeway < 0) fail("AssertionError", fmt::format("expected leeway >= 0, got {}", leeway));
  // Anything short enough passes, even if it is no text.
  if (length_of(rt, self) <= length + std::min<int64_t>(leeway, INT32_MAX)) return self;
  const std::string& text = need_text(self, "truncate");
  std::string kept = text.substr(0, byte_offset(text, static_cast<size_t>(length - end_length)));
  if (!truthy(rt, a[1])) kept = kept.substr(0, std::min(kept.rfind(' '), kept.size()));
  return rt.string_like(self, kept + end);
}

void percent_encode(Runtime& rt, std::string& out, std::string_view text, bool for_query) {
  rt.step(text.size());
  for (const char c : text) {
    const bool plain =
        is_ascii_alnum(c) || std::string_view("_.-~").find(c) != std::string_view::npos;
    if ((plain && static_cast<unsigned char>(c) < 0x80) || (c == '/' && !for_query)) {
      out += c;
    } else if (c == ' ' && for_query) {
      out += '+';
    } else {
      out += fmt::format("%{:02X}", static_cast<unsigned char>(c));
    }
  }
}

Value url_encode(Runtime& rt, const Value& self, const Args& args) {
  args.bind("do_urlencode", {}, 0);
  std::string out;
  if (self.is(Kind::kString) || !is_iterable(self)) {
    percent_encode(rt, out, to_text(rt, self), false);
    return rt.string(std::move(out));
  }
  std::vector<Value> pairs;
  if (self.is(Kind::kDict)) {
    for (const auto& [key, value] : as<Dict>(self).items) pairs.push_back(rt.tuple({key, value}));
  } else {
    pairs = to_vector(rt, self);
  }
  for (const Value& item : pairs) {
    const auto pair = to_vector(rt, item);
    if (pair.size() != 2) fail("ValueError", "urlencode needs pairs");
    if (!out.empty()) out += '&';
    percent_encode(rt, out, to_text(rt, pair[0]), true);
    out += '=';
    percent_encode(rt, out, to_text(rt, pair[1]), true);
    rt.check_size(out.size());
  }
  return rt.string(std::move(out));
}

Value word_count(Runtime& rt, const Value& self, const Args& args) {
  args.bind("do_wordcount", {}, 0);
  const std::string text = to_text(rt, self);
  rt.step(text.size() / 4);
  int64_t n = 0;
  bool inside = false;
  for (size_t i = 0; i < text.size();) {
    const bool word = is_word(decode(text, i));
    n += word && !inside ? 1 : 0;
    inside = word;
  }
  return Value::of(n);
}

Value xml_attributes(Runtime& rt, const Value& self, const Args& args) {
  const auto a = args.bind("do_xmlattr", {"autospace"}, 0);
  if (self.is(Kind::kUndefined)) fail_undefined(self);
  if (!self.is(Kind::kDict))
    fail("AttributeError", fmt::format("'{}' object has no attribute 'items'", type_name(self)));
  std::string out;
  for (const auto& [key, value] : as<Dict>(self).items) {
    if (value.is(Kind::kNone) || value.is(Kind::kUndefined)) continue;
    const std::string& name = need_text(key, "xmlattr");
    if (name.find_first_of(" \t\n\r\f\v/>=") != std::string::npos) {
      fail("ValueError", fmt::format("Invalid character in attribute name: {}", quote(name)));
    }
    if (!out.empty()) out += ' ';
    rt.append(out, fmt::format("{}=\"{}\"", escape_html(name), escape_html(to_text(rt, value))));
  }
  if (!out.empty() && (a[0].is(Kind::kMissing) || truthy(rt, a[0]))) out.insert(0, 1, ' ');
  return rt.string(std::move(out));
}

template <const char* const& Name>
Value unsupported(Runtime&, const Value&, const Args&) {
  throw Failure{ErrorCode::kUnsupported, "", fmt::format("the filter '{}' is not supported", Name),
                0};
}
const char* const kUrlize = "urlize";
const char* const kWordWrap = "wordwrap";
const char* const kPrettyPrint = "pprint";

constexpr FilterRow kTextFilters[] = {{"capitalize", mapped<capitalize>},
                                      {"center", center},
                                      {"e", escape},
                                      {"escape", escape},
                                      {"filesizeformat", file_size},
                                      {"float", real},
                                      {"forceescape", force_escape},
                                      {"format", format},
                                      {"indent", indent},
                                      {"int", integer},
                                      {"join", join},
                                      {"lower", mapped<to_lower>},
                                      {"pprint", unsupported<kPrettyPrint>},
                                      {"replace", replace},
                                      {"safe", safe},
                                      {"string", string},
                                      {"striptags", strip_tags},
                                      {"title", title},
                                      {"tojson", to_json_filter},
                                      {"trim", trim},
                                      {"truncate", truncate},
                                      {"upper", mapped<to_upper>},
                                      {"urlencode", url_encode},
                                      {"urlize", unsupported<kUrlize>},
                                      {"wordcount", word_count},
                                      {"wordwrap", unsupported<kWordWrap>},
                                      {"xmlattr", xml_attributes}};

}  // namespace

std::span<const FilterRow> text_filters() { return kTextFilters; }

}  // namespace penstock::jinja
