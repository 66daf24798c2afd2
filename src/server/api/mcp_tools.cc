#include "server/api/mcp_tools.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <set>

#include "base/work.h"
#include "frontend/json_fields.h"
#include "server/api/api_request.h"

namespace penstock {
namespace {

bool has(const std::vector<std::string>& names, const std::string& name) {
  return std::ranges::find(names, name) != names.end();
}

// names: a list; null: all names.
std::optional<ToolFilter::Names> read_names(const json& names) {
  if (names.is_null()) return std::nullopt;
  ToolFilter::Names all;
  for (const json& one : names) all.insert(one.get<std::string>());
  return all;
}

// filter: a list of names, or {tool_names, read_only}; null matches every tool.
ToolFilter read_filter(const json& filter) {
  ToolFilter read;
  read.names = read_names(filter.is_object() ? get_field(filter, "tool_names") : filter);
  const json& read_only = get_field(filter, "read_only");
  if (read_only.is_boolean()) read.read_only = read_only.get<bool>();
  return read;
}

ApprovalRule read_rule(const json& approval) {
  ApprovalRule rule;
  if (approval.is_string()) rule.asks = approval == "always";
  const json &always = get_field(approval, "always"), &never = get_field(approval, "never");
  if (!approval.is_object()) return rule;
  rule.asks = true;
  if (!always.is_null()) rule.always = read_filter(always);
  if (!never.is_null()) rule.never = read_filter(never);
  return rule;
}

bool request_asks(const ApprovalRule& rule, bool otherwise, const McpTool& tool) {
  if (rule.always && rule.always->matches(tool)) return true;
  if (rule.never && rule.never->matches(tool)) return false;
  return rule.asks.value_or(otherwise);
}

// The operator's rule takes precedence where it demands approval; otherwise the request's applies.
bool asks(const McpUse& use, const McpTool& tool) {
  const McpServerConfig& config = use.server->config();
  McpApproval rule = config.approval;
  if (has(config.never_approved, tool.name)) rule = McpApproval::kNever;
  if (has(config.always_approved, tool.name)) rule = McpApproval::kAlways;
  if (rule == McpApproval::kAlways) return true;
  return request_asks(use.approval, rule != McpApproval::kNever, tool);
}

// Refuses fields that OpenAI's clients may set but that only this server's operator may.
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
  use.allowed = read_filter(get_field(tool, "allowed_tools"));
  use.approval = read_rule(get_field(tool, "require_approval"));
  use.where = std::move(where);
  return use;
}

// Checks that every name allowed by the request exists.
Status check_names(const McpUse& use) {
  if (!use.allowed.names) return {};
  std::set<std::string_view> there;
  for (const McpTool& tool : *use.tools) there.insert(tool.name);
  for (const std::string& name : *use.allowed.names) {
    if (there.contains(name)) continue;
    return errorf(ErrorCode::kInvalidArgument, "{}.allowed_tools: {} has no tool {}", use.where,
                  use.label, name);
  }
  return {};
}

}  // namespace

bool ToolFilter::matches(const McpTool& tool) const {
  return (!names || names->contains(tool.name)) && (!read_only || *read_only == tool.read_only);
}

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
    // keeps the indices of the others, which messages use
    tools[i] = nullptr;
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

// Reads lists of tools and approvals from earlier responses and from the input.
Result<std::vector<ApprovedCall>> McpRequest::read_items(const json& input, size_t n_earlier) {
  McpApprovals approvals;
  for (size_t i = 0; i < (input.is_array() ? input.size() : 0); ++i) {
    give_way();
    const json& item = input[i];
    if (get_string(item, "type") == "mcp_list_tools") {
      const auto use = std::ranges::find(uses_, get_string(item, "server_label"), &McpUse::label);
      if (use != uses_.end() && get_field(item, "error").is_null()) use->told = true;
    }
    RETURN_IF_ERROR(
        approvals.add(item, fmt::format("input[{}]", i - std::min(i, n_earlier)), i < n_earlier));
  }
  ASSIGN_OR_RETURN(std::vector<ApprovedCall> approved, approvals.approved());
  for (const ApprovedCall& one : approved) {
    if (std::ranges::find(uses_, one.label, &McpUse::label) == uses_.end()) {
      return errorf(ErrorCode::kInvalidArgument,
                    "{}: agrees to a call of the MCP server {:.80}, which tools does not name",
                    one.where, one.label);
    }
  }
  return approved;
}

json McpRequest::listed(const McpUse& use) {
  json all = json::array();
  for (const McpTool& tool : *use.tools) {
    if (use.allowed.matches(tool)) all.push_back(tool.listed);
  }
  return all;
}

Status McpRequest::show(json& functions, ToolChoice& choice) {
  if (functions.is_null()) functions = json::array();
  std::set<std::string> names;
  for (const json& one : functions) names.insert(get_string(get_field(one, "function"), "name"));
  for (const McpUse& use : uses_) {
    RETURN_IF_ERROR(check_names(use));
    for (const McpTool& tool : *use.tools) {
      if (!use.allowed.matches(tool)) continue;
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
