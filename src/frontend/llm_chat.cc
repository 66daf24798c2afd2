#include <nlohmann/json.hpp>

#include "frontend/chat_template.h"
#include "frontend/llm_impl.h"

namespace penstock {
namespace {

using Json = nlohmann::ordered_json;

Result<Json> parse_json(const std::string& text, const char* what, bool array) {
  Json value = Json::parse(text, nullptr, false);
  if (value.is_discarded() || value.is_array() != array || value.is_object() == array) {
    return errorf(ErrorCode::kInvalidArgument, "{}: expected a JSON {}", what, array ? "array" : "object");
  }
  return value;
}

std::string name_of(const Tokenizer& tokenizer, TokenId token) {
  return token == kNoToken ? std::string() : std::string(tokenizer.piece(token));
}

// Ends the text right after the last message's content, so that the model goes on from there.
Status cut_after_content(std::string& text, const std::string& content) {
  const size_t last = content.find_last_not_of(" \t\r\n");
  const std::string trimmed = last == std::string::npos ? std::string() : content.substr(0, last + 1);
  const size_t at = text.rfind(trimmed);
  if (trimmed.empty() || at == std::string::npos) {
    return errorf(ErrorCode::kInvalidArgument,
                  "continue_final_message: the template does not render the last message's content as it is");
  }
  text.resize(std::min(text.size(), text.compare(at, content.size(), content) == 0 ? at + content.size()
                                                                                   : at + trimmed.size()));
  return {};
}

}  // namespace

Result<std::string> LLMImpl::render_chat(std::span<const ChatMessage> messages, const ChatOptions& chat) {
  const Tokenizer& tokenizer = session_->tokenizer();
  const std::string& source = chat.chat_template.empty() ? tokenizer.chat_template() : chat.chat_template;
  if (source.empty()) {
    return errorf(ErrorCode::kInvalidArgument,
                  "chat: the model has no chat template; give one with chat_template");
  }
  if (messages.empty())
    return errorf(ErrorCode::kInvalidArgument, "chat: expected at least one message, got none");
  if (chat.continue_final_message && chat.add_generation_prompt) {
    return errorf(
        ErrorCode::kInvalidArgument,
        "continue_final_message and add_generation_prompt exclude each other: expected at most one");
  }
  ASSIGN_OR_RETURN(const ChatTemplate parsed, ChatTemplate::parse(source));

  Json context = Json::object();
  if (!chat.template_kwargs_json.empty()) {
    ASSIGN_OR_RETURN(context, parse_json(chat.template_kwargs_json, "chat_template_kwargs", false));
  }
  Json& list = context["messages"] = Json::array();
  for (const ChatMessage& message : messages)
    list.push_back({{"role", message.role}, {"content", message.content}});
  if (!chat.tools_json.empty()) {
    ASSIGN_OR_RETURN(context["tools"], parse_json(chat.tools_json, "tools", true));
  } else {
    context["tools"] = nullptr;
  }
  context["documents"] = nullptr;
  context["add_generation_prompt"] = chat.add_generation_prompt;
  context["bos_token"] = name_of(tokenizer, tokenizer.bos());
  context["eos_token"] = name_of(tokenizer, tokenizer.eos());
  context["pad_token"] = name_of(tokenizer, tokenizer.pad());
  context["unk_token"] = name_of(tokenizer, tokenizer.unk());
  ASSIGN_OR_RETURN(std::string text, parsed.render(context));
  if (chat.continue_final_message) RETURN_IF_ERROR(cut_after_content(text, messages.back().content));
  return text;
}

Result<RequestOutput> LLMImpl::chat(std::span<const ChatMessage> messages, const SamplingParams& params,
                                    const GenerateOptions& options, const ChatOptions& chat) {
  ASSIGN_OR_RETURN(const std::string prompt, render_chat(messages, chat));
  GenerateOptions as_is = options;
  as_is.add_bos = false;  // the template writes it
  as_is.parse_special = true;
  return generate(prompt, params, as_is);
}

}  // namespace penstock
