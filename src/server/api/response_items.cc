#include "server/api/response_items.h"

#include <algorithm>
#include <array>
#include <string_view>

#include "server/api/api_request.h"
#include "server/api/asked_tools.h"
#include "server/api/compaction.h"
#include "server/api/conversation_parts.h"
#include "server/api/mcp_items.h"
#include "text/unicode/unicode.h"

namespace penstock {
namespace {

constexpr std::string_view kSeal = "penstock1.";

// Types of call items for tools that run elsewhere, and whether the item includes the result.
struct CallItem {
  std::string_view type;
  bool with_result;
};
constexpr std::array kCallItems = {
    CallItem{"web_search_call", true},   CallItem{"file_search_call", true},
    CallItem{"apply_patch_call", false}, CallItem{"code_interpreter_call", true},
    CallItem{"local_shell_call", false}, CallItem{"image_generation_call", true},
    CallItem{"shell_call", false},       CallItem{"tool_search_call", false}};
constexpr std::array<std::string_view, 4> kOutputItems = {
    "local_shell_call_output", "shell_call_output", "apply_patch_call_output",
    "tool_search_output"};
constexpr std::array<const char*, 5> kResults = {"results", "outputs", "output", "result", "error"};

// Returns the non-null fields of an item except `left_out`.
json said_fields(const json& item, std::span<const char* const> left_out) {
  json said = json::object();
  for (const auto& [name, value] : item.items()) {
    const bool about = name == "type" || name == "id" || name == "call_id" || name == "status";
    const bool left = std::ranges::any_of(left_out, [&](const char* one) { return name == one; });
    if (!about && !left && !value.is_null()) said[name] = value;
  }
  return said;
}

std::string call_id_of(const json& item) {
  const std::string id = get_string(item, "call_id");
  return id.empty() ? get_string(item, "id") : id;
}

// Returns the result part of a call item.
std::string result_of(const json& item, std::string_view type) {
  json said = json::object();
  for (const char* name : kResults) {
    if (const json& value = get_field(item, name); !value.is_null()) said[name] = value;
  }
  if (type == "image_generation_call" && said.contains("result")) said["result"] = "(an image)";
  if (said.empty()) return get_string(item, "status", "completed");
  if (said.size() > 1) return dump(said);
  const json& only = said.front();
  return only.is_string() ? only.get<std::string>() : dump(only);
}

std::string joined_texts(const json& parts) {
  std::string text;
  if (!parts.is_array()) return text;
  for (const json& part : parts) text += get_string(part, "text");
  return text;
}

// Converts refusals in a message to text parts.
void name_refusals(json& content) {
  if (!content.is_array()) return;
  for (json& part : content) {
    if (get_string(part, "type") != "refusal") continue;
    part["text"] = take_field(part, "refusal");
    part["type"] = "output_text";
  }
}

}  // namespace

std::string sealed_reasoning(const std::string& text) { return sealed(kSeal, text); }

json& ResponseItems::open_reply() {
  if (!std::exchange(open_, true)) messages.push_back(message_of("assistant", ""));
  return messages.back();
}

Status ResponseItems::add(json& item, const std::string& where) {
  const std::string type = get_string(item, "type");
  if (type == "message" || (type.empty() && item.contains("role"))) return add_message(item, where);
  if (type == "function_call") return add_call(item, where, false);
  if (type == "custom_tool_call") return add_call(item, where, true);
  if (type == "function_call_output" || type == "custom_tool_call_output")
    return add_output(item, where);
  if (type == "reasoning") return add_reasoning(item, where);
  return add_other(item, type, where);
}

Status ResponseItems::add_message(json& item, const std::string& where) {
  const std::string role = get_string(item, "role");
  if (role.empty()) return errorf(ErrorCode::kInvalidArgument, "{}.role: missing", where);
  json given = take_field(item, "content");
  name_refusals(given);
  ASSIGN_OR_RETURN(json content, text_parts(std::move(given),
                                            {"input_text", "output_text", "text", "input_image"},
                                            where + ".content"));
  if (role == "assistant" && open_ && messages.back()["content"] == "" &&
      !messages.back().contains("tool_calls")) {
    messages.back()["content"] = std::move(content);
  } else {
    messages.push_back(message_of(role, std::move(content)));
  }
  open_ = role == "assistant";
  return {};
}

Status ResponseItems::add_call(json& item, const std::string& where, bool custom) {
  json& reply = open_reply();
  const std::string name = get_string(item, "name");
  if (name.empty()) return errorf(ErrorCode::kInvalidArgument, "{}.name: missing", where);
  json arguments =
      custom ? custom_arguments(take_string(item, "input")) : json(take_string(item, "arguments"));
  reply["tool_calls"].push_back(tool_call(take_string(item, "call_id"),
                                          shown_name(get_string(item, "namespace"), name),
                                          std::move(arguments)));
  return {};
}

Status ResponseItems::add_output(json& item, const std::string& where) {
  open_ = false;
  ASSIGN_OR_RETURN(json output, text_parts(take_field(item, "output"),
                                           {"input_text", "output_text", "text", "input_image"},
                                           where + ".output"));
  messages.push_back(tool_message(take_string(item, "call_id"), std::move(output)));
  return {};
}

Status ResponseItems::add_reasoning(const json& item, const std::string& where) {
  std::string text = joined_texts(get_field(item, "content"));
  const std::string content = get_string(item, "encrypted_content");
  if (text.empty() && !content.empty()) {
    text = unsealed(kSeal, content);
    if (text.empty())
      warnings.push_back(where + ".encrypted_content: another server sealed it, it is left out");
  }
  if (text.empty()) text = joined_texts(get_field(item, "summary"));
  open_ = false;
  json& reply = open_reply();
  if (!text.empty()) reply["reasoning_content"] = std::move(text);
  return {};
}

Status ResponseItems::add_other(json& item, const std::string& type, const std::string& where) {
  if (is_mcp_item(type)) {
    add_mcp_item(item, messages, open_, results_);
    return {};
  }
  if (type == "compaction") {
    open_ = false;
    ASSIGN_OR_RETURN(std::string summary, text_of_compaction(item, where));
    messages.push_back(message_of("user", std::move(summary)));
    return {};
  }
  if (std::ranges::find(kOutputItems, type) != kOutputItems.end()) {
    open_ = false;
    messages.push_back(tool_message(call_id_of(item), result_of(item, type)));
    return {};
  }
  const auto call = std::ranges::find(kCallItems, type, &CallItem::type);
  if (call == kCallItems.end()) {
    return errorf(ErrorCode::kInvalidArgument, "{}: items of type {} are not supported", where,
                  type.empty() ? "(none)" : type);
  }
  constexpr std::string_view kCall = "_call";
  std::string name = type.substr(0, type.size() - kCall.size());
  open_reply()["tool_calls"].push_back(
      tool_call(call_id_of(item), std::move(name), said_fields(item, kResults)));
  if (!call->with_result) return {};
  open_ = false;
  messages.push_back(tool_message(call_id_of(item), result_of(item, type)));
  return {};
}

}  // namespace penstock
