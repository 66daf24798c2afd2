// Calls written as JSON.
#include <algorithm>
#include <nlohmann/json.hpp>

#include "frontend/chat/exact_json.h"
#include "frontend/chat/marked_parser.h"

namespace penstock {
namespace {

using Json = nlohmann::ordered_json;

// Some models write the object of arguments as a string.
std::optional<std::string> arguments_text(const Json& json) {
  if (json.is_object()) return dump_exact(json);
  if (json.is_null()) return "{}";
  if (!json.is_string()) return std::nullopt;
  const auto inner = parse_exact(json.get_ref<const std::string&>());
  return inner && inner->is_object() ? std::optional(dump_exact(*inner)) : std::nullopt;
}

std::optional<ToolCall> call_of(const Json& json) {
  if (!json.is_object()) return std::nullopt;
  if (const auto inner = json.find("function"); inner != json.end() && inner->is_object())
    return call_of(*inner);
  auto name = json.find("name");
  for (const char* other : {"function", "tool_name"}) {
    if (name == json.end()) name = json.find(other);
  }
  if (name == json.end() || !name->is_string() || name->get_ref<const std::string&>().empty())
    return std::nullopt;
  ToolCall call{*name, "{}"};
  for (const char* key : {"arguments", "parameters"}) {
    const auto found = json.find(key);
    if (found == json.end()) continue;
    const auto text = arguments_text(*found);
    if (!text) return std::nullopt;
    call.arguments = *text;
    break;
  }
  return call;
}

}  // namespace

std::optional<std::vector<ToolCall>> calls_of_json(std::string_view text) {
  const auto json = parse_exact(text);
  if (!json) return std::nullopt;
  std::vector<ToolCall> calls;
  if (json->is_array()) {
    for (const Json& item : *json) {
      auto call = call_of(item);
      if (!call) return std::nullopt;
      calls.push_back(std::move(*call));
    }
  } else if (auto call = call_of(*json)) {
    calls.push_back(std::move(*call));
  }
  if (calls.empty()) return std::nullopt;
  return calls;
}

std::optional<std::string> arguments_of_json(std::string_view text) {
  const auto json = parse_exact(text);
  return json && json->is_object() ? std::optional(dump_exact(*json)) : std::nullopt;
}

CallText read_json_calls(std::string_view text, CallScan& scan) {
  const size_t start = skip_space(text);
  if (start == text.size()) return CallText::more();
  if (text[start] != '{' && text[start] != '[') return CallText::not_a_call();
  const auto end = find_value_end(text, start, scan);
  if (!end) return CallText::more();
  auto calls = calls_of_json(text.substr(start, *end - start));
  if (!calls) return CallText::not_a_call();
  return {CallText::Kind::kCalls, *end, std::move(*calls)};
}

// [{"name": {…}}, …]: of each object, its only member.
CallText read_keyed_calls(std::string_view text, CallScan& scan) {
  const size_t start = skip_space(text);
  if (start == text.size()) return CallText::more();
  if (text[start] != '[') return CallText::not_a_call();
  const auto end = find_value_end(text, start, scan);
  if (!end) return CallText::more();
  const auto list = parse_exact(text.substr(start, *end - start));
  if (!list || !list->is_array() || list->empty()) return CallText::not_a_call();
  CallText result{CallText::Kind::kCalls, *end, {}};
  for (const Json& item : *list) {
    if (!item.is_object() || item.size() != 1) return CallText::not_a_call();
    auto arguments = arguments_text(item.front());
    if (!arguments || item.begin().key().empty()) return CallText::not_a_call();
    result.calls.push_back({item.begin().key(), *std::move(arguments)});
  }
  return result;
}

// A line with the name, then a JSON object.
CallText read_named_call(std::string_view text, CallScan& scan) {
  const size_t line = text.find('\n');
  const std::string_view name = text.substr(0, std::min(line, text.size()));
  if (!is_function_name(name)) return CallText::not_a_call();
  if (line == std::string_view::npos) return CallText::more();
  const size_t start = skip_space(text, line);
  if (start == text.size()) return CallText::more();
  if (text[start] != '{') return CallText::not_a_call();
  const auto end = find_value_end(text, start, scan);
  if (!end) return CallText::more();
  auto arguments = arguments_of_json(text.substr(start, *end - start));
  if (!arguments) return CallText::not_a_call();
  return {CallText::Kind::kCalls, *end, {{std::string(name), *std::move(arguments)}}};
}

// One value behind the other up to the closing mark, which may stand in their strings too.
CallText read_json_lines(std::string_view text, CallScan& scan) {
  constexpr std::string_view kClose = "</tool_calls>";
  const size_t start = skip_space(text);
  if (start < text.size() && text[start] != '{') return CallText::not_a_call();
  for (;;) {
    const size_t close = text.find(kClose, scan.position);
    if (close == std::string_view::npos) {
      scan.position = text.size() - std::min(text.size(), kClose.size() - 1);
      return CallText::more();
    }
    CallText result{CallText::Kind::kCalls, close, {}};
    size_t at = start;
    while (at < close) {
      CallScan value;
      const auto end = find_value_end(text.substr(0, close), at, value);
      if (!end) break;
      auto calls = calls_of_json(text.substr(at, *end - at));
      if (!calls) return CallText::not_a_call();
      std::ranges::move(*calls, std::back_inserter(result.calls));
      at = skip_space(text, *end);
    }
    if (at == close) return result.calls.empty() ? CallText::not_a_call() : result;
    scan.position = close + 1;
  }
}

// [TOOL_CALLS][{"name": …}, …], or the later [TOOL_CALLS]name[CALL_ID]id[ARGS]{…}, its two marks optional.
CallText read_mistral_calls(std::string_view text, CallScan& scan) {
  const size_t start = skip_space(text);
  if (start == text.size()) return CallText::more();
  if (text[start] == '[' || text[start] == '{') return read_json_calls(text, scan);
  const size_t name_end = text.find_first_of("[{", start);
  const std::string_view name = text.substr(start, std::min(name_end, text.size()) - start);
  if (!is_function_name(name)) return CallText::not_a_call();
  if (name_end == std::string_view::npos) return CallText::more();
  size_t at = name_end;
  constexpr std::string_view kId = "[CALL_ID]", kArguments = "[ARGS]";
  const std::string_view rest = text.substr(at);
  if (may_become(rest, kId) || may_become(rest, kArguments)) return CallText::more();
  if (rest.starts_with(kId)) {
    at = text.find_first_of("[{", at + kId.size());
    if (at == std::string_view::npos) return CallText::more();
    if (may_become(text.substr(at), kArguments)) return CallText::more();
  }
  if (text.substr(at).starts_with(kArguments)) at += kArguments.size();
  at = skip_space(text, at);
  if (at == text.size()) return CallText::more();
  if (text[at] != '{') return CallText::not_a_call();
  const auto end = find_value_end(text, at, scan);
  if (!end) return CallText::more();
  auto arguments = arguments_of_json(text.substr(at, *end - at));
  if (!arguments) return CallText::not_a_call();
  return {CallText::Kind::kCalls, *end, {{std::string(name), std::move(*arguments)}}};
}

}  // namespace penstock
