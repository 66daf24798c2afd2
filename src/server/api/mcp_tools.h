// The MCP tools in a request: {type: "mcp", server_label, allowed_tools, require_approval}.
#pragma once
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "frontend/chat/reply_grammar.h"
#include "server/api/mcp_approvals.h"
#include "server/mcp/mcp_servers.h"

namespace penstock {

// A selection of a server's tools.
struct ToolFilter {
  using Names = std::set<std::string>;
  std::optional<Names> names;     // nullopt: any name
  std::optional<bool> read_only;  // required read-only annotation; nullopt: any
  bool matches(const McpTool& tool) const;
};

// The request's rule for which calls need the client's approval.
struct ApprovalRule {
  // for tools matched by neither filter; nullopt: unset
  std::optional<bool> asks;
  std::optional<ToolFilter> always, never;
};

// One tool of type mcp in the request.
struct McpUse {
  McpServer* server = nullptr;
  std::string label;
  std::string where;  // "tools[0]"
  ToolFilter allowed;
  ApprovalRule approval;
  // an earlier response of the conversation lists its tools
  bool told = false;
  McpTools tools;  // null until they are known
};

// A tool that the model may call and that this server runs.
struct McpCallee {
  const McpUse* use;
  bool asks;  // the client must approve each call
};

class McpRequest {
 public:
  // Moves the tools of type mcp (null remains in their place) and a choice of one of them out of a
  // checked body. servers: null if none are configured. Errors: kInvalidArgument (a server that is
  // not configured or not allowed for the key, or fields that only the operator may set:
  // server_url, headers, …).
  static Result<McpRequest> take(const McpServers* servers, const std::string& key,
                                 nlohmann::ordered_json& body);

  bool empty() const { return uses_.empty(); }

  std::vector<McpUse>& uses() { return uses_; }
  // Returns the calls that the input approves and that have not been run; items before `n_earlier`
  // come from earlier responses. Errors: those of McpApprovals; kInvalidArgument (an answer for a
  // server that the request does not name).
  Result<std::vector<ApprovedCall>> read_items(const nlohmann::ordered_json& input,
                                               size_t n_earlier);

  // Adds the MCP tools to the functions shown to the model. REQUIRES: all tools are known. Errors:
  // kInvalidArgument (two tools of one name, or an allowed name that does not exist).
  Status show(nlohmann::ordered_json& functions, ToolChoice& choice);
  // Returns the server's tools that the request allows, as clients see them. REQUIRES: they are
  // known.
  static nlohmann::ordered_json listed(const McpUse& use);
  // null: no MCP tool has this name
  const McpCallee* find(std::string_view name) const;

 private:
  Status take_choice(nlohmann::ordered_json& choice);
  Status choose(ToolChoice& choice) const;

  std::vector<McpUse> uses_;
  std::map<std::string, McpCallee, std::less<>> callees_;  // by the tool's name
  // The request's choice of an MCP tool: server label and tool name; tool name "": any of the
  // server's.
  std::optional<std::pair<std::string, std::string>> choice_;
};

}  // namespace penstock
