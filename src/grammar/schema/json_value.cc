#include "grammar/schema/json_value.h"

#include <algorithm>
#include <charconv>
#include <optional>

#include "base/text_hash.h"
#include "grammar/lexer/spelling.h"
#include "grammar/parts/text_cursor.h"

namespace penstock::grammar {
namespace {

constexpr size_t kManyMembers = 16;

void append_code_point(std::string& out, char32_t c) {
  if (c < 0xD800 || c > 0xDFFF) return unicode::append(out, c);
  out += static_cast<char>(0xE0 | c >> 12);
  out += static_cast<char>(0x80 | (c >> 6 & 63));
  out += static_cast<char>(0x80 | (c & 63));
}

class JsonReader {
 public:
  JsonReader(std::string_view text, int max_depth, size_t max_values)
      : in_(text), max_depth_(max_depth), max_values_(max_values) {}

  Compiled<JsonValue> run() {
    JsonValue value;
    space();
    read(value, 0);
    space();
    if (!failed_ && !in_.at_end()) fail("unexpected text behind the value");
    if (failed_) return tl::unexpected(std::move(refusal_));
    return value;
  }

 private:
  void fail(std::string what, RefusalKind kind = RefusalKind::kInvalid) {
    if (!failed_) refusal_ = {kind, in_.where(), "", "JSON: " + std::move(what)};
    failed_ = true;
  }

  void space() {
    while (in_.peek() == ' ' || in_.peek() == '\n' || in_.peek() == '\r' || in_.peek() == '\t')
      in_.skip(1);
  }

  void read(JsonValue& value, int depth) {
    if (depth > max_depth_)
      return fail(fmt::format("nested deeper than {}", max_depth_), RefusalKind::kTooLarge);
    if (++n_values_ > max_values_)
      return fail(fmt::format("more than {} values", max_values_), RefusalKind::kTooLarge);
    switch (in_.peek()) {
      case '{': return object(value, depth);
      case '[': return array(value, depth);
      case '"':
        value.kind = JsonValue::Kind::kString;
        value.string = string();
        return;
      default: break;
    }
    if (in_.take("null")) return;
    if (in_.take("true")) {
      value.kind = JsonValue::Kind::kTrue;
    } else if (in_.take("false")) {
      value.kind = JsonValue::Kind::kFalse;
    } else {
      number(value);
    }
  }

  void number(JsonValue& value) {
    size_t n = 0;
    for (char c = in_.peek();
         (c >= '0' && c <= '9') || c == '-' || c == '+' || c == '.' || c == 'e' || c == 'E';
         c = in_.peek(n))
      ++n;
    const std::string_view text = in_.rest().substr(0, n);
    const bool leading_zero = text.size() > 1 && text[0] == '0' && text[1] >= '0' && text[1] <= '9';
    const auto number = leading_zero ? std::nullopt : Decimal::parse(text);
    if (!number)
      return fail(n == 0
                      ? "expected a value"
                      : fmt::format("\"{}\" is no number, or too large a one", text.substr(0, 40)));
    value.kind = JsonValue::Kind::kNumber;
    value.number = *number;
    in_.skip(n);
  }

  void array(JsonValue& value, int depth) {
    value.kind = JsonValue::Kind::kArray;
    in_.skip(1);
    space();
    if (in_.take("]")) return;
    do {
      space();
      read(value.members.emplace_back().value, depth + 1);
      space();
    } while (!failed_ && in_.take(","));
    if (!failed_ && !in_.take("]")) fail("expected \",\" or \"]\"");
  }

  void object(JsonValue& value, int depth) {
    value.kind = JsonValue::Kind::kObject;
    in_.skip(1);
    space();
    if (in_.take("}")) return;
    TextSet seen;
    do {
      space();
      if (in_.peek() != '"') return fail("expected a key");
      JsonMember member{string(), {}};
      if (is_twice(value, member.key, seen))
        return fail(fmt::format("the key \"{}\" comes twice", member.key));
      space();
      if (!failed_ && !in_.take(":")) return fail("expected \":\"");
      space();
      read(member.value, depth + 1);
      value.members.push_back(std::move(member));
      space();
    } while (!failed_ && in_.take(","));
    if (!failed_ && !in_.take("}")) fail("expected \",\" or \"}\"");
  }

  static bool is_twice(const JsonValue& value, const std::string& key, TextSet& seen) {
    if (value.members.size() < kManyMembers) return value.find(key) != nullptr;
    if (seen.empty()) {
      for (const JsonMember& m : value.members) seen.insert(m.key);
    }
    return !seen.insert(key).second;
  }

  std::string string() {
    in_.skip(1);
    std::string out;
    while (!failed_) {
      const std::string_view rest = in_.rest();
      const size_t plain = std::min(rest.size(), rest.find_first_of("\"\\"));
      const auto control = std::find_if(rest.begin(), rest.begin() + plain,
                                        [](char c) { return static_cast<uint8_t>(c) < 0x20; });
      if (control != rest.begin() + plain) {
        fail("a control character in a string");
        break;
      }
      out += rest.substr(0, plain);
      in_.skip(plain);
      if (in_.take("\"")) break;
      if (in_.at_end()) fail("a string without its closing quotation mark");
      if (in_.take("\\")) escape(out);
    }
    return out;
  }

  void escape(std::string& out) {
    const char c = in_.peek();
    in_.skip(1);
    switch (c) {
      case '"':
      case '\\':
      case '/': out += c; return;
      case 'b': out += '\b'; return;
      case 'f': out += '\f'; return;
      case 'n': out += '\n'; return;
      case 'r': out += '\r'; return;
      case 't': out += '\t'; return;
      case 'u': break;
      default: return fail("unknown escape in a string");
    }
    const std::optional<char32_t> high = hex();
    if (!high) return fail("expected four hexadecimal digits");
    if (*high >= 0xD800 && *high <= 0xDBFF && in_.rest().starts_with("\\u")) {
      const size_t begin = in_.position();
      in_.skip(2);
      const std::optional<char32_t> low = hex();
      if (low && *low >= 0xDC00 && *low <= 0xDFFF) {
        return append_code_point(out, 0x10000 + ((*high - 0xD800) << 10) + (*low - 0xDC00));
      }
      in_.back_to(begin);
    }
    append_code_point(out, *high);
  }

  std::optional<char32_t> hex() {
    uint32_t value = 0;
    const std::string_view digits = in_.rest().substr(0, 4);
    const auto [end, error] =
        std::from_chars(digits.data(), digits.data() + digits.size(), value, 16);
    if (error != std::errc() || end != digits.data() + 4) return std::nullopt;
    in_.skip(4);
    return value;
  }

  TextCursor in_;
  int max_depth_;
  size_t max_values_, n_values_ = 0;
  bool failed_ = false;
  Refusal refusal_;
};

void append_text(const JsonValue& value, std::string& out) {
  switch (value.kind) {
    case JsonValue::Kind::kNull: out += "null"; return;
    case JsonValue::Kind::kFalse: out += "false"; return;
    case JsonValue::Kind::kTrue: out += "true"; return;
    case JsonValue::Kind::kNumber: out += value.number.text(); return;
    case JsonValue::Kind::kString: out += '"' + canonical_json(value.string) + '"'; return;
    default: break;
  }
  const bool object = value.is_object();
  out += object ? '{' : '[';
  for (size_t i = 0; i < value.members.size(); ++i) {
    if (i > 0) out += ',';
    if (object) out += '"' + canonical_json(value.members[i].key) + "\":";
    append_text(value.members[i].value, out);
  }
  out += object ? '}' : ']';
}

}  // namespace

const JsonValue* JsonValue::find(std::string_view key) const {
  for (const JsonMember& member : members) {
    if (member.key == key && is_object()) return &member.value;
  }
  return nullptr;
}

std::string JsonValue::text() const {
  std::string out;
  append_text(*this, out);
  return out;
}

bool operator==(const JsonValue& a, const JsonValue& b) {
  if (a.kind != b.kind || a.string != b.string || a.number != b.number ||
      a.members.size() != b.members.size())
    return false;
  for (size_t i = 0; i < a.members.size(); ++i) {
    const JsonValue* other = a.is_object() ? b.find(a.members[i].key) : &b.members[i].value;
    if (other == nullptr || !(a.members[i].value == *other)) return false;
  }
  return true;
}

Compiled<JsonValue> parse_json(std::string_view text, int max_depth, size_t max_values) {
  return JsonReader(text, max_depth, max_values).run();
}

}  // namespace penstock::grammar
