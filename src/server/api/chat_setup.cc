#include "server/api/chat_setup.h"

#include <filesystem>
#include <fstream>
#include <sstream>

#include "server/api/api_request.h"

namespace penstock {
namespace {

// The file of that name, else the text itself when it cannot be meant as a name.
Result<std::string> read_template(const std::string& given) {
  if (given.empty()) return given;
  std::error_code none;
  if (std::filesystem::is_regular_file(given, none)) {
    std::ifstream in(given, std::ios::binary);
    std::ostringstream text;
    text << in.rdbuf();
    if (in && !text.str().empty()) return text.str();
    return errorf(ErrorCode::kIo, "chat template: {} is empty or cannot be read", given);
  }
  const auto holds = [&](const char* mark) { return given.find(mark) != std::string::npos; };
  if (holds("{{") || holds("{%") || holds("{#") || holds("\n")) return given;
  return errorf(
      ErrorCode::kNotFound,
      "chat template: there is no file {}, and a template's text would have {{{{ }}}} or {{% %}} in it",
      given);
}

// The parser a flag names; "auto" is `detected`.
Result<std::string> choose(const std::string& flag, std::string_view detected, bool tools) {
  if (flag == "none") return std::string();
  if (flag.empty() || flag == "auto") return std::string(detected);
  ReplyParserOptions probe;
  (tools ? probe.tools : probe.reasoning) = flag;
  RETURN_IF_ERROR(make_reply_parser(probe));
  return flag;
}

bool mentions(const std::string& source, const char* word) { return source.find(word) != std::string::npos; }

}  // namespace

Conversation take_conversation(json& body) {
  Conversation conversation;
  conversation.messages = take_field(body, "messages");
  if (get_string(body, "tool_choice", "auto") != "none") conversation.tools = take_field(body, "tools");
  conversation.one_call = !get_bool(body, "parallel_tool_calls", true);
  conversation.variables = take_field(body, "chat_template_kwargs");
  if (conversation.variables.is_null()) conversation.variables = json::object();
  for (const char* name : {"documents", "reasoning_effort"}) {
    json value = take_field(body, name);
    if (!value.is_null()) conversation.variables[name] = std::move(value);
  }
  conversation.chat_template = get_string(body, "chat_template");
  conversation.options.continue_final_message = get_bool(body, "continue_final_message");
  conversation.options.add_generation_prompt =
      get_bool(body, "add_generation_prompt", !conversation.options.continue_final_message);
  conversation.add_special_tokens = get_bool(body, "add_special_tokens");
  conversation.any_length = truncates(body);
  return conversation;
}

Result<std::unique_ptr<ChatSetup>> ChatSetup::open(const Session& session, const ChatConfig& config) {
  std::unique_ptr<ChatSetup> setup(new ChatSetup(session));
  setup->trust_request_template_ = config.trust_request_template;
  setup->ignore_tools_ = config.ignore_tools_without_place;
  ASSIGN_OR_RETURN(setup->source_, read_template(config.chat_template));
  auto prompter = ChatPrompter::open(session.tokenizer(), setup->source_);
  if (setup->source_.empty()) setup->source_ = session.tokenizer().chat_template();
  if (prompter) {
    setup->prompter_.emplace(std::move(*prompter));
  } else if (!config.chat_template.empty()) {
    return tl::unexpected(prompter.error());
  } else {
    setup->missing_ = prompter.error();
  }
  const std::string& source = setup->source_;
  ASSIGN_OR_RETURN(setup->tool_parser_, choose(config.tool_call_parser, detect_tool_parser(source), true));
  ASSIGN_OR_RETURN(setup->reasoning_parser_,
                   choose(config.reasoning_parser, detect_reasoning(source), false));
  return setup;
}

// Before a template makes copies of what is too long by itself. What the assistant said may be left out by it.
Status ChatSetup::check_length(const Conversation& conversation) const {
  const auto check = [&](const json& text) {
    return text.is_string() ? session_->check_length(text.get_ref<const std::string&>()) : Status();
  };
  for (const json& message : conversation.messages) {
    const json& content = get_field(message, "content");
    if (get_string(message, "role") == "assistant") continue;
    RETURN_IF_ERROR(check(content));
    if (!content.is_array()) continue;
    for (const json& part : content) {
      if (part.is_object()) RETURN_IF_ERROR(check(get_field(part, "text")));
    }
  }
  for (const json& tool : conversation.tools) {
    const json& function = get_field(tool, "function");
    if (function.is_object()) RETURN_IF_ERROR(check(get_field(function, "description")));
  }
  return {};
}

std::optional<ThinkingBudget> ChatSetup::thinking_budget(int n_tokens, bool starts_inside) const {
  const ReasoningRow* marks = find_reasoning(reasoning_parser_);
  if (marks == nullptr) return std::nullopt;
  const auto tokens = [&](const char* text) {
    return session_->encode(text, {.add_bos = false, .parse_special = true});
  };
  return ThinkingBudget{n_tokens, tokens(marks->open), tokens(marks->close), starts_inside};
}

Status read_thinking_budget(const Server& server, const json& body, bool starts_inside,
                            GenerationCall& call) {
  const auto n_tokens = static_cast<int>(get_int(body, "thinking_token_budget", -1));
  if (n_tokens < 0) return {};
  auto budget = server.chat().thinking_budget(n_tokens, starts_inside);
  if (!budget) {
    return errorf(ErrorCode::kInvalidArgument,
                  "thinking_token_budget: the chat template knows no reasoning (see --reasoning-parser)");
  }
  call.thinking.push_back(std::move(*budget));
  return {};
}

Result<ChatTask> ChatSetup::read(Conversation conversation) const {
  const bool own = conversation.chat_template.empty();
  const std::string& source = own ? source_ : conversation.chat_template;
  std::optional<ChatPrompter> other;
  if (!own && !trust_request_template_) {
    return errorf(ErrorCode::kInvalidArgument,
                  "chat_template: templates of requests are refused (--trust-request-chat-template)");
  }
  if (!own) {
    ASSIGN_OR_RETURN(other, ChatPrompter::open(session_->tokenizer(), conversation.chat_template));
  } else if (!prompter_) {
    return tl::unexpected(missing_);
  }
  bool with_tools = conversation.tools.is_array() && !conversation.tools.empty();
  const bool has_tool_template = own && session_->tokenizer().chat_templates().contains("tool_use");
  if (with_tools && !mentions(source, "tools") && !has_tool_template) {
    if (!ignore_tools_) {
      return errorf(
          ErrorCode::kInvalidArgument,
          "tools: the model's chat template has no place for them (see --ignore-tools-without-place)");
    }
    conversation.tools = nullptr;
    with_tools = false;
  }
  const ChatPrompter& prompter = own ? *prompter_ : *other;
  if (!conversation.any_length) RETURN_IF_ERROR(check_length(conversation));
  ASSIGN_OR_RETURN(const std::string text,
                   prompter.render(std::move(conversation.messages), conversation.tools,
                                   conversation.variables, conversation.options));
  if (!conversation.any_length) RETURN_IF_ERROR(session_->check_length(text));
  ChatTask task;
  task.prompt = session_->encode(text, {.add_bos = conversation.add_special_tokens, .parse_special = true});
  if (with_tools) task.parsers.tools = tool_parser_;
  task.parsers.reasoning = reasoning_parser_;
  task.parsers.starts_in_reasoning = prompt_opens_reasoning(text, reasoning_parser_);
  task.one_call = conversation.one_call;
  return task;
}

}  // namespace penstock
