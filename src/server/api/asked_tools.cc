#include "server/api/asked_tools.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "frontend/json_fields.h"
#include "server/api/api_request.h"
#include "server/api/conversation_parts.h"
#include "server/api/field_names.h"

namespace penstock {
namespace {

tl::unexpected<Error> missing(const std::string& where) {
  return errorf(ErrorCode::kInvalidArgument, "{}: missing", where);
}

// strict: the default if the tool does not set it.
json function_of(json& tool, const char* parameters, bool strict) {
  json function = {{"name", take_field(tool, "name")}};
  if (json text = take_field(tool, "description"); text.is_string())
    function["description"] = std::move(text);
  if (json schema = take_field(tool, parameters); schema.is_object())
    function["parameters"] = std::move(schema);
  if (get_bool(tool, "strict", strict)) function["strict"] = true;
  return function;
}

json shown_function(json function) {
  json result = {{"type", "function"}};
  result["function"] = std::move(function);
  return result;
}

class ToolReader {
 public:
  explicit ToolReader(ToolApi api) : api_(api) {}

  Status add(json& tool, const std::string& where, const std::string& name_space = {}) {
    const std::string type = get_string(tool, "type", "custom");
    if (api_ == ToolApi::kMessages)
      return type == "custom" ? add_message_tool(tool, where) : leave_out(tool, where, type);
    if (type == "function") return add_function(tool, where, name_space);
    if (type == "custom") return add_custom(tool, where, name_space);
    if (type == "namespace" && name_space.empty()) return add_namespace(tool, where);
    return leave_out(tool, where, type);
  }

  AskedTools asked;

 private:
  Status add_message_tool(json& tool, const std::string& where) {
    if (get_string(tool, "name").empty()) return missing(where + ".name");
    if (!get_field(tool, "input_schema").is_object()) return missing(where + ".input_schema");
    return show(function_of(tool, "input_schema", false), where);
  }

  Status add_function(json& tool, const std::string& where, const std::string& name_space) {
    const bool nested = api_ == ToolApi::kChat;
    if (nested && !get_field(tool, "function").is_object()) return missing(where + ".function");
    json function = nested ? take_field(tool, "function") : function_of(tool, "parameters", true);
    const std::string name = get_string(function, "name");
    if (name.empty()) return missing(where + ".name");
    if (!name_space.empty()) {
      function["name"] = shown_name(name_space, name);
      asked.forms[function["name"]] = {name, name_space};
    }
    return show(std::move(function), where);
  }

  Status add_custom(json& tool, const std::string& where, const std::string& name_space) {
    json inner = take_field(tool, "custom");
    json& custom = inner.is_object() ? inner : tool;
    const std::string name = get_string(custom, "name");
    if (name.empty()) return missing(where + (api_ == ToolApi::kChat ? ".custom.name" : ".name"));
    ASSIGN_OR_RETURN(json grammar, grammar_of(get_field(custom, "format"), where));
    std::string text = get_string(custom, "description");
    if (grammar.is_object()) {
      const bool lark = grammar["syntax"] == "lark";
      text += fmt::format("{}The input matches this {}:\n{}", text.empty() ? "" : "\n\n",
                          lark ? "Lark grammar" : "regular expression",
                          grammar["definition"].get_ref<const std::string&>());
    }
    json function = {{"name", shown_name(name_space, name)}};
    if (!text.empty()) function["description"] = std::move(text);
    function["parameters"] = {{"type", "object"},
                              {"properties", {{"input", {{"type", "string"}}}}},
                              {"required", json::array({"input"})},
                              {"additionalProperties", false}};
    function["strict"] = true;
    if (grammar.is_object()) function["grammar"] = std::move(grammar);
    asked.forms[function["name"]] = {name, name_space, true};
    return show(std::move(function), where);
  }

  // Returns the grammar {syntax, definition} of a custom tool's input; null: any text.
  static Result<json> grammar_of(const json& format, const std::string& where) {
    if (get_string(format, "type") != "grammar") return json();
    const json& nested = get_field(format, "grammar");
    const json& grammar = nested.is_object() ? nested : format;
    const std::string syntax = get_string(grammar, "syntax");
    const std::string definition = get_string(grammar, "definition");
    if (!definition.empty() && (syntax == "lark" || syntax == "regex"))
      return json{{"syntax", syntax}, {"definition", definition}};
    return errorf(
        ErrorCode::kInvalidArgument,
        "{}.format: expected a grammar with syntax \"lark\" or \"regex\" and a definition", where);
  }

  Status add_namespace(json& tool, const std::string& where) {
    const std::string name = get_string(tool, "name");
    if (name.empty()) return missing(where + ".name");
    json inner = take_field(tool, "tools");
    if (!inner.is_array()) return missing(where + ".tools");
    for (size_t i = 0; i < inner.size(); ++i)
      RETURN_IF_ERROR(add(inner[i], fmt::format("{}.tools[{}]", where, i), name));
    return {};
  }

  Status leave_out(const json& tool, const std::string& where, const std::string& type) {
    for (const std::string_view known : {"function", "custom", "namespace"}) {
      if (misspells(type, known)) {
        return errorf(ErrorCode::kInvalidArgument, "{}.type: expected \"{}\", got \"{}\"", where,
                      known, type);
      }
    }
    asked.warnings.push_back(
        fmt::format("{}: this server cannot run {}, it is left out", where, type));
    left_out_.insert(type);
    for (const char* field : {"name", "server_label", "mcp_server_name"}) {
      if (std::string name = get_string(tool, field); !name.empty())
        left_out_.insert(std::move(name));
    }
    return {};
  }

  Status show(json function, const std::string& where) {
    const std::string name = function["name"];
    if (asked.functions.is_null()) asked.functions = json::array();
    const bool is_new = names_.insert(name).second;
    if (!is_new && asked.forms.contains(name)) {
      return errorf(ErrorCode::kInvalidArgument,
                    "{}.name: two tools are shown to the model as {}; give one another name", where,
                    name);
    }
    asked.functions.push_back(shown_function(std::move(function)));
    return {};
  }

 public:
  // Returns the shown name of the tool in a choice. Errors: the tool was left out.
  Result<std::string> chosen(const json& choice) const {
    const std::string type = get_string(choice, "type");
    const json& nested = get_field(choice, type == "custom" ? "custom" : "function");
    const std::string name = get_string(nested.is_object() ? nested : choice, "name");
    const bool callable = type == "function" || type == "custom" || type == "tool";
    if (!callable || (left_out_.contains(name) && !names_.contains(name))) {
      return errorf(ErrorCode::kInvalidArgument, "tool_choice: this server cannot run {}",
                    name.empty() ? type : name);
    }
    if (names_.contains(name)) return name;
    if (shown_.empty()) {
      for (const auto& [shown, form] : asked.forms) shown_.emplace(form.name, shown);
    }
    const auto found = shown_.find(name);
    return found == shown_.end() ? name : found->second;
  }

 private:
  ToolApi api_;
  std::set<std::string, std::less<>> names_;     // shown names
  std::set<std::string, std::less<>> left_out_;  // types and names of tools that were left out
  // shown names by the names in CallForm
  mutable std::map<std::string, std::string, std::less<>> shown_;
};

// OpenAI's tool_choice.
Result<ToolChoice> choice_of_openai(const json& choice, const ToolReader& tools) {
  using Kind = ToolChoice::Kind;
  if (choice == "none") return ToolChoice{Kind::kNone};
  if (choice == "required") return ToolChoice{Kind::kRequired};
  if (!choice.is_object()) return ToolChoice{};
  if (get_string(choice, "type") != "allowed_tools") {
    ASSIGN_OR_RETURN(std::string name, tools.chosen(choice));
    return ToolChoice{Kind::kNamed, {std::move(name)}};
  }
  const json& inner = get_field(choice, "allowed_tools");
  const json& allowed = inner.is_object() ? inner : choice;
  const bool must = get_string(allowed, "mode") == "required";
  ToolChoice result{must ? Kind::kRequired : Kind::kAuto};
  std::optional<Error> left_out;
  for (const json& tool : allowed["tools"]) {
    auto name = tools.chosen(tool);
    if (name)
      result.names.push_back(*std::move(name));
    else
      left_out = name.error();
  }
  if (!result.names.empty()) return result;
  if (must && left_out) return tl::unexpected(*std::move(left_out));
  return ToolChoice{Kind::kNone};  // an empty list of names would allow all tools
}

Result<ToolChoice> choice_of_anthropic(const json& choice, const ToolReader& tools) {
  using Kind = ToolChoice::Kind;
  const std::string type = get_string(choice, "type");
  if (type == "none") return ToolChoice{Kind::kNone};
  if (type == "any") return ToolChoice{Kind::kRequired};
  if (type != "tool") return ToolChoice{};
  ASSIGN_OR_RETURN(std::string name, tools.chosen(choice));
  return ToolChoice{Kind::kNamed, {std::move(name)}};
}

}  // namespace

const CallForm* form_of(const CallForms& forms, std::string_view shown) {
  const auto found = forms.find(shown);
  return found == forms.end() ? nullptr : &found->second;
}

Result<AskedTools> take_tools(json& body, ToolApi api) {
  ToolReader reader(api);
  if (json tools = take_field(body, "tools"); tools.is_array()) {
    reader.asked.functions = json::array();
    for (size_t i = 0; i < tools.size(); ++i) {
      if (tools[i].is_null()) continue;  // taken by another reader
      RETURN_IF_ERROR(reader.add(tools[i], fmt::format("tools[{}]", i)));
    }
  }
  const json& choice = get_field(body, "tool_choice");
  ASSIGN_OR_RETURN(reader.asked.choice, api == ToolApi::kMessages
                                            ? choice_of_anthropic(choice, reader)
                                            : choice_of_openai(choice, reader));
  return std::move(reader.asked);
}

std::string shown_name(const std::string& name_space, const std::string& name) {
  if (name_space.empty()) return name;
  return name_space + (name_space.ends_with("__") ? "" : "__") + name;
}

json custom_arguments(std::string input) {
  json arguments = json::object();
  arguments["input"] = std::move(input);
  return arguments;
}

}  // namespace penstock
