// Calls in the format of Gemma 4 and FunctionGemma: call:name{key:value,…}, with special marks
// around strings.
#include <nlohmann/json.hpp>

#include "base/ordered_json.h"
#include "frontend/chat/exact_json.h"
#include "frontend/chat/marked_parser.h"

namespace penstock {
namespace {

using Json = nlohmann::ordered_json;

// Methods return false if the text does not match.
class GemmaReader {
 public:
  GemmaReader(std::string_view text, std::string_view quote) : text_(text), quote_(quote) {}

  bool call(ToolCall& out) {
    constexpr std::string_view kCall = "call:";
    skip();
    if (!text_.substr(at_).starts_with(kCall)) return false;
    at_ += kCall.size();
    const size_t end = text_.find('{', at_);
    if (end == std::string_view::npos) return false;
    out.name = text_.substr(at_, end - at_);
    at_ = end;
    Json arguments;
    if (!is_function_name(out.name) || !object(arguments, 0) ||
        skip_space(text_, at_) != text_.size())
      return false;
    out.arguments = dump_exact(arguments);
    return true;
  }

 private:
  static constexpr int kMaxDepth = 64;

  void skip() { at_ = skip_space(text_, at_); }
  bool take(std::string_view wanted) {
    skip();
    if (!text_.substr(at_).starts_with(wanted)) return false;
    at_ += wanted.size();
    return true;
  }

  // Reads a string between the marks or in JSON's quotation marks.
  bool string(std::string& out) {
    if (take(quote_)) {
      const size_t end = text_.find(quote_, at_);
      if (end == std::string_view::npos) return false;
      out = text_.substr(at_, end - at_);
      at_ = end + quote_.size();
      return true;
    }
    size_t end = at_ + 1;
    for (bool escaped = false; end < text_.size() && (escaped || text_[end] != '"'); ++end)
      escaped = !escaped && text_[end] == '\\';
    if (end >= text_.size()) return false;
    const auto json = parse_exact(text_.substr(at_, end + 1 - at_));
    if (!json || !json->is_string()) return false;
    out = json->get<std::string>();
    at_ = end + 1;
    return true;
  }
  bool quoted() {
    skip();
    const std::string_view rest = text_.substr(at_);
    return rest.starts_with(quote_) || rest.starts_with('"');
  }

  std::string_view word(std::string_view ends) {
    skip();
    const size_t start = at_;
    at_ = std::min(text_.find_first_of(ends, at_), text_.size());
    std::string_view word = text_.substr(start, at_ - start);
    while (!word.empty() && is_space_only(word.substr(word.size() - 1))) word.remove_suffix(1);
    return word;
  }

  bool object(Json& out, int depth) {
    if (!take("{") || depth > kMaxDepth) return false;
    out = Json::object();
    while (!take("}")) {
      if (!out.empty() && !take(",")) return false;
      if (take("}")) break;
      std::string key;
      if (quoted() ? !string(key) : (key = word(":,{}[]")).empty()) return false;
      Json one;
      if (!take(":") || !value(one, depth)) return false;
      add_member(out, std::move(key), std::move(one));
    }
    drop_repeated_members(out);
    return true;
  }

  bool list(Json& out, int depth) {
    if (!take("[") || depth > kMaxDepth) return false;
    out = Json::array();
    while (!take("]")) {
      if (!out.empty() && !take(",")) return false;
      if (take("]")) break;
      Json one;
      if (!value(one, depth)) return false;
      out.push_back(std::move(one));
    }
    return true;
  }

  bool value(Json& out, int depth) {
    skip();
    if (quoted()) {
      std::string text;
      const bool ok = string(text);
      if (ok) out = std::move(text);
      return ok;
    }
    if (at_ < text_.size() && text_[at_] == '{') return object(out, depth + 1);
    if (at_ < text_.size() && text_[at_] == '[') return list(out, depth + 1);
    const std::string_view plain = word(",}]");
    if (plain.empty()) return false;
    if (plain == "true" || plain == "false") return out = plain == "true", true;
    if (plain == "null" || plain == "None") return out = nullptr, true;
    const auto number = exact_number(plain);
    out = number ? *number : Json(std::string(plain));  // a string without marks
    return true;
  }

  std::string_view text_, quote_;
  size_t at_ = 0;
};

// Returns the position after the closing brace of the arguments.
std::optional<size_t> arguments_end(std::string_view text, size_t start, std::string_view quote,
                                    CallScan& scan) {
  constexpr char kMarked = 'm', kJson = '"';
  for (scan.position = std::max(scan.position, start); scan.position < text.size();) {
    const std::string_view rest = text.substr(scan.position);
    if (scan.quote != kJson && (rest.starts_with(quote) || may_become(rest, quote))) {
      if (!rest.starts_with(quote)) return std::nullopt;
      scan.quote = scan.quote == 0 ? kMarked : '\0';
      scan.position += quote.size();
      continue;
    }
    const char c = rest[0];
    ++scan.position;
    if (scan.escaped) {
      scan.escaped = false;
    } else if (scan.quote == kJson) {
      scan.escaped = c == '\\';
      if (c == '"') scan.quote = 0;
    } else if (scan.quote == 0) {
      if (c == '"') scan.quote = kJson;
      if (c == '{' || c == '[') ++scan.depth;
      if ((c == '}' || c == ']') && --scan.depth == 0) return scan.position;
    }
  }
  return std::nullopt;
}

CallText read_with_quote(std::string_view text, std::string_view quote, CallScan& scan) {
  constexpr std::string_view kCall = "call:";
  const size_t start = skip_some_space(text);
  const std::string_view rest = text.substr(start);
  if (rest.empty() || may_become(rest, kCall)) return CallText::more();
  if (!rest.starts_with(kCall)) return CallText::not_a_call();
  const size_t brace = text.find('{', start);
  const size_t name = start + kCall.size();
  const std::string_view spelled = text.substr(name, std::min(brace, text.size()) - name);
  if (!spelled.empty() && !is_function_name(spelled)) return CallText::not_a_call();
  if (brace == std::string_view::npos) return CallText::more();
  const auto end = arguments_end(text, brace, quote, scan);
  if (!end) return CallText::more();
  ToolCall call;
  if (!GemmaReader(text.substr(start, *end - start), quote).call(call))
    return CallText::not_a_call();
  return {CallText::Kind::kCalls, *end, {std::move(call)}};
}

CallText read_gemma4_call(std::string_view text, CallScan& scan) {
  return read_with_quote(text, "<|\"|>", scan);
}

CallText read_function_gemma_call(std::string_view text, CallScan& scan) {
  return read_with_quote(text, "<escape>", scan);
}

}  // namespace

const CallReading kGemma4Calls{nullptr, read_gemma4_call};
const CallReading kFunctionGemmaCalls{nullptr, read_function_gemma_call};

}  // namespace penstock
