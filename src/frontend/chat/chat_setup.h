// The chat settings of a model: its template and the parsers of its replies. Shared by the library
// and all chat endpoints of the server.
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
  // text of a template that replaces the model's; empty: the model's
  std::string chat_template;
  // a name of tool_parsers(), "auto" (by the template) or "none"
  std::string tool_call_parser = "auto";
  // a name of reasoning_formats(), "auto" or "none"
  std::string reasoning_parser = "auto";
  // system message of conversations that have none; empty: no message
  std::string system_prompt;
  bool trust_request_template = false;  // conversations may have their own template
  // leave tools out for a template that does not know them
  bool ignore_tools_without_place = false;
};

// Returns the text of a template that is given as the name of a file or as the text itself. Errors:
// kNotFound, kIo.
Result<std::string> read_chat_template(const std::string& file_or_text);

// The conversation of one request, in the terms of chat completions.
struct Conversation {
  // Parts may be pictures (pictures/message_pictures.h).
  nlohmann::ordered_json messages;
  // An array or null. Calls of tools with "strict": true obey the tools' schemas.
  nlohmann::ordered_json tools = nullptr;
  // further variables of the template: an object or null
  nlohmann::ordered_json variables = nullptr;
  // a template that replaces the setup's; empty: the setup's
  std::string chat_template;
  ChatPrompt options;
  // adds BOS and EOS tokens, which templates usually write themselves
  bool add_special_tokens = false;
  bool one_call = false;  // the reply ends after its first tool call
  // which tools may be called; the template shows all of them to the model
  ToolChoice tool_choice;
  // The constraint on a reply that is no call, after its reasoning; nullopt: any text.
  std::optional<StructuredOutputs> reply;
  bool any_length = false;  // the prompt may be longer than the context
  // settings of the image processor: an object or null (Eyes::plan())
  nlohmann::json picture_settings = nullptr;
};

struct ChatTask {
  std::vector<TokenId> prompt;
  // pictures of the messages, and their places in the prompt
  PromptPictures pictures;
  ReplyParserOptions parsers;
  bool one_call = false;
  // The constraint on the whole reply, including reasoning and calls; replaces
  // SamplingParams::structured_outputs.
  std::optional<StructuredOutputs> constraint;
  // What the client should know of how it was read; empty: nothing.
  std::string warning;

  // Whether the reply is parsed. Only then the special tokens that mark its parts stay in the text.
  bool parses() const { return !parsers.tools.empty() || !parsers.reasoning.empty(); }
};

class ChatSetup {
 public:
  // REQUIRES: the session outlives the setup. Errors: kInvalidArgument, when a parser's name is
  // unknown or the configured template is invalid. For a model without a template open() succeeds
  // and read() fails.
  static Result<std::unique_ptr<ChatSetup>> open(const Session& session, const ChatConfig& config);

  // Returns the prompt's tokens, the parsers of the reply and its constraint. Errors:
  // kInvalidArgument (also when the template cannot represent the conversation); kUnsupported, when
  // a strict tool or the choice of tools cannot be enforced in the model's call format;
  // kContextOverflow.
  Result<ChatTask> read(Conversation conversation) const;
  // As read() above; sets `text` to the prompt's text.
  Result<ChatTask> read(Conversation conversation, std::string& text) const;
  // Returns the thinking budget of a reply; nullopt when the model's reasoning format is not known.
  // starts_inside: the prompt has opened the reasoning.
  std::optional<ThinkingBudget> thinking_budget(int n_tokens, bool starts_inside) const;
  bool opens_reasoning(std::string_view prompt) const {
    return prompt_opens_reasoning(prompt, reasoning_parser_);
  }
  // The text of the setup's template; empty: there is none.
  const std::string& chat_template() const { return source_; }

 private:
  explicit ChatSetup(const Session& session) : session_(&session) {}
  Status check_length(const Conversation& conversation) const;
  // Takes the pictures out of the messages and reads their headers.
  Result<PromptPictures> take_pictures(Conversation& conversation) const;
  // Tokenizes a rendered prompt; `text` becomes what the client may see.
  Result<std::vector<TokenId>> tokens_of(std::string& text, const Conversation& conversation,
                                         PromptPictures& pictures) const;
  // Returns whether the template shows the tools to the model. Errors: when it cannot but must.
  Result<bool> check_tools(const Conversation& conversation) const;

  const Session* session_;
  // tool_source_: the template for conversations with tools; "": source_ is used.
  std::string source_, tool_source_;
  std::optional<ChatPrompter> prompter_;
  Error missing_;  // why prompter_ is absent
  std::string tool_parser_, reasoning_parser_, system_prompt_;
  bool trust_request_template_ = false, ignore_tools_ = false;
  // Marks around the thoughts of the model; nullopt: they are not known.
  std::optional<ThinkingBudget> thinking_;
  // How the model writes calls is not known, and not because it was told so.
  bool calls_unknown_ = false;
};

}  // namespace penstock
