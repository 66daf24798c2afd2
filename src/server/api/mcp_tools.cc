#include "server/api/mcp_tools.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <set>

#include "frontend/json_fields.h"
#include "server/api/api_request.h"

namespace penstock {
namespace {

bool has(const json& names, const std::string& name) {
  return std::ranges::find(names, json(name)) != names.end();
}
bool has(const std::vector<std::string>& names, const std::string& name) {
  return std::ranges::find(names, name) != names.end();
}

// filter: a list of names, or {tool_names, read_only}; null matches every tool.
bool matches(const json& filter, const McpTool& tool) {
  if (filter.is_null()) return true;
  if (filter.is_array()) return has(filter, tool.name);
  const json& names = get_field(filter, "tool_names");
  const json& read_only = get_field(filter, "read_only");
  return (names.is_null() || has(names, tool.name)) &&
         (read_only.is_null() || read_only == tool.read_only);
}

bool request_asks(const json& approval, bool otherwise, const McpTool& tool) {
  if (approval.is_null()) return otherwise;
  if (approval.is_string()) return approval == "always";
  const json &always = get_field(approval, "always"), &never = get_field(approval, "never");
  if (!always.is_null() && matches(always, tool)) return true;
  return never.is_null() || !matches(never, tool);
}

// The operator's word counts where it asks; else the request's.
bool asks(const McpUse& use, const McpTool& tool) {
  const McpServerConfig& config = use.server->config();
  McpApproval rule = config.approval;
  if (has(config.never_approved, tool.name)) rule = McpApproval::kNever;
  if (has(config.always_approved, tool.name)) rule = McpApproval::kAlways;
  if (rule == McpApproval::kAlways) return true;
  return request_asks(use.approval, rule != McpApproval::kNever, tool);
}

// What clients of OpenAI's own servers may say, and only the operator of this one.
Status check_operators_part(const json& tool, const std::string& where) {
  for (const char* field :
       {"server_url", "connector_id", "tunnel_id", "authorization", "headers"}) {
    if (get_field(tool, field).is_null()) continue;
    return errorf(ErrorCode::kInvalidArgument,
                  "{}.{}: MCP servers are those of this server's configuration, which "
                  "server_label names",
                  where, field);
  }
  return {};
}

Result<McpUse> read_use(const McpServers* servers, const std::string& key, const json& tool,
                        std::string where) {
  RETURN_IF_ERROR(check_operators_part(tool, where));
  McpUse use;
  use.label = get_string(tool, "server_label");
  if (servers == nullptr) {
    return errorf(ErrorCode::kInvalidArgument,
                  "{}.server_label: no MCP servers are configured on this server", where);
  }
  use.server = servers->find(use.label, key);
  if (use.server == nullptr) {
    return errorf(ErrorCode::kInvalidArgument,
                  "{}.server_label: expected a configured MCP server ({}), got \"{}\"", where,
                  fmt::join(servers->names(key), ", "), use.label);
  }
  use.allowed = get_field(tool, "allowed_tools");
  use.approval = get_field(tool, "require_approval");
  use.where = std::move(where);
  return use;
}

}  // namespace

Result<McpRequest> McpRequest::take(const McpServers* servers, const std::string& key, json& body) {
  McpRequest request;
  json tools = take_field(body, "tools");
  for (size_t i = 0; i < tools.size(); ++i) {
    if (get_string(tools[i], "type") != "mcp") continue;
    ASSIGN_OR_RETURN(McpUse use, read_use(servers, key, tools[i], fmt::format("tools[{}]", i)));
    if (std::ranges::find(request.uses_, use.label, &McpUse::label) != request.uses_.end()) {
      return errorf(ErrorCode::kInvalidArgument, "{}.server_label: {} is there twice", use.where,
                    use.label);
    }
    request.uses_.push_back(std::move(use));
    tools[i] = nullptr;  // the others keep their places, which messages name
  }
  if (!tools.is_null()) body["tools"] = std::move(tools);
  if (body.contains("tool_choice")) RETURN_IF_ERROR(request.take_choice(body["tool_choice"]));
  return request;
}

Status McpRequest::take_choice(json& choice) {
  if (!choice.is_object() || get_string(choice, "type") != "mcp") return {};
  const std::string label = get_string(choice, "server_label");
  if (std::ranges::find(uses_, label, &McpUse::label) == uses_.end()) {
    return errorf(ErrorCode::kInvalidArgument,
                  "tool_choice.server_label: expected a server of tools, got \"{}\"", label);
  }
  choice_.emplace(label, get_string(choice, "name"));
  choice = "auto";
  return {};
}

// The lists of earlier responses, and what the client says to their questions.
Result<std::vector<ApprovedCall>> McpRequest::read_items(const json& input, size_t n_earlier) {
  std::map<std::string, ApprovedCall> asked;
  std::vector<ApprovedCall> approved;
  for (size_t i = 0; i < (input.is_array() ? input.size() : 0); ++i) {
    const json& item = input[i];
    const std::string type = get_string(item, "type");
    const std::string where = fmt::format("input[{}]", i - std::min(i, n_earlier));
    if (type == "mcp_list_tools") {
      const auto use = std::ranges::find(uses_, get_string(item, "server_label"), &McpUse::label);
      if (use != uses_.end() && get_field(item, "error").is_null()) use->told = true;
    } else if (type == "mcp_approval_request") {
      const std::string id = get_string(item, "id");
      asked[id] = {id, get_string(item, "server_label"), get_string(item, "name"),
                   get_string(item, "arguments"), where};
    } else if (type == "mcp_approval_response") {
      const auto request = asked.find(get_string(item, "approval_request_id"));
      if (request == asked.end()) {
        return errorf(ErrorCode::kInvalidArgument,
                      "{}.approval_request_id: expected the id of an mcp_approval_request before "
                      "it, got \"{}\"",
                      where, get_string(item, "approval_request_id"));
      }
      request->second.where = where;
      if (get_bool(item, "approve")) approved.push_back(request->second);
    } else if (type == "mcp_call") {
      const std::string id = get_string(item, "approval_request_id");
      std::erase_if(approved, [&](const ApprovedCall& one) { return one.request_id == id; });
    }
  }
  for (const ApprovedCall& one : approved) {
    if (std::ranges::find(uses_, one.label, &McpUse::label) == uses_.end()) {
      return errorf(ErrorCode::kInvalidArgument,
                    "{}: agrees to a call of the MCP server {}, which tools does not name",
                    one.where, one.label);
    }
  }
  return approved;
}

json McpRequest::listed(const McpUse& use) {
  json all = json::array();
  for (const McpTool& tool : *use.tools) {
    if (matches(use.allowed, tool)) all.push_back(tool.listed);
  }
  return all;
}

Status McpRequest::show(json& functions, ToolChoice& choice) {
  if (functions.is_null()) functions = json::array();
  std::set<std::string> names;
  for (const json& one : functions) names.insert(get_string(get_field(one, "function"), "name"));
  for (const McpUse& use : uses_) {
    const json& listed =
        use.allowed.is_object() ? get_field(use.allowed, "tool_names") : use.allowed;
    for (const json& name : listed.is_array() ? listed : json::array()) {
      if (std::ranges::find(*use.tools, name.get<std::string>(), &McpTool::name) !=
          use.tools->end())
        continue;
      return errorf(ErrorCode::kInvalidArgument, "{}.allowed_tools: {} has no tool {}", use.where,
                    use.label, name.get<std::string>());
    }
    for (const McpTool& tool : *use.tools) {
      if (!matches(use.allowed, tool)) continue;
      if (!names.insert(tool.name).second) {
        return errorf(ErrorCode::kInvalidArgument,
                      "{}: there is another tool with the name {}; leave one out, for example by "
                      "allowed_tools",
                      use.where, tool.name);
      }
      callees_[tool.name] = {&use, asks(use, tool)};
      json function = {{"name", tool.name}};
      if (const json& text = tool.listed["description"]; text != "") function["description"] = text;
      function["parameters"] = tool.listed["input_schema"];
      functions.push_back({{"type", "function"}, {"function", std::move(function)}});
    }
  }
  if (functions.empty()) functions = nullptr;
  return choice_ ? choose(choice) : Status();
}

Status McpRequest::choose(ToolChoice& choice) const {
  const auto& [label, name] = *choice_;
  choice = {name.empty() ? ToolChoice::Kind::kRequired : ToolChoice::Kind::kNamed};
  for (const auto& [one, callee] : callees_) {
    if (callee.use->label == label && (name.empty() || name == one)) choice.names.push_back(one);
  }
  if (!choice.names.empty()) return {};
  return errorf(ErrorCode::kInvalidArgument, "tool_choice: {} has no tool {}", label, name);
}

const McpCallee* McpRequest::find(std::string_view name) const {
  const auto found = callees_.find(name);
  return found == callees_.end() ? nullptr : &found->second;
}

}  // namespace penstock
