#include "server/api/conversations.h"

#include "base/ordered_json.h"
#include "base/work.h"
#include "server/api/api_request.h"
#include "server/api/conversation_parts.h"
#include "server/api/message_blocks.h"
#include "server/api/response_items.h"

namespace penstock {
namespace {

// Replaces structured_outputs in an error message by the request's field name.
tl::unexpected<Error> renamed(Error error, const std::string& field) {
  constexpr std::string_view kOwn = "structured_outputs";
  if (field.empty() || !error.message.starts_with(kOwn)) return tl::unexpected(std::move(error));
  const size_t colon = error.message.find(": ");
  if (colon != std::string::npos) error.message = field + error.message.substr(colon);
  return tl::unexpected(std::move(error));
}

// Moves the template variables out of a body, as an object.
json take_variables(json& body) {
  json variables = take_field(body, "chat_template_kwargs");
  if (variables.is_null()) variables = json::object();
  reserve_members(variables, variables.size() + 3);
  return variables;
}

// Sets enable_thinking to true unless the request sets it, as llama.cpp's server does: some
// templates require the variable.
void add_thinking(json& variables) {
  if (variables.contains("enable_thinking")) return;
  variables["enable_thinking"] = get_string(variables, "reasoning_effort") != "none";
}

void add_warnings(std::vector<std::string> warnings, AskedConversation& conversation) {
  for (std::string& warning : warnings) conversation.warnings.push_back(std::move(warning));
}

// Adds the tools, their choice and the forms of their calls.
Status add_tools(json& body, ToolApi api, AskedConversation& conversation) {
  ASSIGN_OR_RETURN(AskedTools asked, take_tools(body, api));
  conversation.tools = std::move(asked.functions);
  conversation.tool_choice = std::move(asked.choice);
  conversation.forms = std::move(asked.forms);
  add_warnings(std::move(asked.warnings), conversation);
  return {};
}

// Converts a message of the history to the current form: calls of custom tools, and function_call
// of the older API with its result; a refusal becomes the message's text.
Status put_in_todays_form(json& message, size_t index) {
  if (message.contains("tool_calls") && message["tool_calls"].is_array()) {
    json& calls = message["tool_calls"];
    for (size_t i = 0; i < calls.size(); ++i) {
      json& call = calls[i];
      json custom = take_field(call, "custom");
      if (!custom.is_object() && !get_field(call, "function").is_object()) {
        return errorf(ErrorCode::kInvalidArgument, "messages[{}].tool_calls[{}].function: missing",
                      index, i);
      }
      if (!custom.is_object()) continue;
      call = tool_call(take_string(call, "id"), take_string(custom, "name"),
                       custom_arguments(take_string(custom, "input")));
    }
  }
  if (json call = take_field(message, "function_call"); call.is_object()) {
    if (!get_field(message, "tool_calls").is_null()) {
      return errorf(ErrorCode::kInvalidArgument,
                    "messages[{}].function_call: cannot stand beside tool_calls", index);
    }
    const std::string name = get_string(call, "name");
    json calls = json::array({tool_call("call_" + name, name, take_field(call, "arguments"))});
    message["tool_calls"] = std::move(calls);
  }
  if (get_string(message, "role") == "function") {
    message["role"] = "tool";
    message["tool_call_id"] = "call_" + get_string(message, "name");
  }
  json refusal = take_field(message, "refusal");
  if (!refusal.is_string() || refusal == "") return {};
  const json& content = get_field(message, "content");
  if (!content.is_null() && content != "" && content != json::array()) {
    return errorf(ErrorCode::kInvalidArgument, "messages[{}].refusal: cannot stand beside content",
                  index);
  }
  message["content"] = std::move(refusal);
  return {};
}

// Sets the template variables for reasoning and its effort.
void add_reasoning(json& body, json& variables) {
  const json& thinking = get_field(body, "thinking");
  if (thinking.is_object())
    variables["enable_thinking"] = get_string(thinking, "type") != "disabled";
  const json& reasoning = get_field(body, "reasoning");
  if (get_field(reasoning, "enabled").is_boolean())
    variables["enable_thinking"] = get_bool(reasoning, "enabled");
  if (const std::string effort = get_string(reasoning, "effort"); !effort.empty())
    variables["reasoning_effort"] = effort;
}

}  // namespace

Result<AskedConversation> conversation_of_chat(json& body) {
  AskedConversation conversation;
  conversation.messages = take_field(body, "messages");
  for (size_t i = 0; i < conversation.messages.size(); ++i)
    RETURN_IF_ERROR(put_in_todays_form(conversation.messages[i], i));
  RETURN_IF_ERROR(add_tools(body, ToolApi::kChat, conversation));
  conversation.one_call = !get_bool(body, "parallel_tool_calls", true);
  conversation.variables = take_variables(body);
  add_reasoning(body, conversation.variables);
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
  ResponseItems input;
  input.messages = std::move(messages);
  for (json& item : items) RETURN_IF_ERROR(input.add(item, "output"));
  messages = std::move(input.messages);
  return {};
}

Result<AskedConversation> conversation_of_response(json& body, size_t n_earlier) {
  AskedConversation conversation;
  ResponseItems input;
  if (std::string text = take_string(body, "instructions"); !text.empty()) {
    input.messages.push_back(message_of("system", std::move(text)));
  }
  if (body["input"].is_string()) {
    input.messages.push_back(message_of("user", take_field(body, "input")));
  } else {
    for (size_t i = 0; i < body["input"].size(); ++i) {
      give_way();
      RETURN_IF_ERROR(
          input.add(body["input"][i], fmt::format("input[{}]", i - std::min(i, n_earlier))));
    }
  }
  conversation.messages = std::move(input.messages);
  add_warnings(std::move(input.warnings), conversation);
  RETURN_IF_ERROR(add_tools(body, ToolApi::kResponses, conversation));
  conversation.one_call = !get_bool(body, "parallel_tool_calls", true);
  conversation.variables = take_variables(body);
  const json& reasoning = get_field(body, "reasoning");
  if (reasoning.is_object() && get_field(reasoning, "effort").is_string()) {
    conversation.variables["reasoning_effort"] = get_string(reasoning, "effort");
  }
  add_thinking(conversation.variables);
  return conversation;
}

Result<AskedConversation> conversation_of_messages(json& body) {
  AskedConversation conversation;
  MessageBlocks blocks;
  if (json system = take_field(body, "system"); !system.is_null()) {
    ASSIGN_OR_RETURN(json content, text_parts(std::move(system), {"text"}, "system"));
    blocks.messages.push_back(message_of("system", std::move(content)));
  }
  for (size_t i = 0; i < body["messages"].size(); ++i) {
    json& message = body["messages"][i];
    const std::string role = message["role"];
    if (message["content"].is_string()) {
      blocks.messages.push_back(message_of(role, take_field(message, "content")));
    } else {
      RETURN_IF_ERROR(blocks.add(role, message["content"], fmt::format("messages[{}].content", i)));
    }
  }
  conversation.messages = std::move(blocks.messages);
  add_warnings(std::move(blocks.warnings), conversation);
  RETURN_IF_ERROR(add_tools(body, ToolApi::kMessages, conversation));
  const json& choice = get_field(body, "tool_choice");
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
  // A final assistant message is continued.
  if (conversation.messages.back()["role"] == "assistant" &&
      !conversation.messages.back().contains("tool_calls")) {
    conversation.options.continue_final_message = true;
    conversation.options.add_generation_prompt = false;
  }
  return conversation;
}

namespace {

// Returns the complete text of a user message; "": another role, or parts that are not text.
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
  const bool explains = call.model->config().prefix_history > 0;
  const MessageTexts texts = explains ? MessageTexts::of(conversation.messages) : MessageTexts();
  auto task = call.model->chat().read(std::move(conversation));
  if (!task) return renamed(std::move(task).error(), call.structured_field);
  if (task->one_call) call.ends_by = "one call";
  call.params.structured_outputs = std::move(task->constraint);
  if (!task->pictures.empty()) call.question = std::nullopt;
  call.pictures.push_back(std::move(task->pictures));
  if (explains)
    call.messages.push_back(texts.places_in(call.model->session().tokenizer(), task->prompt));
  return task;
}

}  // namespace penstock
