// Calls between tags of their own: <function=name>, DeepSeek's and Kimi's sections.
#include <nlohmann/json.hpp>

#include "frontend/chat/marked_parser.h"

namespace penstock {
namespace {

using Json = nlohmann::ordered_json;

std::string_view trim(std::string_view text) {
  text.remove_prefix(skip_space(text));
  while (!text.empty() && is_space_only(text.substr(text.size() - 1))) text.remove_suffix(1);
  return text;
}

// Position of the end mark, looking on from where the last search ended.
std::optional<size_t> find_mark(std::string_view text, std::string_view mark, size_t start, CallScan& scan) {
  const size_t from = std::max(start, scan.position);
  const size_t hit = text.find(mark, from);
  if (hit != std::string_view::npos) return hit;
  scan.position = text.size() >= mark.size() ? std::max(start, text.size() - mark.size() + 1) : start;
  return std::nullopt;
}

// The text between a call's own begin and end marks, for sections that hold calls. mark 0 is the section's
// begin.
struct SectionMarks {
  std::string_view call_begin, call_end;
};
std::optional<CallText> section_call(std::string_view text, size_t mark, const SectionMarks& marks,
                                     CallScan& scan, std::string_view& body, size_t& consumed) {
  size_t start = 0;
  if (mark == 0) {
    start = skip_space(text);
    const std::string_view rest = text.substr(start);
    if (may_become(rest, marks.call_begin)) return CallText::more();
    if (!rest.starts_with(marks.call_begin)) return CallText::not_a_call();
    start += marks.call_begin.size();
  }
  const auto end = find_mark(text, marks.call_end, start, scan);
  if (!end) return CallText::more();
  body = text.substr(start, *end - start);
  consumed = *end + marks.call_end.size();
  return std::nullopt;
}

CallText one_call(std::string_view name, std::string_view arguments, size_t consumed) {
  name = trim(name);
  auto parsed = is_space_only(arguments) ? std::optional<std::string>("{}") : arguments_of_json(arguments);
  if (!is_function_name(name) || !parsed) return CallText::not_a_call();
  return {CallText::Kind::kCalls, consumed, {{std::string(name), std::move(*parsed)}}};
}

// "name>": the name, with the position behind it; nullopt while it may go on.
struct TagName {
  std::string_view name;
  size_t end = 0;
  bool valid = false;
};
std::optional<TagName> tag_name(std::string_view text, size_t start) {
  const size_t close = text.find('>', start);
  const std::string_view name = text.substr(start, std::min(close, text.size()) - start);
  if (!name.empty() && !is_function_name(name)) return TagName{};
  if (close == std::string_view::npos) return std::nullopt;
  return TagName{name, close + 1, !name.empty()};
}

// A parameter's text: JSON where it is some, a string otherwise.
Json parameter_value(std::string_view text) {
  if (text.starts_with('\n')) text.remove_prefix(1);
  if (text.ends_with('\n')) text.remove_suffix(1);
  Json json = Json::parse(text, nullptr, false);
  if (!json.is_discarded() && !json.is_string()) return json;
  return std::string(text);
}

}  // namespace

CallText read_function_tag(std::string_view text, size_t, CallScan& scan) {
  const auto tag = tag_name(text, 0);
  if (!tag) return CallText::more();
  if (!tag->valid) return CallText::not_a_call();
  const size_t start = skip_space(text, tag->end);
  if (start == text.size()) return CallText::more();
  if (text[start] != '{') return CallText::not_a_call();
  const auto end = find_value_end(text, start, scan);
  if (!end) return CallText::more();
  return one_call(tag->name, text.substr(start, *end - start), *end);
}

// <tool_call> <function=name> <parameter=key> value </parameter> … </function> </tool_call>; mark 1 is
// <function=.
CallText read_parameter_tags(std::string_view text, size_t mark, CallScan& scan) {
  constexpr std::string_view kFunction = "<function=", kEnd = "</function>",
                             kParameter = "<parameter=", kClose = "</parameter>";
  size_t start = 0;
  if (mark == 0) {
    start = skip_space(text);
    const std::string_view rest = text.substr(start);
    if (may_become(rest, kFunction)) return CallText::more();
    if (!rest.starts_with(kFunction)) return CallText::not_a_call();
    start += kFunction.size();
  }
  const auto tag = tag_name(text, start);
  if (!tag) return CallText::more();
  if (!tag->valid) return CallText::not_a_call();
  const auto end = find_mark(text, kEnd, tag->end, scan);
  if (!end) return CallText::more();
  std::string_view body = text.substr(tag->end, *end - tag->end);
  Json arguments = Json::object();
  while (!is_space_only(body)) {
    body.remove_prefix(skip_space(body));
    if (!body.starts_with(kParameter)) return CallText::not_a_call();
    const auto key = tag_name(body, kParameter.size());
    if (!key || !key->valid) return CallText::not_a_call();
    const size_t close = body.find(kClose, key->end);
    if (close == std::string_view::npos) return CallText::not_a_call();
    arguments[std::string(key->name)] = parameter_value(body.substr(key->end, close - key->end));
    body.remove_prefix(close + kClose.size());
  }
  return {CallText::Kind::kCalls,
          *end + kEnd.size(),
          {{std::string(tag->name), arguments.dump(-1, ' ', false, Json::error_handler_t::replace)}}};
}

// "function<sep>name\n```json\n{…}\n```" (V3, R1) or "name<sep>{…}" (V3.1).
CallText read_deepseek_call(std::string_view text, size_t mark, CallScan& scan) {
  constexpr std::string_view kSeparator = "<｜tool▁sep｜>";
  std::string_view body;
  size_t consumed = 0;
  const SectionMarks marks{"<｜tool▁call▁begin｜>", "<｜tool▁call▁end｜>"};
  if (const auto early = section_call(text, mark, marks, scan, body, consumed)) return *early;
  const size_t separator = body.find(kSeparator);
  if (separator == std::string_view::npos) return CallText::not_a_call();
  const std::string_view left = body.substr(0, separator);
  std::string_view right = body.substr(separator + kSeparator.size());
  if (trim(left) != "function") return one_call(left, right, consumed);
  const size_t line_end = right.find('\n');
  if (line_end == std::string_view::npos) return CallText::not_a_call();
  const std::string_view name = right.substr(0, line_end);
  right = trim(right.substr(line_end + 1));
  constexpr std::string_view kFence = "```json";
  if (right.starts_with(kFence)) right.remove_prefix(kFence.size());
  if (right.ends_with("```")) right.remove_suffix(3);
  return one_call(name, right, consumed);
}

// "functions.name:0<|tool_call_argument_begin|>{…}"
CallText read_kimi_call(std::string_view text, size_t mark, CallScan& scan) {
  constexpr std::string_view kArguments = "<|tool_call_argument_begin|>", kPrefix = "functions.";
  std::string_view body;
  size_t consumed = 0;
  const SectionMarks marks{"<|tool_call_begin|>", "<|tool_call_end|>"};
  if (const auto early = section_call(text, mark, marks, scan, body, consumed)) return *early;
  const size_t separator = body.find(kArguments);
  if (separator == std::string_view::npos) return CallText::not_a_call();
  std::string_view name = trim(body.substr(0, separator));
  if (name.starts_with(kPrefix)) name.remove_prefix(kPrefix.size());
  name = name.substr(0, name.rfind(':'));
  return one_call(name, body.substr(separator + kArguments.size()), consumed);
}

}  // namespace penstock
