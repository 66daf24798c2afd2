#include <nlohmann/json.hpp>

#include "frontend/chat/chat_prompt.h"
#include "frontend/llm_impl.h"

namespace penstock {
namespace {

using Json = nlohmann::ordered_json;

// "" is null.
Result<Json> parse_json(const std::string& text, const char* what, bool array) {
  if (text.empty()) return Json(nullptr);
  Json value = Json::parse(text, nullptr, false);
  if (array ? value.is_array() : value.is_object()) return value;
  return errorf(ErrorCode::kInvalidArgument, "{}: expected a JSON {}", what, array ? "array" : "object");
}

}  // namespace

Result<std::shared_ptr<const ChatPrompter>> LLMImpl::prompter(const std::string& source) {
  const std::lock_guard lock(prompter_mutex_);
  if (last_prompter_ == nullptr || source != last_source_) {
    ASSIGN_OR_RETURN(ChatPrompter opened, ChatPrompter::open(session_->tokenizer(), source));
    last_prompter_ = std::make_shared<const ChatPrompter>(std::move(opened));
    last_source_ = source;
  }
  return last_prompter_;
}

Result<std::string> LLMImpl::render_chat(std::span<const ChatMessage> messages, const ChatOptions& chat) {
  ASSIGN_OR_RETURN(const auto used, prompter(chat.chat_template));
  ASSIGN_OR_RETURN(const Json tools, parse_json(chat.tools_json, "tools", true));
  ASSIGN_OR_RETURN(const Json variables, parse_json(chat.template_kwargs_json, "template_kwargs", false));
  Json list = Json::array();
  for (const ChatMessage& message : messages)
    list.push_back({{"role", message.role}, {"content", message.content}});
  return used->render(std::move(list), tools, variables,
                      {chat.add_generation_prompt, chat.continue_final_message});
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
