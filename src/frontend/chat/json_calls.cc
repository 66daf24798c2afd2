// Calls written as JSON.
#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/json_text.h"
#include "frontend/chat/marked_parser.h"

namespace penstock {
namespace {

using Json = nlohmann::ordered_json;

std::optional<Json> parse(std::string_view text) {
  Json json = bounded_json<Json>(text);
  if (json.is_discarded()) return std::nullopt;
  return json;
}

std::string dump(const Json& json) { return json.dump(-1, ' ', false, Json::error_handler_t::replace); }

// Some models write the object of arguments as a string.
std::optional<std::string> arguments_text(const Json& json) {
  if (json.is_object()) return dump(json);
  if (json.is_null()) return "{}";
  if (!json.is_string()) return std::nullopt;
  const auto inner = parse(json.get_ref<const std::string&>());
  return inner && inner->is_object() ? std::optional(dump(*inner)) : std::nullopt;
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
  const auto json = parse(text);
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
  const auto json = parse(text);
  return json && json->is_object() ? std::optional(dump(*json)) : std::nullopt;
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
