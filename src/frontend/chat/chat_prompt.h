// Renders messages to the prompt of a chat, as transformers' apply_chat_template does.
#pragma once
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "base/result.h"
#include "frontend/chat/chat_template.h"
#include "frontend/chat/message_forms.h"
#include "text/tokenizer.h"

namespace penstock {

struct ChatPrompt {
  bool add_generation_prompt = true;
  bool continue_final_message = false;  // the prompt ends inside the last message
};

class ChatPrompter {
 public:
  // source: a template that replaces the model's, or "". REQUIRES: the tokenizer outlives the
  // prompter. Errors: kInvalidArgument, when there is no template or it cannot be parsed.
  static Result<ChatPrompter> open(const Tokenizer& tokenizer, const std::string& source = {});

  // Returns the prompt. messages: OpenAI's messages in any of their forms, which are converted to
  // those that the template can use (message_forms.h). tools: an array or null. variables: an
  // object of further template variables or null. Thread-safe.
  Result<std::string> render(nlohmann::ordered_json messages, nlohmann::ordered_json tools,
                             nlohmann::ordered_json variables, const ChatPrompt& prompt = {}) const;

  // Those of the template that a conversation with or without tools uses.
  const MessageForms& forms(bool with_tools) const {
    return tool_use_ && with_tools ? tool_use_->forms : default_.forms;
  }

 private:
  struct Template {
    ChatTemplate chat;
    MessageForms forms;
  };
  static Result<Template> open_template(const nlohmann::ordered_json& specials,
                                        const std::string& source);
  ChatPrompter(nlohmann::ordered_json specials, Template chat, std::optional<Template> tool_use)
      : specials_(std::move(specials)), default_(std::move(chat)), tool_use_(std::move(tool_use)) {}

  // texts of special tokens, which are template variables
  nlohmann::ordered_json specials_;
  Template default_;
  // the second template that some models have for conversations with tools
  std::optional<Template> tool_use_;
};

}  // namespace penstock
