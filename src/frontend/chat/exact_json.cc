#include "frontend/chat/exact_json.h"

#include <algorithm>

#include "base/json_text.h"

namespace penstock {
namespace {

using Json = nlohmann::ordered_json;

// prefix of a number's spelling in a string value
constexpr std::string_view kMark = "\x01number:";
constexpr std::string_view kDumped = "\"\\u0001number:";  // kMark as dump() writes it
constexpr std::string_view kNumberLetters = "0123456789+-.eE";

bool is_digit(char c) { return c >= '0' && c <= '9'; }

size_t skip_digits(std::string_view text, size_t at) {
  while (at < text.size() && is_digit(text[at])) ++at;
  return at;
}

// -?(0|[1-9]\d*)(\.\d+)?([eE][+-]?\d+)?
bool is_json_number(std::string_view text) {
  size_t at = text.starts_with('-') ? 1 : 0;
  const size_t first = at;
  at = skip_digits(text, at);
  if (at == first || (text[first] == '0' && at > first + 1)) return false;
  if (at < text.size() && text[at] == '.') {
    const size_t fraction = ++at;
    at = skip_digits(text, at);
    if (at == fraction) return false;
  }
  if (at < text.size() && (text[at] == 'e' || text[at] == 'E')) {
    ++at;
    if (at < text.size() && (text[at] == '+' || text[at] == '-')) ++at;
    const size_t exponent = at;
    at = skip_digits(text, at);
    if (at == exponent) return false;
  }
  return at == text.size();
}

// Whether a 64-bit integer is dumped exactly as it is spelled here.
bool is_small_integer(std::string_view text) {
  constexpr size_t kSafeDigits = 18;
  return text != "-0" && text.size() <= kSafeDigits &&
         std::ranges::all_of(text.substr(text.starts_with('-') ? 1 : 0), is_digit);
}

}  // namespace

std::optional<Json> exact_number(std::string_view text) {
  if (!is_json_number(text)) return std::nullopt;
  if (is_small_integer(text)) return bounded_json<Json>(text);
  return Json(std::string(kMark) + std::string(text));
}

bool is_number(const Json& value) {
  return value.is_number() ||
         (value.is_string() && value.get_ref<const std::string&>().starts_with(kMark) &&
          is_json_number(
              std::string_view(value.get_ref<const std::string&>()).substr(kMark.size())));
}

std::optional<Json> parse_exact(std::string_view text) {
  std::string spelled;
  size_t copied = 0;
  bool quoted = false;
  for (size_t at = 0; at < text.size(); ++at) {
    const char c = text[at];
    if (quoted) {
      if (c == '\\') ++at;
      quoted = c != '"';
      continue;
    }
    quoted = c == '"';
    if (!is_digit(c) && c != '-') continue;
    const size_t end = std::min(text.find_first_not_of(kNumberLetters, at), text.size());
    const std::string_view number = text.substr(at, end - at);
    if (is_json_number(number) && !is_small_integer(number)) {
      spelled.append(text, copied, at - copied).append(kDumped).append(number).append("\"");
      copied = end;
    }
    at = end - 1;
  }
  Json value = bounded_json<Json>(copied == 0 ? text : spelled.append(text.substr(copied)));
  if (value.is_discarded()) return std::nullopt;
  return value;
}

std::string dump_exact(const Json& value) {
  std::string text = value.dump(-1, ' ', false, Json::error_handler_t::replace);
  if (text.find(kDumped) == std::string::npos) return text;
  std::string out;
  size_t copied = 0;
  for (size_t at = 0; (at = text.find(kDumped, at)) != std::string::npos;) {
    const size_t number = at + kDumped.size(), end = text.find('"', number);
    const bool inside = at > 0 && text[at - 1] == '\\';  // escaped quotation mark inside a string
    if (!inside && end != std::string::npos &&
        is_json_number(std::string_view(text).substr(number, end - number))) {
      out.append(text, copied, at - copied).append(text, number, end - number);
      copied = end + 1;
    }
    at = number;
  }
  return out.append(text, copied);
}

std::string whole_part(std::string_view text) {
  std::string open,
      // closing brackets of all open values, innermost last: now, and at the end of the whole part
      closing;
  size_t whole_end = 0;
  bool quoted = false, is_value = false;
  const auto whole_up_to = [&](size_t end) {
    whole_end = end;
    closing = open;
  };
  for (size_t at = 0; at < text.size(); ++at) {
    const char c = text[at];
    if (quoted) {
      if (c == '\\') ++at;
      quoted = c != '"';
      if (!quoted && (is_value || open.ends_with(']'))) whole_up_to(at + 1);
    } else if (c == '{' || c == '[') {
      open += c == '{' ? '}' : ']';
      if (open.size() > kMaxJsonNesting) return "{}";
      is_value = false;
      whole_up_to(at + 1);
    } else if ((c == '}' || c == ']') && open.ends_with(c)) {
      open.pop_back();
      is_value = false;
      whole_up_to(at + 1);
    } else if (c == ',') {
      whole_up_to(at);
      is_value = false;
    } else {
      quoted = c == '"';
      is_value = is_value || c == ':';
    }
  }
  return std::string(text.substr(0, whole_end)).append(closing.rbegin(), closing.rend());
}

Json arguments_object(std::string_view text) {
  std::optional<Json> value = parse_exact(text);
  if (!value || !value->is_object()) value = parse_exact(whole_part(text));
  return value && value->is_object() ? *std::move(value) : Json::object();
}

}  // namespace penstock
