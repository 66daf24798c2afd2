// Items about MCP tools, converted to chat messages and to items of replies.
#pragma once
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "base/text_hash.h"

namespace penstock {

bool is_mcp_item(std::string_view type);

// Finds tool results in a growing list of messages; each message is examined once.
class ToolResults {
 public:
  // Returns the last tool message for the call id, or null. Valid until the list grows.
  nlohmann::ordered_json* find(const std::string& id, nlohmann::ordered_json& messages);

 private:
  size_t n_seen_ = 0;
  TextMap<size_t> places_;  // by tool_call_id
};

// Adds an item of a response's input to `messages` as a call and its result. A call that needs
// approval first gets the result that it was not allowed, which the real result replaces. open: the
// last message is an assistant message that may be extended. results: index of `messages`.
void add_mcp_item(const nlohmann::ordered_json& item, nlohmann::ordered_json& messages, bool& open,
                  ToolResults& results);

// A call of an MCP tool in a reply.
struct McpCallItem {
  std::string id, label, name, arguments;
  bool asks = false;  // the client must approve: nothing is run
  // id of the approval request that the client approved; "": none was needed
  std::string request_id;
  std::string output, problem;
};
nlohmann::ordered_json mcp_call_json(const McpCallItem& call, const char* status);

}  // namespace penstock
