#include "server/api/conversations.h"

#include "server/api/api_request.h"

namespace penstock {
namespace {

json field_of(const json& object, const char* name) {
  const auto found = object.find(name);
  return found == object.end() ? json(nullptr) : *found;
}

std::string string_of(const json& object, const char* name) {
  const json value = field_of(object, name);
  return value.is_string() ? value.get<std::string>() : std::string();
}

tl::unexpected<Error> cannot(const std::string& where, const std::string& type) {
  return errorf(ErrorCode::kInvalidArgument, "{}: parts of type {} are not supported", where,
                type.empty() ? "(none)" : type);
}

// Text, or a list of text parts of the given types, as chat completions have it.
Result<json> text_parts(const json& content, std::initializer_list<std::string_view> types,
                        const std::string& where) {
  if (content.is_string() || content.is_null()) return content;
  if (!content.is_array())
    return errorf(ErrorCode::kInvalidArgument, "{}: expected a string or a list of parts", where);
  json parts = json::array();
  for (size_t i = 0; i < content.size(); ++i) {
    const std::string type = content[i].is_object() ? string_of(content[i], "type") : std::string();
    const bool known = std::ranges::find(types, type) != types.end();
    if (!known || !field_of(content[i], "text").is_string())
      return cannot(fmt::format("{}[{}]", where, i), type);
    parts.push_back({{"type", "text"}, {"text", content[i]["text"]}});
  }
  return parts;
}

json tool_call(std::string id, std::string name, json arguments) {
  return {{"id", std::move(id)},
          {"type", "function"},
          {"function", {{"name", std::move(name)}, {"arguments", std::move(arguments)}}}};
}

json function_tool(const json& tool, const char* parameters) {
  json function = {{"name", tool["name"]}};
  if (const json text = field_of(tool, "description"); text.is_string()) function["description"] = text;
  if (const json schema = field_of(tool, parameters); schema.is_object()) function["parameters"] = schema;
  return {{"type", "function"}, {"function", std::move(function)}};
}

// The assistant message that the next part of a reply belongs to.
json& open_reply(json& messages, bool& open) {
  if (!std::exchange(open, true)) messages.push_back({{"role", "assistant"}, {"content", ""}});
  return messages.back();
}

class ResponseInput {
 public:
  // One item of the input list. A reply may come as several items: reasoning, a message, calls.
  Status add(const json& item, const std::string& where) {
    const std::string type = string_of(item, "type");
    if (type == "message" || (type.empty() && item.contains("role"))) return add_message(item, where);
    if (type == "function_call") {
      json& reply = open_reply(messages, open_);
      if (string_of(item, "name").empty())
        return errorf(ErrorCode::kInvalidArgument, "{}.name: missing", where);
      reply["tool_calls"].push_back(
          tool_call(string_of(item, "call_id"), string_of(item, "name"), string_of(item, "arguments")));
      return {};
    }
    if (type == "function_call_output") {
      open_ = false;
      ASSIGN_OR_RETURN(json output, text_parts(field_of(item, "output"), {"input_text", "output_text"},
                                               where + ".output"));
      messages.push_back(
          {{"role", "tool"}, {"tool_call_id", string_of(item, "call_id")}, {"content", std::move(output)}});
      return {};
    }
    if (type == "reasoning") return add_reasoning(item);
    return errorf(ErrorCode::kInvalidArgument, "{}: items of type {} are not supported", where,
                  type.empty() ? "(none)" : type);
  }

  json messages = json::array();

 private:
  Status add_message(const json& item, const std::string& where) {
    const std::string role = string_of(item, "role");
    if (role.empty()) return errorf(ErrorCode::kInvalidArgument, "{}.role: missing", where);
    ASSIGN_OR_RETURN(json content, text_parts(field_of(item, "content"),
                                              {"input_text", "output_text", "text"}, where + ".content"));
    if (role == "assistant" && open_ && messages.back()["content"] == "" &&
        !messages.back().contains("tool_calls")) {
      messages.back()["content"] = std::move(content);
    } else {
      messages.push_back({{"role", role}, {"content", std::move(content)}});
    }
    open_ = role == "assistant";
    return {};
  }

  Status add_reasoning(const json& item) {
    std::string text;
    const json content = field_of(item, "content");
    if (content.is_array()) {
      for (const json& part : content) {
        if (part.is_object()) text += string_of(part, "text");
      }
    }
    open_ = false;
    json& reply = open_reply(messages, open_);
    if (!text.empty()) reply["reasoning_content"] = text;
    return {};
  }

  bool open_ = false;  // the last message is an assistant's that may still grow
};

}  // namespace

Conversation conversation_of_chat(json& body) {
  Conversation conversation;
  conversation.messages = take_field(body, "messages");
  if (get_string(body, "tool_choice", "auto") != "none") conversation.tools = take_field(body, "tools");
  conversation.one_call = !get_bool(body, "parallel_tool_calls", true);
  conversation.variables = take_field(body, "chat_template_kwargs");
  if (conversation.variables.is_null()) conversation.variables = json::object();
  for (const char* name : {"documents", "reasoning_effort"}) {
    json value = take_field(body, name);
    if (!value.is_null()) conversation.variables[name] = std::move(value);
  }
  conversation.chat_template = get_string(body, "chat_template");
  conversation.options.continue_final_message = get_bool(body, "continue_final_message");
  conversation.options.add_generation_prompt =
      get_bool(body, "add_generation_prompt", !conversation.options.continue_final_message);
  conversation.add_special_tokens = get_bool(body, "add_special_tokens");
  conversation.any_length = truncates(body);
  return conversation;
}

Result<Conversation> conversation_of_response(const json& body) {
  Conversation conversation;
  ResponseInput input;
  if (const std::string text = get_string(body, "instructions"); !text.empty()) {
    input.messages.push_back({{"role", "system"}, {"content", text}});
  }
  if (body["input"].is_string()) {
    input.messages.push_back({{"role", "user"}, {"content", body["input"]}});
  } else {
    for (size_t i = 0; i < body["input"].size(); ++i) {
      RETURN_IF_ERROR(input.add(body["input"][i], fmt::format("input[{}]", i)));
    }
  }
  conversation.messages = std::move(input.messages);
  const json tools = field_of(body, "tools");
  if (tools.is_array() && get_string(body, "tool_choice", "auto") != "none") {
    conversation.tools = json::array();
    for (const json& tool : tools) conversation.tools.push_back(function_tool(tool, "parameters"));
  }
  conversation.one_call = !get_bool(body, "parallel_tool_calls", true);
  conversation.variables = field_of(body, "chat_template_kwargs");
  if (conversation.variables.is_null()) conversation.variables = json::object();
  const json& reasoning = get_field(body, "reasoning");
  if (reasoning.is_object() && get_field(reasoning, "effort").is_string()) {
    conversation.variables["reasoning_effort"] = get_string(reasoning, "effort");
  }
  return conversation;
}

namespace {

// What one of Anthropic's messages becomes: results of tools stand in messages of their own.
Status add_blocks(const std::string& role, const json& content, const std::string& where, json& messages) {
  json message = {{"role", role}, {"content", json::array()}};
  for (size_t i = 0; i < content.size(); ++i) {
    const json& block = content[i];
    const std::string type = string_of(block, "type"), here = fmt::format("{}[{}]", where, i);
    if (type == "text" && field_of(block, "text").is_string()) {
      message["content"].push_back({{"type", "text"}, {"text", block["text"]}});
    } else if (type == "thinking" && role == "assistant") {
      message["reasoning_content"] = string_of(message, "reasoning_content") + string_of(block, "thinking");
    } else if (type == "tool_use" && role == "assistant") {
      if (string_of(block, "name").empty())
        return errorf(ErrorCode::kInvalidArgument, "{}.name: missing", here);
      json input = field_of(block, "input");
      if (!input.is_object())
        return errorf(ErrorCode::kInvalidArgument, "{}.input: expected an object", here);
      message["tool_calls"].push_back(
          tool_call(string_of(block, "id"), string_of(block, "name"), std::move(input)));
    } else if (type == "tool_result" && role == "user") {
      ASSIGN_OR_RETURN(json result, text_parts(field_of(block, "content"), {"text"}, here + ".content"));
      if (result.is_null()) result = "";
      messages.push_back({{"role", "tool"},
                          {"tool_call_id", string_of(block, "tool_use_id")},
                          {"content", std::move(result)}});
    } else {
      return cannot(here, type);
    }
  }
  const bool says =
      !message["content"].empty() || message.contains("tool_calls") || message.contains("reasoning_content");
  if (says || content.empty()) messages.push_back(std::move(message));
  return {};
}

}  // namespace

Result<Conversation> conversation_of_messages(const json& body) {
  Conversation conversation;
  conversation.messages = json::array();
  if (const json system = field_of(body, "system"); !system.is_null()) {
    ASSIGN_OR_RETURN(json content, text_parts(system, {"text"}, "system"));
    conversation.messages.push_back({{"role", "system"}, {"content", std::move(content)}});
  }
  for (size_t i = 0; i < body["messages"].size(); ++i) {
    const json& message = body["messages"][i];
    const std::string role = message["role"];
    if (message["content"].is_string()) {
      conversation.messages.push_back({{"role", role}, {"content", message["content"]}});
    } else {
      RETURN_IF_ERROR(add_blocks(role, message["content"], fmt::format("messages[{}].content", i),
                                 conversation.messages));
    }
  }
  const json& choice = get_field(body, "tool_choice");
  const json tools = field_of(body, "tools");
  if (tools.is_array() && (!choice.is_object() || get_string(choice, "type") != "none")) {
    conversation.tools = json::array();
    for (const json& tool : tools) conversation.tools.push_back(function_tool(tool, "input_schema"));
  }
  conversation.one_call = choice.is_object() && get_bool(choice, "disable_parallel_tool_use");
  conversation.variables = field_of(body, "chat_template_kwargs");
  const json& thinking = get_field(body, "thinking");
  if (thinking.is_object()) {
    if (conversation.variables.is_null()) conversation.variables = json::object();
    conversation.variables["enable_thinking"] = get_string(thinking, "type") != "disabled";
  }
  if (const std::string effort = get_string(get_field(body, "output_config"), "effort"); !effort.empty()) {
    if (conversation.variables.is_null()) conversation.variables = json::object();
    conversation.variables["reasoning_effort"] = effort;
  }
  // A last message of the assistant is the beginning of its reply.
  if (conversation.messages.back()["role"] == "assistant" &&
      !conversation.messages.back().contains("tool_calls")) {
    conversation.options.continue_final_message = true;
    conversation.options.add_generation_prompt = false;
  }
  return conversation;
}

}  // namespace penstock
