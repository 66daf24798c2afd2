// Messages to the prompt of a chat, as transformers' apply_chat_template does it.
#pragma once
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>

#include "base/result.h"
#include "frontend/chat_template.h"
#include "text/tokenizer.h"

namespace penstock {

struct ChatPrompt {
  bool add_generation_prompt = true;
  bool continue_final_message = false;  // the prompt ends inside the last message
};

class ChatPrompter {
 public:
  // source: a template that replaces the model's, or "". The tokenizer outlives this. Error: kInvalidArgument when there
  // is no template or it cannot be parsed.
  static Result<ChatPrompter> open(const Tokenizer& tokenizer, const std::string& source = {});

  // messages: OpenAI's; text parts of a content list are joined by line ends, arguments of tool calls are parsed.
  // tools: an array or null. variables: an object of further template variables or null. Thread-safe.
  Result<std::string> render(const nlohmann::ordered_json& messages, const nlohmann::ordered_json& tools,
                             const nlohmann::ordered_json& variables, const ChatPrompt& prompt = {}) const;

 private:
  ChatPrompter(const Tokenizer& tokenizer, ChatTemplate chat, std::optional<ChatTemplate> tool_use)
      : tokenizer_(&tokenizer), default_(std::move(chat)), tool_use_(std::move(tool_use)) {}
  const Tokenizer* tokenizer_;
  ChatTemplate default_;
  std::optional<ChatTemplate> tool_use_;  // some models have a second template for calls with tools
};

}  // namespace penstock
