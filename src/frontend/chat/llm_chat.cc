#include <nlohmann/json.hpp>

#include "base/json_text.h"
#include "frontend/chat/chat_reader.h"
#include "frontend/chat/chat_setup.h"
#include "frontend/llm_impl.h"
#include "frontend/pictures/message_pictures.h"

namespace penstock {
namespace {

using Json = nlohmann::ordered_json;

// Parses JSON; "": null.
Result<Json> parse_json(const std::string& text, const char* what, bool array) {
  if (text.empty()) return Json(nullptr);
  Json value = bounded_json<Json>(text);
  if (array ? value.is_array() : value.is_object()) return value;
  return errorf(ErrorCode::kInvalidArgument, "{}: expected a JSON {}", what,
                array ? "array" : "object");
}

Json call_json_of(const ToolCall& call) {
  Json result = {{"type", "function"},
                 {"function", {{"name", call.name}, {"arguments", call.arguments}}}};
  if (!call.id.empty()) result["id"] = call.id;
  return result;
}

Json content_json_of(const ChatMessage& message) {
  if (message.images.empty()) return message.content;
  Json parts = Json::array();
  for (const ChatImage& image : message.images) {
    const std::string_view file = image.file == nullptr ? std::string_view() : *image.file;
    const char* const kind = image.is_sound ? "audio" : "image";
    Json part = {{"type", kind}};
    part[kind] = Json::binary({file.begin(), file.end()});
    if (!image.name.empty())
      part[kPicturePlace] = Json::binary({image.name.begin(), image.name.end()});
    parts.push_back(std::move(part));
  }
  parts.push_back({{"type", "text"}, {"text", message.content}});
  return parts;
}

Json message_json_of(const ChatMessage& message) {
  Json result = {{"role", message.role}, {"content", content_json_of(message)}};
  if (!message.reasoning.empty()) result["reasoning_content"] = message.reasoning;
  for (const ToolCall& call : message.tool_calls)
    result["tool_calls"].push_back(call_json_of(call));
  if (!message.tool_call_id.empty()) result["tool_call_id"] = message.tool_call_id;
  if (!message.name.empty()) result["name"] = message.name;
  return result;
}

ToolChoice choice_of_options(const ChatOptions& chat) {
  using Kind = ToolChoice::Kind;
  if (chat.tool_choice == "auto") return {Kind::kAuto, chat.allowed_tools};
  if (chat.tool_choice == "none") return {Kind::kNone, {}};
  if (chat.tool_choice == "required") return {Kind::kRequired, chat.allowed_tools};
  return {Kind::kNamed, {chat.tool_choice}};
}

Result<Conversation> conversation_of_options(std::span<const ChatMessage> messages,
                                             const ChatOptions& chat) {
  Conversation conversation;
  conversation.messages = Json::array();
  for (const ChatMessage& message : messages)
    conversation.messages.push_back(message_json_of(message));
  ASSIGN_OR_RETURN(conversation.tools, parse_json(chat.tools_json, "tools", true));
  ASSIGN_OR_RETURN(conversation.variables,
                   parse_json(chat.template_kwargs_json, "template_kwargs", false));
  conversation.options = {chat.add_generation_prompt, chat.continue_final_message};
  conversation.one_call = !chat.parallel_tool_calls;
  conversation.tool_choice = choice_of_options(chat);
  return conversation;
}

// Parses the replies of one prompt incrementally.
class ChatReplies {
 public:
  ChatReplies(const ChatTask& task, const std::function<bool(const ChatDelta&)>& on_delta)
      : task_(task), on_delta_(on_delta) {}

  // false: this reply needs no more text.
  bool add(const TextDelta& text) {
    ChatReader& reader = reader_of(text.index);
    const auto news = reader.add(text.text, static_cast<int>(text.tokens.size()), text.finish);
    if (on_delta_ && wanted_ && (!news.empty() || text.finish != FinishReason::kNone))
      tell(reader, text, news);
    return !reader.complete();
  }
  // Whether on_delta wants more deltas.
  bool wanted() const { return wanted_; }
  ChatMessage message(int index) { return reader_of(index).message(); }

 private:
  ChatReader& reader_of(int index) {
    while (readers_.size() <= static_cast<size_t>(index)) readers_.emplace_back(task_, "call_");
    return readers_[static_cast<size_t>(index)];
  }
  void tell(const ChatReader& reader, const TextDelta& text,
            const std::vector<ReplySegment>& news) {
    ChatDelta delta{text.index, {}, {}, {}, text.finish};
    std::vector<ToolCall> calls;
    for (const ReplySegment& segment : news) {
      if (segment.kind == ReplySegment::Kind::kReasoning) delta.reasoning = segment.text;
      if (segment.kind == ReplySegment::Kind::kText) delta.content = segment.text;
      if (segment.kind == ReplySegment::Kind::kCall && segment.ends)
        calls.push_back(reader.call(segment.n_call));
    }
    delta.tool_calls = calls;
    // Pieces of an open call are not reported: on_delta gets whole calls.
    if (delta.reasoning.empty() && delta.content.empty() && calls.empty() &&
        text.finish == FinishReason::kNone)
      return;
    wanted_ = on_delta_(delta);
  }

  const ChatTask& task_;
  const std::function<bool(const ChatDelta&)>& on_delta_;
  std::vector<ChatReader> readers_;  // by index; only replies that have begun
  bool wanted_ = true;
};

}  // namespace

Result<std::shared_ptr<const ChatSetup>> LLMImpl::chat_setup(const ChatOptions& chat) {
  const std::array names = {chat.chat_template, chat.tool_call_parser, chat.reasoning_parser};
  const std::lock_guard lock(setup_mutex_);
  if (last_setup_ == nullptr || names != last_names_) {
    ChatConfig config;
    config.chat_template = chat.chat_template;
    config.tool_call_parser = chat.tool_call_parser;
    config.reasoning_parser = chat.reasoning_parser;
    ASSIGN_OR_RETURN(last_setup_, ChatSetup::open(*session_, config));
    last_names_ = names;
  }
  return last_setup_;
}

Result<std::string> LLMImpl::render_chat(std::span<const ChatMessage> messages,
                                         const ChatOptions& chat) {
  ASSIGN_OR_RETURN(const auto setup, chat_setup(chat));
  ASSIGN_OR_RETURN(Conversation conversation, conversation_of_options(messages, chat));
  conversation.any_length = true;
  std::string text;
  RETURN_IF_ERROR(setup->read(std::move(conversation), text));
  return text;
}

Result<RequestOutput> LLMImpl::chat(std::span<const ChatMessage> messages,
                                    const SamplingParams& params, const GenerateOptions& options,
                                    const ChatOptions& chat) {
  ASSIGN_OR_RETURN(const auto setup, chat_setup(chat));
  ASSIGN_OR_RETURN(Conversation conversation, conversation_of_options(messages, chat));
  conversation.reply = params.structured_outputs;
  std::string text;
  ASSIGN_OR_RETURN(ChatTask task, setup->read(std::move(conversation), text));
  SamplingParams constrained = params;
  constrained.structured_outputs = task.constraint;
  ChatReplies replies(task, chat.on_delta);
  const CallHooks hooks{task.parses(), [&](const TextDelta& delta) { return replies.add(delta); }};
  GenerateOptions with_stop = options;
  with_stop.on_text = [&](const TextDelta& delta) {
    return (!options.on_text || options.on_text(delta)) && replies.wanted();
  };
  const Prompt prompt = std::move(task.prompt);
  std::vector<PromptEmbeddings> embeddings;
  if (!task.pictures.empty()) {
    Eyes& eyes = *session_->eyes();
    Eyes::Call call{.pictures = task.pictures.pictures};
    if (options.timeout) call.deadline = Clock::now() + *options.timeout;
    ASSIGN_OR_RETURN(const PictureRows rows, eyes.encode(std::move(call), options.should_stop));
    embeddings = eyes.embeddings_of(task.pictures, rows);
  }
  ASSIGN_OR_RETURN(auto outputs, generate(std::span(&prompt, 1), constrained, with_stop, hooks,
                                          std::move(embeddings)));
  outputs[0].prompt = std::move(text);
  for (CompletionOutput& one : outputs[0].outputs) one.message = replies.message(one.index);
  return std::move(outputs[0]);
}

}  // namespace penstock
