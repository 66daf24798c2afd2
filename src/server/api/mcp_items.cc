#include "server/api/mcp_items.h"

#include "frontend/json_fields.h"
#include "server/api/api_request.h"

namespace penstock {
namespace {

json tool_result(const std::string& id, std::string text) {
  return {{"role", "tool"}, {"tool_call_id", id}, {"content", std::move(text)}};
}

void add_call(const json& item, const std::string& result, json& messages, bool& open) {
  const std::string id = get_string(item, "id");
  if (!open) messages.push_back({{"role", "assistant"}, {"content", ""}});
  json call = {{"id", id}, {"type", "function"}};
  call["function"] = {{"name", get_string(item, "name")},
                      {"arguments", get_string(item, "arguments", "{}")}};
  messages.back()["tool_calls"].push_back(std::move(call));
  messages.push_back(tool_result(id, result));
  open = false;
}

// False: there is no such call.
bool replace_result(const std::string& id, const std::string& result, json& messages) {
  for (size_t i = messages.size(); i > 0 && !id.empty(); --i) {
    json& message = messages[i - 1];
    if (get_string(message, "role") != "tool" || get_string(message, "tool_call_id") != id)
      continue;
    message["content"] = result;
    return true;
  }
  return false;
}

std::string result_of(const json& item) {
  const std::string problem = get_string(item, "error"), output = get_string(item, "output");
  if (problem.empty()) return output;
  return "Error: " + problem + (output.empty() ? "" : "\n" + output);
}

constexpr const char* kNotAllowed = "The user did not allow this call; it was not made.";

}  // namespace

bool is_mcp_item(std::string_view type) {
  return type == "mcp_list_tools" || type == "mcp_call" || type == "mcp_approval_request" ||
         type == "mcp_approval_response";
}

void add_mcp_item(const json& item, json& messages, bool& open) {
  const std::string type = get_string(item, "type");
  const std::string request = get_string(item, "approval_request_id");
  if (type == "mcp_approval_request") {
    add_call(item, kNotAllowed, messages, open);
  } else if (type == "mcp_approval_response") {
    open = false;
    const std::string reason = get_string(item, "reason");
    if (!get_bool(item, "approve") && !reason.empty())
      replace_result(request, kNotAllowed + (" Reason: " + reason), messages);
  } else if (type == "mcp_call" && !replace_result(request, result_of(item), messages)) {
    add_call(item, result_of(item), messages, open);
  }
}

json mcp_call_json(const McpCallItem& call, const char* status) {
  json item = {{"id", call.id}};
  if (call.asks) {
    item["type"] = "mcp_approval_request";
  } else {
    item["type"] = "mcp_call";
    item["status"] = status;
    item["approval_request_id"] = call.request_id.empty() ? json(nullptr) : json(call.request_id);
    const bool ended = std::string_view(status) == "completed" || !call.problem.empty();
    item["output"] = ended && !call.output.empty() ? json(call.output) : json(nullptr);
    if (ended && call.problem.empty()) item["output"] = call.output;
    item["error"] = call.problem.empty() ? json(nullptr) : json(call.problem);
  }
  item.update({{"server_label", call.label}, {"name", call.name}, {"arguments", call.arguments}});
  return item;
}

}  // namespace penstock
