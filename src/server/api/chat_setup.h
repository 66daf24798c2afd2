// How this server's model chats: its template and the parsers of its replies. Shared by chat completions,
// responses, messages and tokenize.
#pragma once
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "frontend/chat/chat_prompt.h"
#include "frontend/chat/reply_parser.h"
#include "frontend/session.h"
#include "server/api/generation.h"
#include "server/server.h"

namespace penstock {

// One call's conversation, in chat completions' terms.
struct Conversation {
  nlohmann::ordered_json messages;
  nlohmann::ordered_json tools = nullptr;      // an array or null
  nlohmann::ordered_json variables = nullptr;  // further variables of the template: an object or null
  std::string chat_template;                   // instead of the server's; empty = the server's
  ChatPrompt options;
  bool add_special_tokens = false;  // templates write their own
  bool one_call = false;            // the reply ends after its first tool call
  bool any_length = false;          // the prompt may be longer than the context
};

// From the body of a chat completion (checked before), whose messages, tools and template variables it takes.
Conversation take_conversation(nlohmann::ordered_json& body);

struct ChatTask {
  std::vector<TokenId> prompt;
  ReplyParserOptions parsers;
  bool one_call = false;

  // Whether the reply is taken apart at all: only then special tokens that mark parts stay in the text.
  bool parses() const { return !parsers.tools.empty() || !parsers.reasoning.empty(); }
};

class ChatSetup {
 public:
  // The session outlives this. Errors: kInvalidArgument (a parser's name, a template of the configuration),
  // kNotFound. A model without a template is no error here: conversations are refused then.
  static Result<std::unique_ptr<ChatSetup>> open(const Session& session, const ChatConfig& config);

  Result<ChatTask> read(Conversation conversation) const;
  // For the reply to a prompt, which may have opened the reasoning; nothing when no reasoning is known here.
  std::optional<ThinkingBudget> thinking_budget(int n_tokens, bool starts_inside) const;
  bool opens_reasoning(std::string_view prompt) const {
    return prompt_opens_reasoning(prompt, reasoning_parser_);
  }
  // Of the server's own template; empty when there is none.
  const std::string& chat_template() const { return source_; }

 private:
  explicit ChatSetup(const Session& session) : session_(&session) {}
  Status check_length(const Conversation& conversation) const;

  const Session* session_;
  std::string source_;
  std::optional<ChatPrompter> prompter_;
  Error missing_;  // why there is no prompter
  std::string tool_parser_, reasoning_parser_;
  bool trust_request_template_ = false, ignore_tools_ = false;
};

// Adds the budget of one more prompt when the request has a thinking_token_budget. Error: kInvalidArgument, no
// reasoning is known here.
Status read_thinking_budget(const Server& server, const nlohmann::ordered_json& body, bool starts_inside,
                            GenerationCall& call);

}  // namespace penstock
