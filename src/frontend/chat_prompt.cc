#include "frontend/chat_prompt.h"

#include <nlohmann/json.hpp>

namespace penstock {
namespace {

using json = nlohmann::ordered_json;

Status check_messages(const json& messages) {
  if (!messages.is_array() || messages.empty()) {
    return errorf(ErrorCode::kInvalidArgument, "messages: expected a list with at least one message");
  }
  for (size_t i = 0; i < messages.size(); ++i) {
    if (!messages[i].is_object() || !messages[i].contains("role") || !messages[i]["role"].is_string()) {
      return errorf(ErrorCode::kInvalidArgument, "messages[{}]: expected an object with a role", i);
    }
  }
  return {};
}

// [{type: text, text: a}, {type: text, text: b}] -> "a\nb"
Result<json> flat_content(const json& content, size_t index) {
  if (!content.is_array()) {
    if (content.is_string() || content.is_null()) return content;
    return errorf(ErrorCode::kInvalidArgument, "messages[{}].content: expected a string or a list of parts",
                  index);
  }
  std::string text;
  for (const json& part : content) {
    const bool is_text = part.is_object() && part.contains("text") && part["text"].is_string();
    if (!is_text && !part.is_string()) {
      return errorf(ErrorCode::kInvalidArgument, "messages[{}].content: only text parts are supported",
                    index);
    }
    if (!text.empty()) text += "\n";
    text += is_text ? part["text"].get<std::string>() : part.get<std::string>();
  }
  return json(text);
}

// Templates want the arguments of a call as an object; the API has them as a string of JSON.
void parse_arguments(json& message) {
  const auto calls = message.find("tool_calls");
  if (calls == message.end() || !calls->is_array()) return;
  for (json& call : *calls) {
    if (!call.is_object() || !call.contains("function") || !call["function"].is_object()) continue;
    json& function = call["function"];
    const auto arguments = function.find("arguments");
    if (arguments == function.end() || !arguments->is_string()) continue;
    json parsed = json::parse(arguments->get<std::string>(), nullptr, false);
    if (parsed.is_object()) *arguments = std::move(parsed);
  }
}

Result<json> normalized(const json& messages) {
  RETURN_IF_ERROR(check_messages(messages));
  json result = messages;
  for (size_t i = 0; i < result.size(); ++i) {
    json& message = result[i];
    if (message.contains("content")) {
      ASSIGN_OR_RETURN(message["content"], flat_content(message["content"], i));
    }
    if (message.contains("tool_calls") && message["tool_calls"].is_null()) message.erase("tool_calls");
    parse_arguments(message);
  }
  return result;
}

// Ends the text right after the last message's content, so that the model goes on from there. Templates may trim it.
Status cut_after_content(std::string& text, const std::string& content) {
  const size_t last = content.find_last_not_of(" \t\r\n");
  const std::string trimmed = last == std::string::npos ? std::string() : content.substr(0, last + 1);
  const size_t at = text.rfind(trimmed);
  if (trimmed.empty() || at == std::string::npos) {
    return errorf(ErrorCode::kInvalidArgument,
                  "continue_final_message: the template does not render the last message's content as it is");
  }
  const bool whole = text.compare(at, content.size(), content) == 0;
  text.resize(at + (whole ? content.size() : trimmed.size()));
  return {};
}

}  // namespace

Result<ChatPrompter> ChatPrompter::open(const Tokenizer& tokenizer, const std::string& source) {
  const std::string& text = source.empty() ? tokenizer.chat_template() : source;
  if (text.empty()) return errorf(ErrorCode::kInvalidArgument, "the model has no chat template");
  ASSIGN_OR_RETURN(ChatTemplate chat, ChatTemplate::parse(text));
  std::optional<ChatTemplate> tool_use;
  const auto found = tokenizer.chat_templates().find("tool_use");
  if (source.empty() && found != tokenizer.chat_templates().end()) {
    ASSIGN_OR_RETURN(tool_use, ChatTemplate::parse(found->second));
  }
  return ChatPrompter(tokenizer, std::move(chat), std::move(tool_use));
}

Result<std::string> ChatPrompter::render(const json& messages, const json& tools, const json& variables,
                                         const ChatPrompt& prompt) const {
  if (prompt.continue_final_message && prompt.add_generation_prompt) {
    return errorf(ErrorCode::kInvalidArgument,
                  "continue_final_message and add_generation_prompt exclude each other");
  }
  json context = json::object();
  ASSIGN_OR_RETURN(context["messages"], normalized(messages));
  context["tools"] = tools.is_array() && !tools.empty() ? tools : json(nullptr);
  context["documents"] = nullptr;
  context["add_generation_prompt"] = prompt.add_generation_prompt;
  const std::pair<const char*, TokenId> specials[] = {{"bos_token", tokenizer_->bos()},
                                                      {"eos_token", tokenizer_->eos()},
                                                      {"unk_token", tokenizer_->unk()},
                                                      {"pad_token", tokenizer_->pad()}};
  for (const auto& [name, id] : specials) {
    if (id != kNoToken) context[name] = std::string(tokenizer_->piece(id));
  }
  if (variables.is_object()) context.update(variables);
  const ChatTemplate& chosen = tool_use_ && !context["tools"].is_null() ? *tool_use_ : default_;
  ASSIGN_OR_RETURN(std::string text, chosen.render(context));
  if (!prompt.continue_final_message) return text;
  const json& last = context["messages"].back();
  const bool has_text = last.contains("content") && last["content"].is_string();
  RETURN_IF_ERROR(cut_after_content(text, has_text ? last["content"].get<std::string>() : std::string()));
  return text;
}

}  // namespace penstock
