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

std::string result_of(const json& item) {
  const std::string problem = get_string(item, "error"), output = get_string(item, "output");
  if (problem.empty()) return output;
  return "Error: " + problem + (output.empty() ? "" : "\n" + output);
}

constexpr const char* kNotAllowed = "The user did not allow this call; it was not made.";

}  // namespace

json* ToolResults::find(const std::string& id, json& messages) {
  for (; n_seen_ < messages.size(); ++n_seen_) {
    const json& message = messages[n_seen_];
    if (get_string(message, "role") == "tool")
      places_[get_string(message, "tool_call_id")] = n_seen_;
  }
  const auto found = id.empty() ? places_.end() : places_.find(id);
  return found == places_.end() ? nullptr : &messages[found->second];
}

bool is_mcp_item(std::string_view type) {
  return type == "mcp_list_tools" || type == "mcp_call" || type == "mcp_approval_request" ||
         type == "mcp_approval_response";
}

void add_mcp_item(const json& item, json& messages, bool& open, ToolResults& results) {
  const std::string type = get_string(item, "type");
  const std::string request = get_string(item, "approval_request_id");
  if (type == "mcp_approval_request") {
    if (results.find(get_string(item, "id"), messages) == nullptr)
      add_call(item, kNotAllowed, messages, open);
  } else if (type == "mcp_approval_response") {
    open = false;
    const std::string reason = get_string(item, "reason");
    if (get_bool(item, "approve") || reason.empty()) return;
    if (json* const message = results.find(request, messages))
      (*message)["content"] = kNotAllowed + (" Reason: " + reason);
  } else if (type == "mcp_call") {
    if (json* const message = results.find(request, messages))
      (*message)["content"] = result_of(item);
    else
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
