// The tools of MCP servers that a request names: {type: "mcp", server_label, allowed_tools,
// require_approval}.
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

// Some of the tools of a server.
struct ToolFilter {
  using Names = std::set<std::string>;
  std::optional<Names> names;     // nullopt: of any name
  std::optional<bool> read_only;  // nullopt: whatever they say of it
  bool matches(const McpTool& tool) const;
};

// Whether the client has to agree to calls, as a request says it.
struct ApprovalRule {
  std::optional<bool> asks;  // of the tools below that are not named; nullopt: nothing is said
  std::optional<ToolFilter> always, never;
};

// One of the request's tools of type mcp.
struct McpUse {
  McpServer* server = nullptr;
  std::string label;
  std::string where;  // "tools[0]"
  ToolFilter allowed;
  ApprovalRule approval;
  bool told = false;  // an earlier response of the conversation lists its tools
  McpTools tools;     // null until they are known
};

// A tool that the model may call and this server runs.
struct McpCallee {
  const McpUse* use;
  bool asks;  // the client has to agree first
};

class McpRequest {
 public:
  // Takes the tools of type mcp, where null is left, and a choice of one out of a checked body. servers: null where
  // none are configured. Errors: kInvalidArgument, a server that is not configured or that the key
  // may not use; what only an operator may say (server_url, headers, …).
  static Result<McpRequest> take(const McpServers* servers, const std::string& key,
                                 nlohmann::ordered_json& body);

  bool empty() const { return uses_.empty(); }

  std::vector<McpUse>& uses() { return uses_; }
  // Calls that the input's items agree to and that have not been run, with the items before
  // `n_earlier` of other responses. Errors: those of McpApprovals; kInvalidArgument, an answer of a
  // server that the request does not name.
  Result<std::vector<ApprovedCall>> read_items(const nlohmann::ordered_json& input,
                                               size_t n_earlier);

  // Adds the tools, which are known, to those that the model is shown. Errors: kInvalidArgument,
  // two tools of one name, or one that is allowed by name and is not there.
  Status show(nlohmann::ordered_json& functions, ToolChoice& choice);
  // Those of a server that the request allows, as clients see them. REQUIRES: its tools are known.
  static nlohmann::ordered_json listed(const McpUse& use);
  // Null: it is not one of these.
  const McpCallee* find(std::string_view name) const;

 private:
  Status take_choice(nlohmann::ordered_json& choice);
  Status choose(ToolChoice& choice) const;

  std::vector<McpUse> uses_;
  std::map<std::string, McpCallee, std::less<>> callees_;  // by the tool's name
  // Of the request's choice of a server: its label and the tool's name, "" for any of them.
  std::optional<std::pair<std::string, std::string>> choice_;
};

}  // namespace penstock
