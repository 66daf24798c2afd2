#include "frontend/chat/chat_setup.h"
#include "frontend/pictures/message_pictures.h"

#include <spdlog/spdlog.h>

#include <filesystem>

#include "base/log.h"
#include "base/regular_file.h"
#include "frontend/chat/call_history.h"
#include "frontend/chat/harmony.h"
#include "frontend/chat/parameter_schemas.h"
#include "frontend/json_fields.h"

namespace penstock {
namespace {

using Json = nlohmann::ordered_json;

// Returns the parser that a flag names; "auto" means `detected`.
Result<std::string> choose(const std::string& flag, std::string_view detected, bool tools) {
  if (flag == "none") return std::string();
  if (flag.empty() || flag == "auto") return std::string(detected);
  ReplyParserOptions probe;
  (tools ? probe.tools : probe.reasoning) = flag;
  RETURN_IF_ERROR(make_reply_parser(probe));
  return flag;
}

void add_system_prompt(const std::string& prompt, Json& messages) {
  if (prompt.empty() || !messages.is_array()) return;
  const std::string first = messages.empty() ? "" : get_string(messages.front(), "role");
  if (first == "system" || first == "developer") return;
  messages.insert(messages.begin(), Json{{"role", "system"}, {"content", prompt}});
}

// Removes tools' grammars: the model learns them from descriptions; the field is for the engine
// only.
void hide_grammars(Json& tools) {
  for (Json& tool : tools) {
    if (get_field(tool, "function").is_object()) tool["function"].erase("grammar");
  }
}

// Returns the tokens into which a mark's first and last token may merge with adjacent text; null
// for a mark of one token.
std::shared_ptr<const MarkEdges> edges_of(const std::vector<TokenId>& mark,
                                          const Tokenizer& tokenizer) {
  if (mark.size() < 2) return nullptr;
  const std::string_view first = tokenizer.token_bytes(mark.front(), true),
                         last = tokenizer.token_bytes(mark.back());
  if (first.empty() || last.empty()) return nullptr;
  auto edges = std::make_shared<MarkEdges>();
  for (TokenId id = 0; id < tokenizer.vocab_size(); ++id) {
    if (tokenizer.is_special(id)) continue;
    const std::string_view bytes = tokenizer.token_bytes(id);
    if (bytes.ends_with(first)) edges->first.push_back(id);
    if (bytes.starts_with(last)) edges->last.push_back(id);
  }
  return edges;
}

ThinkingBudget thinking_marks(const Session& session, const ReasoningRow& marks) {
  const auto tokens = [&](const char* text) {
    return session.encode(text, {.add_bos = false, .parse_special = true});
  };
  ThinkingBudget budget{.open = tokens(marks.open), .close = tokens(marks.close)};
  budget.open_edges = edges_of(budget.open, session.tokenizer());
  budget.close_edges = edges_of(budget.close, session.tokenizer());
  return budget;
}

bool mentions(const std::string& source, const char* word) {
  return source.find(word) != std::string::npos;
}

// MiniMax M3's template has a mode of thinking; without one the model decides whether to think.
void set_thinking_mode(const std::string& source, Json& variables) {
  if (get_field(variables, "enable_thinking") == false && !variables.contains("thinking_mode") &&
      mentions(source, "thinking_mode == \"disabled\""))
    variables["thinking_mode"] = "disabled";
}

}  // namespace

constexpr size_t kMostTemplateBytes = size_t{16} << 20;

Result<std::string> read_chat_template(const std::string& given) {
  if (given.empty()) return given;
  std::error_code none;
  if (std::filesystem::is_regular_file(given, none)) {
    auto text = read_regular_file(given, kMostTemplateBytes);
    if (text && !text->empty()) return text;
    return errorf(ErrorCode::kIo, "chat template: {}",
                  text ? given + ": it is empty" : text.error().message);
  }
  const auto holds = [&](const char* mark) { return given.find(mark) != std::string::npos; };
  if (holds("{{") || holds("{%") || holds("{#") || holds("\n")) return given;
  return errorf(ErrorCode::kNotFound,
                "chat template: there is no file {}, and a template's text would have {{{{ }}}} or "
                "{{% %}} in it",
                given);
}

Result<std::unique_ptr<ChatSetup>> ChatSetup::open(const Session& session,
                                                   const ChatConfig& config) {
  std::unique_ptr<ChatSetup> setup(new ChatSetup(session));
  setup->system_prompt_ = config.system_prompt;
  setup->trust_request_template_ = config.trust_request_template;
  setup->ignore_tools_ = config.ignore_tools_without_place;
  setup->source_ = config.chat_template;
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
  // Some models have a second template for conversations with tools.
  const auto& others = session.tokenizer().chat_templates();
  const auto tool_use = config.chat_template.empty() ? others.find("tool_use") : others.end();
  if (tool_use != others.end()) setup->tool_source_ = tool_use->second;
  std::string_view detected = detect_tool_parser(setup->tool_source_);
  if (detected.empty()) detected = detect_tool_parser(source);
  ASSIGN_OR_RETURN(setup->tool_parser_, choose(config.tool_call_parser, detected, true));
  const bool shows_tools = !setup->tool_source_.empty() || mentions(source, "tools");
  setup->calls_unknown_ = setup->tool_parser_.empty() && config.tool_call_parser != "none";
  if (setup->calls_unknown_ && shows_tools)
    log().warn(
        "how this model writes calls of tools is not known: they stay text (tool_call_parser names "
        "a format)");
  ASSIGN_OR_RETURN(setup->reasoning_parser_,
                   choose(config.reasoning_parser, detect_reasoning(source), false));
  if (const ReasoningRow* marks = find_reasoning(setup->reasoning_parser_); marks != nullptr)
    setup->thinking_ = thinking_marks(session, *marks);
  return setup;
}

// Refuses texts that are too long by themselves, before a template copies them. Assistant messages
// are not counted, since templates may omit them.
Status ChatSetup::check_length(const Conversation& conversation) const {
  const auto check = [&](const Json& text) {
    return text.is_string() ? session_->check_length(text.get_ref<const std::string&>()) : Status();
  };
  for (const Json& message : conversation.messages) {
    const Json& content = get_field(message, "content");
    if (get_string(message, "role") == "assistant") continue;
    RETURN_IF_ERROR(check(content));
    if (!content.is_array()) continue;
    for (const Json& part : content) {
      if (part.is_object()) RETURN_IF_ERROR(check(get_field(part, "text")));
    }
  }
  for (const Json& tool : conversation.tools) {
    const Json& function = get_field(tool, "function");
    if (function.is_object()) RETURN_IF_ERROR(check(get_field(function, "description")));
  }
  return {};
}

std::optional<ThinkingBudget> ChatSetup::thinking_budget(int n_tokens, bool starts_inside) const {
  std::optional<ThinkingBudget> budget = thinking_;
  if (budget) budget->max_tokens = n_tokens, budget->starts_inside = starts_inside;
  return budget;
}

Result<bool> ChatSetup::check_tools(const Conversation& conversation) const {
  if (!conversation.tools.is_array() || conversation.tools.empty()) return false;
  const bool own = conversation.chat_template.empty();
  const bool has_tool_template = own && session_->tokenizer().chat_templates().contains("tool_use");
  if (has_tool_template || mentions(own ? source_ : conversation.chat_template, "tools"))
    return true;
  if (ignore_tools_) return false;
  return errorf(ErrorCode::kInvalidArgument,
                "tools: the model's chat template has no place for them (penstock serve "
                "--ignore-tools-without-place leaves them out)");
}

Result<PromptPictures> ChatSetup::take_pictures(Conversation& conversation) const {
  const Eyes* const eyes = session_->eyes();
  PromptPictures result;
  ASSIGN_OR_RETURN(std::vector<Picture> pictures,
                   penstock::take_pictures(conversation.messages,
                                           eyes != nullptr ? eyes->limits().pictures : SIZE_MAX,
                                           eyes != nullptr ? eyes->limits().frames : SIZE_MAX));
  for (const Picture& picture : pictures) RETURN_IF_ERROR(session_->check_sense(picture));
  if (pictures.empty()) return result;
  ASSIGN_OR_RETURN(result.pictures, eyes->plan(std::move(pictures), conversation.picture_settings));
  return result;
}

Result<std::vector<TokenId>> ChatSetup::tokens_of(std::string& text,
                                                  const Conversation& conversation,
                                                  PromptPictures& pictures) const {
  const Eyes* const eyes = session_->eyes();
  if (eyes == nullptr) {
    return session_->encode(text,
                            {.add_bos = conversation.add_special_tokens, .parse_special = true});
  }
  const PicturePrompt& prompt = eyes->prompt();
  ASSIGN_OR_RETURN(text, prompt.filled(text, pictures.pictures, pictures.runs));
  const int most = conversation.any_length ? INT_MAX : session_->engine_info().max_model_len;
  ASSIGN_OR_RETURN(std::vector<TokenId> tokens,
                   prompt.tokens(session_->tokenizer(), text, conversation.add_special_tokens,
                                 pictures.runs, most));
  text = prompt.shown(std::move(text));
  return tokens;
}

Result<ChatTask> ChatSetup::read(Conversation conversation) const {
  std::string text;
  return read(std::move(conversation), text);
}

Result<ChatTask> ChatSetup::read(Conversation conversation, std::string& text) const {
  std::optional<ChatPrompter> other;
  const bool own = conversation.chat_template.empty();
  if (!own && !trust_request_template_) {
    return errorf(
        ErrorCode::kInvalidArgument,
        "chat_template: templates of requests are refused (--trust-request-chat-template)");
  }
  if (!own) {
    ASSIGN_OR_RETURN(other, ChatPrompter::open(session_->tokenizer(), conversation.chat_template));
  } else if (!prompter_) {
    return tl::unexpected(missing_);
  }
  if (conversation.tool_choice.kind == ToolChoice::Kind::kNone) conversation.tools = nullptr;
  ChatTask task;
  ASSIGN_OR_RETURN(task.pictures, take_pictures(conversation));
  ASSIGN_OR_RETURN(const bool with_tools, check_tools(conversation));
  if (!with_tools && conversation.tools.is_array() && !conversation.tools.empty())
    task.warning = "tools: left out, the model's chat template has no place for them";
  if (with_tools && calls_unknown_)
    task.warning =
        "tools: how this model writes calls is not known, so that its calls stay text "
        "(--tool-call-parser names a format)";
  if (!with_tools) conversation.tools = nullptr;
  ReplyRules rules{.choice = std::move(conversation.tool_choice),
                   .one_call = conversation.one_call,
                   .answer = std::move(conversation.reply)};
  const Json tools = conversation.tools;
  const ToolParserRow* calls = find_tool_parser(tool_parser_);
  if (with_tools) {
    rules.tools = &tools;
    task.parsers.parameters = std::make_shared<const ParameterTypes>(
        parameter_types(tools, calls != nullptr && calls->format.needs_inner_types()));
    hide_grammars(conversation.tools);
  }
  add_system_prompt(system_prompt_, conversation.messages);
  if (!conversation.any_length) RETURN_IF_ERROR(check_length(conversation));
  const ChatPrompter& prompter = own ? *prompter_ : *other;
  const std::string& source = !own                   ? conversation.chat_template
                              : tool_source_.empty() ? source_
                                                     : tool_source_;
  if (calls != nullptr && !calls->format.written.empty()) {
    const CallWriting& writing = calls->format.writing_for(source);
    fit_call_ids(writing, conversation.messages);
    if (!prompter.forms(with_tools).shows_calls) calls_into_content(writing, conversation.messages);
  }
  set_thinking_mode(source, conversation.variables);
  if (const Eyes* eyes = session_->eyes(); eyes != nullptr) {
    for (Json* part : {&conversation.messages, &conversation.tools, &conversation.variables})
      eyes->prompt().hide(*part);
    if (!task.pictures.empty() && prompter.forms(with_tools).tool == MessageForms::Content::kText)
      images_behind_tools(conversation.messages);
    if (prompter.forms(with_tools).user == MessageForms::Content::kText)
      images_as_text([eyes](std::string_view type) { return eyes->prompt().placeholder_of(type); },
                     conversation.messages);
  }
  ASSIGN_OR_RETURN(text,
                   prompter.render(std::move(conversation.messages), std::move(conversation.tools),
                                   std::move(conversation.variables), conversation.options));
  if (!conversation.any_length) RETURN_IF_ERROR(session_->check_length(text));
  ASSIGN_OR_RETURN(task.prompt, tokens_of(text, conversation, task.pictures));
  const bool text_has_marks =
      calls != nullptr && (is_harmony(*calls) || !calls->format.text_begins.empty());
  if (with_tools || text_has_marks) task.parsers.tools = tool_parser_;
  if (text_has_marks) task.parsers.opened = prompt_opens_call(text, calls->format);
  task.parsers.reasoning = reasoning_parser_;
  task.parsers.starts_in_reasoning = prompt_opens_reasoning(text, reasoning_parser_);
  task.parsers.calls_only = rules.choice.kind == ToolChoice::Kind::kRequired ||
                            rules.choice.kind == ToolChoice::Kind::kNamed;
  task.parsers.constrained_answer = rules.answer.has_value() && !task.parsers.calls_only;
  task.one_call = rules.one_call || rules.choice.kind == ToolChoice::Kind::kNamed;
  const ReplyContext context{.calls = find_tool_parser(task.parsers.tools),
                             .reasoning = find_reasoning(reasoning_parser_),
                             .chat_template = source,
                             .prompt = text};
  ASSIGN_OR_RETURN(task.constraint, reply_constraint(std::move(rules), context));
  return task;
}

}  // namespace penstock
