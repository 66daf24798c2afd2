// Python's two string formatting languages: "%d" % x and "{:d}".format(x).
#include <fmt/format.h>

#include <cmath>
#include <optional>

#include "base/ascii.h"
#include "jinja/ops.h"
#include "jinja/print.h"
#include "jinja/text.h"

namespace penstock::jinja {
namespace {

constexpr size_t kMaxPrecision = 1000;

struct Spec {
  std::string fill = " ";
  char align = 0;  // < > ^ =
  char sign = '-';
  bool alternate = false;
  char grouping = 0;
  size_t width = 0;
  std::optional<size_t> precision;
  char type = 0;
};

size_t read_number(Runtime& rt, std::string_view text, size_t& i) {
  size_t n = 0;
  for (; i < text.size() && text[i] >= '0' && text[i] <= '9'; ++i) {
    n = n * 10 + static_cast<size_t>(text[i] - '0');
    rt.check_size(n);
  }
  return n;
}

std::string pad(Runtime& rt, std::string text, const Spec& spec, char default_align) {
  const size_t n = count_code_points(text);
  if (n >= spec.width) return text;
  const size_t missing = spec.width - n;
  rt.check_size(text.size() + missing * spec.fill.size());
  const char align = spec.align != 0 ? spec.align : default_align;
  size_t left = align == '<' ? 0 : align == '^' ? missing / 2 : missing;
  size_t at = 0;
  if (align == '=') {
    at = !text.empty() && (text[0] == '-' || text[0] == '+' || text[0] == ' ') ? 1 : 0;
    if (spec.alternate && text.size() > at + 1 && text[at] == '0' && is_ascii_letter(text[at + 1]))
      at += 2;
  }
  std::string before, after;
  for (size_t i = 0; i < left; ++i) before += spec.fill;
  for (size_t i = left; i < missing; ++i) after += spec.fill;
  return text.substr(0, at) + before + text.substr(at) + after;
}

void group_digits(std::string& digits, char separator, size_t every) {
  size_t end = 0;
  while (end < digits.size() && is_ascii_hex_digit(digits[end])) ++end;
  for (size_t i = every; i < end; i += every) digits.insert(end - i, 1, separator);
}

std::string signed_text(bool negative, char sign, const std::string& magnitude) {
  return (negative ? "-" : sign == '+' ? "+" : sign == ' ' ? " " : "") + magnitude;
}

std::string format_integer(int64_t value, const Spec& spec) {
  const uint64_t magnitude =
      value < 0 ? 0 - static_cast<uint64_t>(value) : static_cast<uint64_t>(value);
  std::string digits, prefix;
  switch (spec.type) {
    case 'b':
      digits = fmt::format("{:b}", magnitude);
      prefix = "0b";
      break;
    case 'o':
      digits = fmt::format("{:o}", magnitude);
      prefix = "0o";
      break;
    case 'x':
      digits = fmt::format("{:x}", magnitude);
      prefix = "0x";
      break;
    case 'X':
      digits = fmt::format("{:X}", magnitude);
      prefix = "0X";
      break;
    default: digits = fmt::format("{}", magnitude);
  }
  if (spec.grouping != 0) group_digits(digits, spec.grouping, prefix.empty() ? 3 : 4);
  return signed_text(value < 0, spec.sign, (spec.alternate ? prefix : "") + digits);
}

std::string format_real(double value, const Spec& spec) {
  const bool negative = std::signbit(value) && !std::isnan(value);
  const double magnitude = std::fabs(value);
  if (spec.precision.value_or(0) > kMaxPrecision) {
    fail_limit(fmt::format("a number with more than {} digits after the point", kMaxPrecision));
  }
  const int precision = static_cast<int>(spec.precision.value_or(6));
  std::string digits;
  if (!std::isfinite(value)) {
    digits = std::isnan(value) ? "nan" : "inf";
  } else {
    switch (spec.type) {
      case 'e': digits = fmt::format("{:.{}e}", magnitude, precision); break;
      case 'E': digits = fmt::format("{:.{}E}", magnitude, precision); break;
      case 'f':
      case 'F': digits = fmt::format("{:.{}f}", magnitude, precision); break;
      case 'G': digits = fmt::format("{:.{}G}", magnitude, precision == 0 ? 1 : precision); break;
      case '%': digits = fmt::format("{:.{}f}", magnitude * 100, precision); break;
      case 'g':
      case 'n': digits = fmt::format("{:.{}g}", magnitude, precision == 0 ? 1 : precision); break;
      default:
        digits = spec.precision ? fmt::format("{:.{}g}", magnitude, precision == 0 ? 1 : precision)
                                : repr_double(magnitude);
        if (spec.precision && digits.find_first_of(".e") == std::string::npos) digits += ".0";
    }
    if (spec.grouping != 0) group_digits(digits, spec.grouping, 3);
  }
  if (spec.type == '%') digits += '%';
  return signed_text(negative, spec.sign, digits);
}

bool is_align(char c) { return c == '<' || c == '>' || c == '^' || c == '='; }

Spec parse_spec(Runtime& rt, std::string_view text) {
  Spec spec;
  size_t i = 0;
  if (!text.empty()) {
    size_t after_fill = 0;
    decode(text, after_fill);
    if (after_fill < text.size() && is_align(text[after_fill])) {
      spec.fill = std::string(text.substr(0, after_fill));
      spec.align = text[after_fill];
      i = after_fill + 1;
    } else if (is_align(text[0])) {
      spec.align = text[i++];
    }
  }
  const auto at = [&](char c) { return i < text.size() && text[i] == c; };
  if (at('+') || at('-') || at(' ')) spec.sign = text[i++];
  if (at('z')) ++i;
  if (at('#')) spec.alternate = (++i, true);
  if (at('0')) {
    ++i;
    if (spec.align == 0) {
      spec.align = '=';
      spec.fill = "0";
    }
  }
  spec.width = read_number(rt, text, i);
  if (at(',') || at('_')) spec.grouping = text[i++];
  if (at('.')) {
    const size_t start = ++i;
    spec.precision = read_number(rt, text, i);
    if (i == start) fail("ValueError", "Format specifier missing precision");
  }
  if (i < text.size()) spec.type = text[i++];
  if (i < text.size()) fail("ValueError", "Invalid format specifier");
  return spec;
}

// A "%" conversion without its mapping key.
struct Conversion {
  Spec spec;
  bool zero = false, left = false;
};

class PercentFormat {
 public:
  PercentFormat(Runtime& rt, std::string_view text, const Value& arguments)
      : rt_(rt), text_(text), arguments_(arguments) {}

  std::string run() {
    std::string out;
    while (i_ < text_.size()) {
      const size_t percent = std::min(text_.find('%', i_), text_.size());
      rt_.append(out, text_.substr(i_, percent - i_));
      i_ = percent;
      if (i_ < text_.size()) rt_.append(out, conversion());
    }
    // Objects with __getitem__ other than tuples may stay unused, like mappings.
    const bool mapping = arguments_.is(Kind::kDict) || arguments_.is(Kind::kList) ||
                         arguments_.is(Kind::kRange) || arguments_.is(Kind::kUndefined);
    const size_t given = arguments_.is(Kind::kTuple) ? arguments_.items().size() : 1;
    if (!mapping && used_ < given) {
      fail("TypeError", "not all arguments converted during string formatting");
    }
    return out;
  }

 private:
  char take() {
    if (i_ >= text_.size()) fail("ValueError", "incomplete format");
    return text_[i_++];
  }

  Value next_argument() {
    if (arguments_.is(Kind::kTuple)) {
      if (used_ >= arguments_.items().size())
        fail("TypeError", "not enough arguments for format string");
      return arguments_.items()[used_++];
    }
    if (used_++ > 0) fail("TypeError", "not enough arguments for format string");
    return arguments_;
  }

  size_t number_or_star(bool* negative) {
    if (i_ < text_.size() && text_[i_] == '*') {
      ++i_;
      const int64_t n = to_index(next_argument(), "*");
      if (n < 0 && negative != nullptr) *negative = true;
      const uint64_t magnitude = n < 0 ? 0 - static_cast<uint64_t>(n) : static_cast<uint64_t>(n);
      rt_.check_size(magnitude);
      return magnitude;
    }
    return read_number(rt_, text_, i_);
  }

  std::string conversion() {
    rt_.step();
    ++i_;
    std::optional<Value> keyed;
    if (i_ < text_.size() && text_[i_] == '(') {
      const size_t close = text_.find(')', i_);
      if (close == std::string_view::npos) fail("ValueError", "incomplete format key");
      if (!arguments_.is(Kind::kDict)) fail("TypeError", "format requires a mapping");
      const std::string key(text_.substr(i_ + 1, close - i_ - 1));
      rt_.step(as<Dict>(arguments_).items.size() / 8);
      const Value* found = as<Dict>(arguments_).find(key);
      if (found == nullptr) fail("KeyError", quote(key));
      keyed = *found;
      i_ = close + 1;
    }
    Conversion c;
    for (;; ++i_) {
      const char flag = i_ < text_.size() ? text_[i_] : 0;
      if (flag == '0')
        c.zero = true;
      else if (flag == '-')
        c.left = true;
      else if (flag == '+')
        c.spec.sign = '+';
      else if (flag == ' ')
        c.spec.sign = c.spec.sign == '+' ? '+' : ' ';
      else if (flag == '#')
        c.spec.alternate = true;
      else
        break;
    }
    c.spec.width = number_or_star(&c.left);
    if (i_ < text_.size() && text_[i_] == '.') {
      ++i_;
      c.spec.precision = number_or_star(nullptr);
    }
    if (i_ < text_.size() && (text_[i_] == 'l' || text_[i_] == 'h' || text_[i_] == 'L')) ++i_;
    const char type = take();
    if (type == '%') return "%";
    return convert(c, type, keyed ? *keyed : next_argument());
  }

  std::string convert(Conversion& c, char type, const Value& value) {
    c.spec.type = type;
    if (c.left) c.spec.align = '<';
    switch (type) {
      case 's':
      case 'r':
      case 'a': {
        std::string text = type == 's' ? to_text(rt_, value) : to_repr(rt_, value);
        if (c.spec.precision) text.resize(byte_offset(text, *c.spec.precision));
        return pad(rt_, std::move(text), c.spec, '>');
      }
      case 'c':
        if (value.is(Kind::kString) && as<String>(value).length() == 1)
          return pad(rt_, value.text(), c.spec, '>');
        if (value.is_integral() && value.as_int() >= 0 && value.as_int() < 0xd800) {
          std::string text;
          append_utf8(text, static_cast<char32_t>(value.as_int()));
          return pad(rt_, std::move(text), c.spec, '>');
        }
        fail("TypeError", "%c requires int or char");
      default: return number(c, type, value);
    }
  }

  std::string number(Conversion& c, char type, const Value& value) {
    const bool integral = std::string_view("diuoxX").find(type) != std::string_view::npos;
    if (!integral && std::string_view("eEfFgG").find(type) == std::string_view::npos) {
      fail("ValueError", fmt::format("unsupported format character '{}'", type));
    }
    if (!value.is_number() ||
        (value.is(Kind::kFloat) && std::string_view("oxX").find(type) != std::string_view::npos)) {
      if (!integral && value.is(Kind::kUndefined)) fail_undefined(value);
      fail("TypeError",
           fmt::format("%{} format: a real number is required, not {}", type, type_name(value)));
    }
    if (c.zero && !c.left) {
      c.spec.align = '=';
      c.spec.fill = "0";
    }
    if (!integral) return pad(rt_, format_real(value.as_double(), c.spec), c.spec, '>');
    int64_t n = 0;
    if (value.is(Kind::kFloat)) {
      if (!(std::fabs(value.real) < 9.2e18))
        fail("OverflowError", "cannot convert float to a 64-bit integer");
      n = static_cast<int64_t>(value.real);
    } else {
      n = value.as_int();
    }
    std::string text = format_integer(n, c.spec);
    if (c.spec.precision) {
      const size_t sign = !text.empty() && !is_ascii_hex_digit(text[0]) ? 1 : 0;
      if (text.size() - sign < *c.spec.precision) {
        text.insert(sign, *c.spec.precision - (text.size() - sign), '0');
      }
    }
    return pad(rt_, std::move(text), c.spec, '>');
  }

  Runtime& rt_;
  std::string_view text_;
  const Value& arguments_;
  size_t i_ = 0;
  size_t used_ = 0;
};

class BraceFormat {
 public:
  BraceFormat(Runtime& rt, const Args& args) : rt_(rt), args_(args) {}

  std::string run(std::string_view text, int depth) {
    if (depth > 2) fail("ValueError", "Max string recursion exceeded");
    std::string out;
    for (size_t i = 0; i < text.size();) {
      const char c = text[i];
      if ((c == '{' || c == '}') && i + 1 < text.size() && text[i + 1] == c) {
        out += c;
        i += 2;
      } else if (c == '}') {
        fail("ValueError", "Single '}' encountered in format string");
      } else if (c == '{') {
        const size_t end = matching_brace(text, i);
        rt_.append(out, field(text.substr(i + 1, end - i - 1), depth));
        i = end + 1;
      } else {
        const size_t next = std::min(text.find_first_of("{}", i), text.size());
        rt_.append(out, text.substr(i, next - i));
        i = next;
      }
    }
    return out;
  }

 private:
  static size_t matching_brace(std::string_view text, size_t open) {
    int nesting = 0;
    for (size_t i = open; i < text.size(); ++i) {
      if (text[i] == '{') ++nesting;
      if (text[i] == '}' && --nesting == 0) return i;
    }
    fail("ValueError", "expected '}' before end of string");
  }

  std::string field(std::string_view body, int depth) {
    rt_.step();
    size_t end = 0;
    for (bool bracket = false; end < body.size(); ++end) {
      if (body[end] == '[') bracket = true;
      if (body[end] == ']') bracket = false;
      if (!bracket && (body[end] == '!' || body[end] == ':')) break;
    }
    Value value = lookup(body.substr(0, end));
    std::string_view rest = body.substr(end);
    if (rest.starts_with('!')) {
      const char how = rest.size() > 1 ? rest[1] : 0;
      if (how != 's' && how != 'r' && how != 'a')
        fail("ValueError", "Unknown conversion specifier");
      value = rt_.string(how == 's' ? to_text(rt_, value) : to_repr(rt_, value));
      rest.remove_prefix(2);
    }
    if (rest.starts_with(':'))
      rest.remove_prefix(1);
    else if (!rest.empty())
      fail("ValueError", "expected ':' after conversion specifier");
    return format_spec(rt_, value, run(rest, depth + 1));
  }

  Value lookup(std::string_view name) {
    size_t i = std::min(name.find_first_of(".["), name.size());
    Value value = first(std::string(name.substr(0, i)));
    while (i < name.size()) {
      if (name[i] == '.') {
        const size_t end = std::min(name.find_first_of(".[", i + 1), name.size());
        value = get_attribute(rt_, value, std::string(name.substr(i + 1, end - i - 1)));
        i = end;
      } else if (name[i] == '[') {
        const size_t end = name.find(']', i);
        if (end == std::string_view::npos) fail("ValueError", "Missing ']' in format string");
        size_t digit = i + 1;
        const size_t number = read_number(rt_, name.substr(0, end), digit);
        const bool index = digit == end && end > i + 1;
        value = get_item(rt_, value,
                         index ? Value::of(static_cast<int64_t>(number))
                               : rt_.string(std::string(name.substr(i + 1, end - i - 1))));
        i = end + 1;
      } else {
        fail("ValueError", "Only '.' or '[' may follow ']' in format field specifier");
      }
    }
    return value;
  }

  Value first(const std::string& name) {
    size_t digit = 0;
    size_t index = name.empty() ? automatic_++ : read_number(rt_, name, digit);
    if (!name.empty() && digit < name.size()) {
      const Value* found = args_.find(name);
      if (found == nullptr) fail("KeyError", quote(name));
      return *found;
    }
    if (index >= args_.positional.size()) {
      fail("IndexError",
           fmt::format("Replacement index {} out of range for positional args tuple", index));
    }
    return args_.positional[index];
  }

  Runtime& rt_;
  const Args& args_;
  size_t automatic_ = 0;
};

}  // namespace

std::string format_percent(Runtime& rt, const std::string& text, const Value& arguments) {
  return PercentFormat(rt, text, arguments).run();
}

std::string format_braces(Runtime& rt, const std::string& text, const Args& args) {
  return BraceFormat(rt, args).run(text, 0);
}

std::string format_spec(Runtime& rt, const Value& value, std::string_view text) {
  if (text.empty()) return to_text(rt, value);
  Spec spec = parse_spec(rt, text);
  if (value.is(Kind::kString)) {
    if (spec.type != 0 && spec.type != 's') {
      fail("ValueError",
           fmt::format("Unknown format code '{}' for object of type 'str'", spec.type));
    }
    if (spec.align == '=') {
      if (spec.fill != "0")
        fail("ValueError", "'=' alignment not allowed in string format specifier");
      spec.align = '<';
    }
    std::string out = value.text();
    if (spec.precision) out.resize(byte_offset(out, *spec.precision));
    return pad(rt, std::move(out), spec, '<');
  }
  if (!value.is_number()) {
    fail("TypeError",
         fmt::format("unsupported format string passed to {}.__format__", type_name(value)));
  }
  if (spec.type == 'c') {
    if (!value.is_integral() || value.as_int() < 0 || value.as_int() > 0xd7ff)
      fail("OverflowError", "%c arg not in range(0x110000)");
    std::string out;
    append_utf8(out, static_cast<char32_t>(value.as_int()));
    return pad(rt, std::move(out), spec, '<');
  }
  const bool wants_integer =
      spec.type == 0 || std::string_view("bdoxXn").find(spec.type) != std::string_view::npos;
  if (value.is_integral() && wants_integer) {
    if (spec.precision) fail("ValueError", "Precision not allowed in integer format specifier");
    return pad(rt, format_integer(value.as_int(), spec), spec, '>');
  }
  if (spec.type != 0 && std::string_view("eEfFgGn%").find(spec.type) == std::string_view::npos) {
    fail("ValueError", fmt::format("Unknown format code '{}' for object of type '{}'", spec.type,
                                   type_name(value)));
  }
  return pad(rt, format_real(value.as_double(), spec), spec, '>');
}

}  // namespace penstock::jinja
