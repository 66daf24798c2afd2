// Items about tools of MCP servers: as messages of a chat, and as replies have them.
#pragma once
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <unordered_map>

namespace penstock {

bool is_mcp_item(std::string_view type);

// Finds the results of calls in a list of messages that only grows: each message is looked at once.
class ToolResults {
 public:
  // The last tool message of that call; null: there is none. The pointer is valid until the list
  // grows.
  nlohmann::ordered_json* find(const std::string& id, nlohmann::ordered_json& messages);

 private:
  size_t n_seen_ = 0;
  std::unordered_map<std::string, size_t> places_;  // by tool_call_id
};

// What an item of a response's input says in chat completions' terms: a call and its result. A call
// that the client was asked about has a result from the start, that it was not allowed, which the
// call's own replaces. open: the last message is an assistant's that may still grow. results: of
// these messages.
void add_mcp_item(const nlohmann::ordered_json& item, nlohmann::ordered_json& messages, bool& open,
                  ToolResults& results);

// A call of a tool of an MCP server, in a reply.
struct McpCallItem {
  std::string id, label, name, arguments;
  bool asks = false;       // the client has to agree: nothing is run
  std::string request_id;  // of the question that the client has agreed to; "": it was not asked
  std::string output, problem;
};
nlohmann::ordered_json mcp_call_json(const McpCallItem& call, const char* status);

}  // namespace penstock
