// How a model chats: its template, and the parsers of its replies. Shared by the library and by all of the server's
// endpoints for chats.
#pragma once
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "frontend/chat/chat_prompt.h"
#include "frontend/chat/reply_grammar.h"
#include "frontend/chat/reply_parser.h"
#include "frontend/session.h"
#include "penstock/structured_outputs.h"

namespace penstock {

struct ChatConfig {
  std::string chat_template;                // a template's text instead of the model's; empty = the model's
  std::string tool_call_parser = "auto";    // a name of tool_parsers(), "auto" (by the template) or "none"
  std::string reasoning_parser = "auto";    // a name of reasoning_formats(), "auto" or "none"
  std::string system_prompt;                // of conversations that bring no system message; empty: none
  bool trust_request_template = false;      // conversations may bring a template of their own
  bool ignore_tools_without_place = false;  // leave tools out for a template that does not know them
};

// The text of the template that somebody names: a file's, or what was given when it cannot be meant as a name.
// Errors: kNotFound, kIo.
Result<std::string> read_chat_template(const std::string& file_or_text);

// One call's conversation, in chat completions' terms.
struct Conversation {
  nlohmann::ordered_json messages;
  nlohmann::ordered_json tools =
      nullptr;  // an array or null; calls of tools with strict: true obey their schemas
  nlohmann::ordered_json variables = nullptr;  // further variables of the template: an object or null
  std::string chat_template;                   // instead of the setup's; empty = the setup's
  ChatPrompt options;
  bool add_special_tokens = false;  // templates write their own
  bool one_call = false;            // the reply ends after its first tool call
  ToolChoice tool_choice;           // of the tools, which the template shows to the model all the same
  std::optional<StructuredOutputs>
      reply;                // what a reply that is no call must look like, behind its reasoning
  bool any_length = false;  // the prompt may be longer than the context
};

struct ChatTask {
  std::vector<TokenId> prompt;
  ReplyParserOptions parsers;
  bool one_call = false;
  // What the whole reply is held to, reasoning and calls included: instead of SamplingParams::structured_outputs.
  std::optional<StructuredOutputs> constraint;

  // Whether the reply is taken apart at all: only then special tokens that mark parts stay in the text.
  bool parses() const { return !parsers.tools.empty() || !parsers.reasoning.empty(); }
};

class ChatSetup {
 public:
  // The session outlives this. Errors: kInvalidArgument (a parser's name, a template of the configuration). A model
  // without a template is no error here: conversations are refused then.
  static Result<std::unique_ptr<ChatSetup>> open(const Session& session, const ChatConfig& config);

  // The conversation as tokens, and how the reply to it is read and held to what was asked for. Errors: kInvalidArgument
  // (also: the template cannot show what the conversation has), kUnsupported (a strict tool or a choice of tools that the
  // model's way to write calls cannot be held to), kContextOverflow.
  Result<ChatTask> read(Conversation conversation) const;
  // The same; the text that the tokens are made of goes to `text`.
  Result<ChatTask> read(Conversation conversation, std::string& text) const;
  // For the reply to a prompt, which may have opened the reasoning; nothing when no reasoning is known here.
  std::optional<ThinkingBudget> thinking_budget(int n_tokens, bool starts_inside) const;
  bool opens_reasoning(std::string_view prompt) const {
    return prompt_opens_reasoning(prompt, reasoning_parser_);
  }
  // Of the setup's own template; empty when there is none.
  const std::string& chat_template() const { return source_; }

 private:
  explicit ChatSetup(const Session& session) : session_(&session) {}
  Status check_length(const Conversation& conversation) const;
  // Whether the template shows tools to the model; an error where it cannot and must.
  Result<bool> check_tools(const Conversation& conversation) const;

  const Session* session_;
  std::string source_,
      tool_source_;  // tool_source_: the template for conversations with tools; "" is the same
  std::optional<ChatPrompter> prompter_;
  Error missing_;  // why there is no prompter
  std::string tool_parser_, reasoning_parser_, system_prompt_;
  bool trust_request_template_ = false, ignore_tools_ = false;
};

}  // namespace penstock
