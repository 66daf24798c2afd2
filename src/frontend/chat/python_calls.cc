// Calls written as a Python list: [get_weather(city="Zürich", days=2), now()].
#include <charconv>
#include <nlohmann/json.hpp>

#include "base/ascii.h"
#include "base/json_text.h"
#include "base/ordered_json.h"
#include "frontend/chat/exact_json.h"
#include "frontend/chat/marked_parser.h"

namespace penstock {
namespace {

using Json = nlohmann::ordered_json;

// A reader of Python literals in a complete list. Methods return false if the text does not match.
class PythonReader {
 public:
  explicit PythonReader(std::string_view text) : text_(text) {}

  bool calls(std::vector<ToolCall>& out) {
    if (!take('[')) return false;
    while (!take(']')) {
      ToolCall call;
      if (!out.empty() && !take(',')) return false;
      if (take(']')) break;
      if (!call_of(call)) return false;
      out.push_back(std::move(call));
    }
    return at_end() && !out.empty();
  }

  // Reads calls without brackets, one per line, optionally separated by commas.
  bool lines(std::vector<ToolCall>& out) {
    while (!at_end()) {
      ToolCall call;
      if (!call_of(call)) return false;
      out.push_back(std::move(call));
      take(',');
    }
    return !out.empty();
  }

  bool value(Json& out) { return literal(out, 0) && at_end(); }

 private:
  bool at_end() const { return skip_space(text_, at_) == text_.size(); }

  static constexpr int kMaxDepth = 64;

  bool take(char wanted) {
    at_ = skip_space(text_, at_);
    if (at_ >= text_.size() || text_[at_] != wanted) return false;
    ++at_;
    return true;
  }

  std::string_view word() {
    at_ = skip_space(text_, at_);
    const size_t start = at_;
    while (at_ < text_.size() && (is_ascii_alnum(text_[at_]) || text_[at_] == '_' ||
                                  text_[at_] == '.' || text_[at_] == '-')) {
      ++at_;
    }
    return text_.substr(start, at_ - start);
  }

  bool call_of(ToolCall& out) {
    out.name = word();
    if (!is_function_name(out.name) || is_ascii_digit(out.name[0]) || !take('(')) return false;
    Json arguments = Json::object();
    while (!take(')')) {
      if (!arguments.empty() && !take(',')) return false;
      if (take(')')) break;
      const std::string name(word());
      Json value;
      if (name.empty() || !take('=') || !literal(value, 0)) return false;
      add_member(arguments, name, std::move(value));
    }
    drop_repeated_members(arguments);
    out.arguments = dump_exact(arguments);
    return true;
  }

  bool literal(Json& out, int depth) {
    at_ = skip_space(text_, at_);
    if (at_ >= text_.size() || depth > kMaxDepth) return false;
    const char c = text_[at_];
    if (c == '"' || c == '\'') return string(out);
    if (c == '[' || c == '(') return sequence(out, c == '[' ? ']' : ')', depth);
    if (c == '{') return dict(out, depth);
    const bool plus = c == '+';
    if (plus) ++at_;
    std::string text(word());
    if (text == "True" || text == "true") return out = true, true;
    if (text == "False" || text == "false") return out = false, true;
    if (text == "None" || text == "null") return out = nullptr, true;
    if (text.ends_with("e") || text.ends_with("E")) {  // 1e+5: the sign ends the word
      if (at_ < text_.size() && text_[at_] == '+') ++at_;
      text += word();
    }
    return number(text, out);
  }

  static bool number(std::string_view text, Json& out) {
    if (const auto exact = exact_number(text)) return out = *exact, true;
    const char* end = text.data() + text.size();
    double real = 0;
    const auto read = std::from_chars(text.data(), end, real);
    const bool ok = read.ptr == end && read.ec == std::errc() && !text.empty() &&
                    text.find_first_of("0123456789") != std::string_view::npos;
    if (ok) out = real;
    return ok;
  }

  bool sequence(Json& out, char close, int depth) {
    ++at_;
    out = Json::array();
    while (!take(close)) {
      if (!out.empty() && !take(',')) return false;
      if (take(close)) break;
      Json item;
      if (!literal(item, depth + 1)) return false;
      out.push_back(std::move(item));
    }
    return true;
  }

  bool dict(Json& out, int depth) {
    ++at_;
    out = Json::object();
    while (!take('}')) {
      if (!out.empty() && !take(',')) return false;
      if (take('}')) break;
      Json key, value;
      if (!literal(key, depth + 1) || !take(':') || !literal(value, depth + 1)) return false;
      add_member(out, key.is_string() && !is_number(key) ? key.get<std::string>() : dump_exact(key),
                 std::move(value));
    }
    drop_repeated_members(out);
    return true;
  }

  bool string(Json& out) {
    const char quote = text_[at_++];
    std::string text;
    while (at_ < text_.size() && text_[at_] != quote) {
      if (text_[at_] != '\\') {
        text += text_[at_++];
      } else if (!escape(text)) {
        return false;
      }
    }
    if (at_ >= text_.size()) return false;
    ++at_;
    out = std::move(text);
    return true;
  }

  bool escape(std::string& text) {
    static constexpr std::string_view kLetters = "nrtbf0\\'\"/",
                                      kMeanings = std::string_view("\n\r\t\b\f\0\\'\"/", 10);
    if (at_ + 1 >= text_.size()) return false;
    const char c = text_[at_ + 1];
    at_ += 2;
    if (c == 'u' || c == 'x') {
      // JSON reads the four digits, surrogates included.
      const size_t n = c == 'u' ? 4 : 2;
      std::string digits(c == 'u' ? "" : "00");
      digits += text_.substr(at_, n);
      at_ += n;
      std::string json = "\"\\u" + digits;
      if (c == 'u' && text_.substr(std::min(at_, text_.size()), 2) == "\\u" &&
          (digits.starts_with("d") || digits.starts_with("D"))) {
        json += text_.substr(at_, 6);
        at_ += 6;
      }
      const Json parsed = bounded_json<Json>(json + "\"");
      if (parsed.is_discarded() || at_ > text_.size()) return false;
      text += parsed.get<std::string>();
      return true;
    }
    const size_t known = kLetters.find(c);
    if (known != std::string_view::npos) {
      text += kMeanings[known];
    } else if (c != '\n') {
      text += '\\';
      text += c;
    }
    return true;
  }

  std::string_view text_;
  size_t at_ = 0;
};

// Returns the content of a block of code: of ```python, a new line, text and ```.
std::string_view without_fence(std::string_view body) {
  constexpr std::string_view kFence = "```";
  std::string_view inner = body.substr(skip_space(body));
  while (!inner.empty() && is_space_only(inner.substr(inner.size() - 1))) inner.remove_suffix(1);
  const size_t line = inner.find('\n');
  if (!inner.starts_with(kFence) || line == std::string_view::npos || !inner.ends_with(kFence))
    return body;
  inner.remove_suffix(kFence.size());
  return inner.substr(std::min(line, inner.size()));
}

// Reads name(…) on separate lines up to the closing mark, which may also occur inside strings.
CallText read_lines_until(std::string_view close, std::string_view text, CallScan& scan) {
  for (; scan.position < text.size(); ++scan.position) {
    const char c = text[scan.position];
    if (scan.escaped) {
      scan.escaped = false;
    } else if (scan.quote != 0) {
      scan.escaped = c == '\\';
      if (c == scan.quote) scan.quote = 0;
    } else if (c == '"' || c == '\'') {
      scan.quote = c;
    } else if (const std::string_view rest = text.substr(scan.position); rest.starts_with(close)) {
      std::vector<ToolCall> calls;
      const std::string_view body = without_fence(text.substr(0, scan.position));
      const bool listed = skip_space(body) < body.size() && body[skip_space(body)] == '[';
      PythonReader reader(body);
      if (!(listed ? reader.calls(calls) : reader.lines(calls))) return CallText::not_a_call();
      return {CallText::Kind::kCalls, scan.position, std::move(calls)};
    } else if (may_become(rest, close)) {
      break;
    }
  }
  return CallText::more();
}

CallText read_python_lines(std::string_view text, CallScan& scan) {
  return read_lines_until("</function_calls>", text, scan);
}

CallText read_fenced_python(std::string_view text, CallScan& scan) {
  return read_lines_until("<|tool_call_end|>", text, scan);
}

CallText read_python_calls(std::string_view text, CallScan& scan) {
  const size_t start = skip_some_space(text);
  if (start == text.size()) return CallText::more();
  if (text[start] != '[') return CallText::not_a_call();
  // Text that cannot begin a function name is rejected at once, so that ordinary text in brackets
  // is not delayed.
  const size_t name = skip_some_space(text, start + 1);
  if (name < text.size() && !is_ascii_letter(text[name]) && text[name] != '_') {
    return CallText::not_a_call();
  }
  const auto end = find_value_end(text, start, scan, true);
  if (!end) return CallText::more();
  std::vector<ToolCall> calls;
  if (!PythonReader(text.substr(start, *end - start)).calls(calls)) return CallText::not_a_call();
  return {CallText::Kind::kCalls, *end, std::move(calls)};
}

}  // namespace

std::optional<nlohmann::ordered_json> python_value(std::string_view text) {
  Json value;
  return PythonReader(text).value(value) ? std::optional(std::move(value)) : std::nullopt;
}

const CallReading kPythonCalls{nullptr, read_python_calls};
const CallReading kPythonLines{nullptr, read_python_lines};
const CallReading kFencedPython{nullptr, read_fenced_python};

}  // namespace penstock
