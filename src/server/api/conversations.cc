#include "server/api/conversations.h"

#include "server/api/api_request.h"
#include "server/api/compaction.h"
#include "server/api/mcp_items.h"

namespace penstock {
namespace {

std::string take_string(json& object, const char* name) {
  json value = take_field(object, name);
  return value.is_string() ? std::move(value.get_ref<std::string&>()) : std::string();
}

tl::unexpected<Error> cannot(const std::string& where, const std::string& type) {
  return errorf(ErrorCode::kInvalidArgument, "{}: parts of type {} are not supported", where,
                type.empty() ? "(none)" : type);
}

// {type: text, text} of a part or block that has one, which is taken.
json text_part_of(json& part) {
  json result = {{"type", "text"}};
  result["text"] = take_field(part, "text");
  return result;
}

// With room for calls and reasoning.
json message_of(const std::string& role, json content) {
  json result = {{"role", role}};
  reserve_fields(result, 4);
  result["content"] = std::move(content);
  return result;
}

json tool_message(std::string call_id, json content) {
  json result = {{"role", "tool"}, {"tool_call_id", std::move(call_id)}};
  result["content"] = std::move(content);
  return result;
}

// Text, or a list of text parts of the given types, as chat completions have it.
Result<json> text_parts(json content, std::initializer_list<std::string_view> types,
                        const std::string& where) {
  if (content.is_string() || content.is_null()) return content;
  if (!content.is_array())
    return errorf(ErrorCode::kInvalidArgument, "{}: expected a string or a list of parts", where);
  json parts = json::array();
  for (size_t i = 0; i < content.size(); ++i) {
    const std::string type = get_string(content[i], "type");
    const bool known = std::ranges::find(types, type) != types.end();
    if (!known || !get_field(content[i], "text").is_string())
      return cannot(fmt::format("{}[{}]", where, i), type);
    parts.push_back(text_part_of(content[i]));
  }
  return parts;
}

json tool_call(std::string id, std::string name, json arguments) {
  json function = {{"name", std::move(name)}};
  function["arguments"] = std::move(arguments);
  json result = {{"id", std::move(id)}, {"type", "function"}};
  result["function"] = std::move(function);
  return result;
}

// strict: where the tool does not say it.
json function_tool(json& tool, const char* parameters, bool strict) {
  json function = {{"name", take_field(tool, "name")}};
  if (json text = take_field(tool, "description"); text.is_string())
    function["description"] = std::move(text);
  if (json schema = take_field(tool, parameters); schema.is_object())
    function["parameters"] = std::move(schema);
  if (get_bool(tool, "strict", strict)) function["strict"] = true;
  json result = {{"type", "function"}};
  result["function"] = std::move(function);
  return result;
}

json function_tools(json& body, const char* parameters, bool strict) {
  json tools = take_field(body, "tools");
  if (!tools.is_array()) return nullptr;
  for (json& tool : tools) tool = function_tool(tool, parameters, strict);
  return tools;
}

// The name of the function that {type: function, …} means, in the form of chats or of responses.
std::string function_name(const json& choice) {
  const json& function = get_field(choice, "function");
  return get_string(function.is_object() ? function : choice, "name");
}

// OpenAI's tool_choice.
ToolChoice choice_of_openai(const json& choice) {
  using Kind = ToolChoice::Kind;
  if (choice == "none") return {Kind::kNone};
  if (choice == "required") return {Kind::kRequired};
  if (!choice.is_object()) return {};
  if (get_string(choice, "type") == "function") return {Kind::kNamed, {function_name(choice)}};
  const json& inner = get_field(choice, "allowed_tools");
  const json& allowed = inner.is_object() ? inner : choice;
  ToolChoice result{get_string(allowed, "mode") == "required" ? Kind::kRequired : Kind::kAuto};
  for (const json& tool : allowed["tools"]) result.names.push_back(function_name(tool));
  return result;
}

ToolChoice choice_of_anthropic(const json& choice) {
  using Kind = ToolChoice::Kind;
  const std::string type = get_string(choice, "type");
  if (type == "none") return {Kind::kNone};
  if (type == "any") return {Kind::kRequired};
  if (type == "tool") return {Kind::kNamed, {get_string(choice, "name")}};
  return {};
}

// An error of the form of the reply in the request's own words.
tl::unexpected<Error> renamed(Error error, const std::string& field) {
  constexpr std::string_view kOwn = "structured_outputs";
  if (field.empty() || !error.message.starts_with(kOwn)) return tl::unexpected(std::move(error));
  const size_t colon = error.message.find(": ");
  if (colon != std::string::npos) error.message = field + error.message.substr(colon);
  return tl::unexpected(std::move(error));
}

// The template's variables that a body gives, as an object.
json take_variables(json& body) {
  json variables = take_field(body, "chat_template_kwargs");
  if (variables.is_null()) variables = json::object();
  reserve_fields(variables, variables.size() + 3);
  return variables;
}

// Templates that ask whether the model shall reason are told that it shall, unless the request says
// otherwise, as llama.cpp's server has it.
void add_thinking(json& variables) {
  if (variables.contains("enable_thinking")) return;
  variables["enable_thinking"] = get_string(variables, "reasoning_effort") != "none";
}

// The assistant message that the next part of a reply belongs to.
json& open_reply(json& messages, bool& open) {
  if (!std::exchange(open, true)) messages.push_back(message_of("assistant", ""));
  return messages.back();
}

class ResponseInput {
 public:
  // One item of the input list. A reply may come as several items: reasoning, a message, calls.
  Status add(json& item, const std::string& where) {
    const std::string type = get_string(item, "type");
    if (type == "message" || (type.empty() && item.contains("role")))
      return add_message(item, where);
    if (type == "function_call") {
      json& reply = open_reply(messages, open_);
      if (get_string(item, "name").empty())
        return errorf(ErrorCode::kInvalidArgument, "{}.name: missing", where);
      reply["tool_calls"].push_back(tool_call(
          take_string(item, "call_id"), take_string(item, "name"), take_string(item, "arguments")));
      return {};
    }
    if (type == "function_call_output") {
      open_ = false;
      ASSIGN_OR_RETURN(json output, text_parts(take_field(item, "output"),
                                               {"input_text", "output_text"}, where + ".output"));
      messages.push_back(tool_message(take_string(item, "call_id"), std::move(output)));
      return {};
    }
    if (type == "reasoning") return add_reasoning(item);
    if (is_mcp_item(type)) {
      add_mcp_item(item, messages, open_);
      return {};
    }
    if (type == "compaction") {
      open_ = false;
      ASSIGN_OR_RETURN(std::string summary, text_of_compaction(item, where));
      messages.push_back(message_of("user", std::move(summary)));
      return {};
    }
    return errorf(ErrorCode::kInvalidArgument, "{}: items of type {} are not supported", where,
                  type.empty() ? "(none)" : type);
  }

  json messages = json::array();

 private:
  Status add_message(json& item, const std::string& where) {
    const std::string role = get_string(item, "role");
    if (role.empty()) return errorf(ErrorCode::kInvalidArgument, "{}.role: missing", where);
    ASSIGN_OR_RETURN(json content,
                     text_parts(take_field(item, "content"), {"input_text", "output_text", "text"},
                                where + ".content"));
    if (role == "assistant" && open_ && messages.back()["content"] == "" &&
        !messages.back().contains("tool_calls")) {
      messages.back()["content"] = std::move(content);
    } else {
      messages.push_back(message_of(role, std::move(content)));
    }
    open_ = role == "assistant";
    return {};
  }

  Status add_reasoning(const json& item) {
    std::string text;
    if (const json& content = get_field(item, "content"); content.is_array()) {
      for (const json& part : content) text += get_string(part, "text");
    }
    open_ = false;
    json& reply = open_reply(messages, open_);
    if (!text.empty()) reply["reasoning_content"] = std::move(text);
    return {};
  }

  bool open_ = false;  // the last message is an assistant's that may still grow
};

}  // namespace

Conversation conversation_of_chat(json& body) {
  Conversation conversation;
  conversation.messages = take_field(body, "messages");
  conversation.tools = take_field(body, "tools");
  conversation.tool_choice = choice_of_openai(get_field(body, "tool_choice"));
  conversation.one_call = !get_bool(body, "parallel_tool_calls", true);
  conversation.variables = take_variables(body);
  for (const char* name : {"documents", "reasoning_effort"}) {
    json value = take_field(body, name);
    if (!value.is_null()) conversation.variables[name] = std::move(value);
  }
  add_thinking(conversation.variables);
  conversation.chat_template = get_string(body, "chat_template");
  conversation.options.continue_final_message = get_bool(body, "continue_final_message");
  conversation.options.add_generation_prompt =
      get_bool(body, "add_generation_prompt", !conversation.options.continue_final_message);
  conversation.add_special_tokens = get_bool(body, "add_special_tokens");
  conversation.any_length = truncates(body);
  return conversation;
}

Status add_response_items(json items, json& messages) {
  ResponseInput input;
  input.messages = std::move(messages);
  for (json& item : items) RETURN_IF_ERROR(input.add(item, "output"));
  messages = std::move(input.messages);
  return {};
}

Result<Conversation> conversation_of_response(json& body, size_t n_earlier) {
  Conversation conversation;
  ResponseInput input;
  if (std::string text = take_string(body, "instructions"); !text.empty()) {
    input.messages.push_back(message_of("system", std::move(text)));
  }
  if (body["input"].is_string()) {
    input.messages.push_back(message_of("user", take_field(body, "input")));
  } else {
    for (size_t i = 0; i < body["input"].size(); ++i) {
      RETURN_IF_ERROR(
          input.add(body["input"][i], fmt::format("input[{}]", i - std::min(i, n_earlier))));
    }
  }
  conversation.messages = std::move(input.messages);
  conversation.tools = function_tools(body, "parameters", true);
  conversation.tool_choice = choice_of_openai(get_field(body, "tool_choice"));
  conversation.one_call = !get_bool(body, "parallel_tool_calls", true);
  conversation.variables = take_variables(body);
  const json& reasoning = get_field(body, "reasoning");
  if (reasoning.is_object() && get_field(reasoning, "effort").is_string()) {
    conversation.variables["reasoning_effort"] = get_string(reasoning, "effort");
  }
  add_thinking(conversation.variables);
  return conversation;
}

namespace {

// What one of Anthropic's messages becomes: results of tools stand in messages of their own.
Status add_blocks(const std::string& role, json& content, const std::string& where,
                  json& messages) {
  json message = message_of(role, json::array());
  for (size_t i = 0; i < content.size(); ++i) {
    json& block = content[i];
    const std::string type = get_string(block, "type"), here = fmt::format("{}[{}]", where, i);
    if (type == "text" && get_field(block, "text").is_string()) {
      message["content"].push_back(text_part_of(block));
    } else if (type == "thinking" && role == "assistant") {
      message["reasoning_content"] =
          take_string(message, "reasoning_content") + take_string(block, "thinking");
    } else if (type == "tool_use" && role == "assistant") {
      if (get_string(block, "name").empty())
        return errorf(ErrorCode::kInvalidArgument, "{}.name: missing", here);
      json input = take_field(block, "input");
      if (!input.is_object())
        return errorf(ErrorCode::kInvalidArgument, "{}.input: expected an object", here);
      message["tool_calls"].push_back(
          tool_call(take_string(block, "id"), take_string(block, "name"), std::move(input)));
    } else if (type == "tool_result" && role == "user") {
      ASSIGN_OR_RETURN(json result,
                       text_parts(take_field(block, "content"), {"text"}, here + ".content"));
      if (result.is_null()) result = "";
      messages.push_back(tool_message(take_string(block, "tool_use_id"), std::move(result)));
    } else {
      return cannot(here, type);
    }
  }
  const bool says = !message["content"].empty() || message.contains("tool_calls") ||
                    message.contains("reasoning_content");
  if (says || content.empty()) messages.push_back(std::move(message));
  return {};
}

}  // namespace

Result<Conversation> conversation_of_messages(json& body) {
  Conversation conversation;
  conversation.messages = json::array();
  if (json system = take_field(body, "system"); !system.is_null()) {
    ASSIGN_OR_RETURN(json content, text_parts(std::move(system), {"text"}, "system"));
    conversation.messages.push_back(message_of("system", std::move(content)));
  }
  for (size_t i = 0; i < body["messages"].size(); ++i) {
    json& message = body["messages"][i];
    const std::string role = message["role"];
    if (message["content"].is_string()) {
      conversation.messages.push_back(message_of(role, take_field(message, "content")));
    } else {
      RETURN_IF_ERROR(add_blocks(role, message["content"], fmt::format("messages[{}].content", i),
                                 conversation.messages));
    }
  }
  const json& choice = get_field(body, "tool_choice");
  conversation.tools = function_tools(body, "input_schema", false);
  conversation.tool_choice = choice_of_anthropic(choice);
  conversation.one_call = choice.is_object() && get_bool(choice, "disable_parallel_tool_use");
  conversation.variables = take_variables(body);
  const json& thinking = get_field(body, "thinking");
  if (thinking.is_object()) {
    conversation.variables["enable_thinking"] = get_string(thinking, "type") != "disabled";
  }
  if (const std::string effort = get_string(get_field(body, "output_config"), "effort");
      !effort.empty()) {
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

namespace {

// The text of a message in full; "" where it has other parts too, or nobody's words in it.
std::string user_text(const json& message) {
  if (get_string(message, "role") != "user") return {};
  const json& content = get_field(message, "content");
  if (content.is_string()) return content.get<std::string>();
  std::string text;
  for (const json& part : content) {
    if (get_string(part, "type") != "text") return {};
    text += get_string(part, "text");
  }
  return text;
}

ChatQuestion question_of(const Conversation& conversation) {
  ChatQuestion question;
  const json& messages = conversation.messages;
  if (messages.empty()) return question;
  question.text = user_text(messages.back());
  json rest = json::array();
  for (size_t i = 0; i + 1 < messages.size(); ++i) rest.push_back(messages[i]);
  rest.push_back(get_string(messages.back(), "name"));
  rest.push_back(conversation.variables);
  rest.push_back(conversation.chat_template);
  rest.push_back({conversation.options.add_generation_prompt,
                  conversation.options.continue_final_message, conversation.add_special_tokens});
  question.context = dump(rest);
  question.tools = !conversation.tools.empty();
  return question;
}

}  // namespace

Result<ChatTask> read_task(Conversation conversation, GenerationCall& call) {
  conversation.reply = std::exchange(call.params.structured_outputs, std::nullopt);
  if (call.question) call.question = question_of(conversation);
  auto task = call.model->chat().read(std::move(conversation));
  if (!task) return renamed(std::move(task).error(), call.structured_field);
  call.params.structured_outputs = std::move(task->constraint);
  return task;
}

}  // namespace penstock
