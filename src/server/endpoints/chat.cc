// POST /v1/chat/completions and …/batch (vLLM's, for several conversations).
#include <fmt/format.h>

#include <span>

#include "frontend/chat/harmony.h"
#include "server/api/api_request.h"
#include "server/api/conversations.h"
#include "server/api/custom_input.h"
#include "server/api/llamacpp.h"
#include "server/api/llamacpp_chat.h"
#include "server/api/openai_json.h"
#include "server/api/prompt_news.h"
#include "server/api/schemas.h"
#include "server/handlers/answer.h"
#include "server/http/apart_threads.h"
#include "server/routing/errors.h"
#include "server/services/client_warnings.h"
#include "server/services/config.h"
#include "server/services/services.h"

namespace penstock {
namespace {

using Kind = ReplySegment::Kind;
constexpr const char* kChatObject = "chat.completion";
constexpr const char* kChunk = "chat.completion.chunk";

struct ChatCall : OpenAiCall {
  std::vector<ChatTask> tasks;  // by prompt
  bool logprobs = false, prompt_logprobs = false, include_reasoning = true;
  bool names_function = false;  // tool_choice names a function or a custom tool
  CallForms forms;              // forms of the task's calls
  std::string echo;             // text before the reply
};

// max_completion_tokens is the newer name of max_tokens; without both, the reply may fill the
// context.
void set_max_tokens(const json& body, GenerationCall& call) {
  const int64_t newer = get_int(body, "max_completion_tokens", -1);
  if (newer >= 0) call.params.max_tokens = static_cast<int>(newer);
  call.fill_context();
}

Status read_logprobs(const Services& services, const json& body, ChatCall& call) {
  call.logprobs = get_bool(body, "logprobs");
  const int64_t top = get_int(body, "top_logprobs", 0);
  if (top != 0 && !call.logprobs)
    return errorf(ErrorCode::kInvalidArgument, "top_logprobs: needs logprobs: true");
  RETURN_IF_ERROR(check_logprobs(services, *call.generation.model, top, "top_logprobs"));
  if (call.logprobs) call.generation.params.logprobs = static_cast<int>(top);
  call.prompt_logprobs = call.generation.params.prompt_logprobs.has_value();
  if (call.stream && call.prompt_logprobs) {
    return errorf(ErrorCode::kInvalidArgument, "prompt_logprobs: not available in a stream");
  }
  return {};
}

// Returns warnings about requested features that this server ignores.
std::vector<std::string> warnings_of_chat(const json& body) {
  std::vector<std::string> warnings;
  if (get_field(body, "web_search_options").is_object())
    warnings.emplace_back("web_search_options: this server cannot run web_search, it is left out");
  if (get_bool(body, "store")) warnings.emplace_back("store: chats are not kept");
  if (get_string(body, "verbosity", "medium") != "medium")
    warnings.emplace_back("verbosity: the model is not told");
  return warnings;
}

// Returns the text of the final message that is continued.
std::string last_content(const json& body) {
  const json& last = body["messages"].back();
  return get_string(last, "content");
}

// Reads the fields other than the conversation.
Result<ChatCall> read_chat_fields(Services& services, ApiBody& asked) {
  json& body = asked.fields;
  RETURN_IF_ERROR(take_llamacpp_chat_fields(body, *asked.model));
  ChatCall call;
  ASSIGN_OR_RETURN(call.generation, read_generation(services, asked, body, -1));
  call.generation.tool_schemas = "function/parameters";
  const std::string choice = get_string(get_field(body, "tool_choice"), "type");
  call.names_function = choice == "function" || choice == "custom";
  if (call.generation.params.n > services.config.max_choices) {
    return errorf(ErrorCode::kInvalidArgument, "n: expected at most {}, got {}",
                  services.config.max_choices, call.generation.params.n);
  }
  RETURN_IF_ERROR(read_openai_call(services, body, "chatcmpl-", call));
  call.generation.n_repeats = call.token_ids ? 2 : 0;
  RETURN_IF_ERROR(read_logprobs(services, body, call));
  call.generation.params.processed_logprobs = get_bool(body, "post_sampling_probs");
  const bool excluded = get_bool(get_field(body, "reasoning"), "exclude");
  call.include_reasoning = get_bool(body, "include_reasoning", true) && !excluded;
  return call;
}

// reasoning_format "none": reasoning stays in the text.
Status leave_reasoning(ChatTask& task) {
  const ToolParserRow* const calls = find_tool_parser(task.parsers.tools);
  if (calls != nullptr && is_harmony(*calls)) {
    return errorf(
        ErrorCode::kInvalidArgument,
        "reasoning_format: none is not known for this model, whose reasoning is a channel "
        "of its replies");
  }
  task.parsers.reasoning.clear();
  return {};
}

size_t text_bytes_of(const GenerationCall& call, std::span<const TokenId> prompt) {
  const Tokenizer& tokenizer = call.model->tokenizer();
  size_t n = 0;
  for (const TokenId token : prompt) n += tokenizer.token_bytes(token).size();
  return n;
}

// Adds a conversation; all conversations share the form of the reply.
Status add_conversation(const HttpRequest& request, const json& body,
                        Result<AskedConversation> asked, ChatCall& call) {
  if (!asked) return tl::unexpected(std::move(asked).error());
  warn_client(request, asked->warnings);
  call.forms = std::move(asked->forms);  // all conversations have the same tools
  GenerationCall& generation = call.generation;
  ASSIGN_OR_RETURN(ChatTask task, read_task(*std::move(asked), generation));
  warn_client(request, task.warning);
  if (!generation.pictures.back().empty() &&
      get_field(body, "truncate_prompt_tokens").is_number()) {
    return errorf(ErrorCode::kUnsupported,
                  "truncate_prompt_tokens: a prompt with pictures or sounds is not cut");
  }
  truncate_prompt(*generation.model, body, task.prompt);
  if (call.prompt_text) generation.repeated_bytes += text_bytes_of(generation, task.prompt);
  generation.prompts.push_back(std::move(task.prompt));
  RETURN_IF_ERROR(read_thinking_budget(body, task.parsers.starts_in_reasoning, generation));
  generation.keep_markers = task.parses();
  if (get_string(body, "reasoning_format") == "none") RETURN_IF_ERROR(leave_reasoning(task));
  call.tasks.push_back(std::move(task));
  return {};
}

Result<ChatCall> read_chat_call(Services& services, const HttpRequest& request) {
  ASSIGN_OR_RETURN(ApiBody asked, read_body(services, request, chat_request()));
  warn_client(request, warnings_of_chat(asked.fields));
  ASSIGN_OR_RETURN(ChatCall call, read_chat_fields(services, asked));
  if (get_bool(asked.fields, "echo")) call.echo = last_content(asked.fields);
  call.generation.repeated_bytes += call.echo.size();
  RETURN_IF_ERROR(
      add_conversation(request, asked.fields, conversation_of_chat(asked.fields), call));
  set_max_tokens(asked.fields, call.generation);
  return call;
}

// Limits the copies of shared fields that are made for each conversation.
Status check_batch(const Services& services, const json& body, size_t n_conversations) {
  if (n_conversations > static_cast<size_t>(services.config.max_choices)) {
    return errorf(ErrorCode::kInvalidArgument,
                  "messages: expected at most {} conversations, got {}",
                  services.config.max_choices, n_conversations);
  }
  const size_t bytes = dump(body).size() * n_conversations, most = most_text(services);
  if (bytes <= most) return {};
  return errorf(ErrorCode::kInvalidArgument,
                "messages: expected fields beside them of at most {} bytes for {} conversations, "
                "got {}",
                most / n_conversations, n_conversations, bytes / n_conversations);
}

Result<ChatCall> read_chat_batch(Services& services, const HttpRequest& request) {
  ASSIGN_OR_RETURN(ApiBody asked, read_body(services, request, chat_batch_request()));
  json conversations = take_field(asked.fields, "messages");
  RETURN_IF_ERROR(check_batch(services, asked.fields, conversations.size()));
  warn_client(request, warnings_of_chat(asked.fields));
  ASSIGN_OR_RETURN(ChatCall call, read_chat_fields(services, asked));
  // answering by meaning needs a single conversation
  call.generation.question.reset();
  const auto form = call.generation.params.structured_outputs;
  std::optional<StructuredOutputs> first;
  for (size_t i = 0; i < conversations.size(); ++i) {
    json body = asked.fields;
    body["messages"] = std::move(conversations[i]);
    call.generation.params.structured_outputs = form;
    auto added = add_conversation(request, asked.fields, conversation_of_chat(body), call);
    if (!added) return errorf(added.error().code, "messages[{}]: {}", i, added.error().message);
    const auto& held_to = call.generation.params.structured_outputs;
    if (i == 0) first = held_to;
    if (held_to != first) {
      return errorf(ErrorCode::kInvalidArgument,
                    "messages[{}]: its reply would be held to another grammar than the first's: "
                    "the template opens its reasoning otherwise",
                    i);
    }
  }
  set_max_tokens(asked.fields, call.generation);
  return call;
}

// form: of the call; null: a plain function. The arguments of a custom tool's call are its text.
json call_json(const ToolCall& call, const CallForm* form) {
  if (form == nullptr || !form->custom) {
    return {{"id", call.id},
            {"type", "function"},
            {"function", {{"name", call.name}, {"arguments", call.arguments}}}};
  }
  return {{"id", call.id},
          {"type", "custom"},
          {"custom", {{"name", form->name}, {"input", call.arguments}}}};
}

// Returns a piece of a call; the first piece has id and name.
json call_delta(const ReplySegment& segment, const CallForm* form) {
  json call;
  if (segment.begins)
    call = call_json(segment.call, form);
  else if (form != nullptr && form->custom)
    call = {{"custom", {{"input", segment.call.arguments}}}};
  else
    call = {{"function", {{"arguments", segment.call.arguments}}}};
  call["index"] = segment.n_call;
  return call;
}

// Whether the segment has nothing to send: the last piece of a call, without characters.
bool is_silent(const ReplySegment& segment) {
  return segment.kind == Kind::kCall && !segment.begins && segment.call.arguments.empty();
}

// OpenAI's API reports "stop" for a call that tool_choice forced.
const char* finish_name(const ChatCall& call, const ChatReader& reader) {
  const bool called =
      reader.finish() == FinishReason::kStop && reader.n_calls() > 0 && !call.names_function;
  return called ? "tool_calls" : finish_reason_name(reader.finish());
}

class ChatShape final : public ReplyShape {
 public:
  explicit ChatShape(const ChatCall& call)
      : call_(call),
        names_(call.generation.model->tokenizer(), call.tokens_as_ids),
        events_(call, kChunk) {
    for (const ChatTask& task : call.tasks) {
      for (int i = 0; i < call.generation.params.n; ++i) choices_.emplace_back(task);
    }
  }

  std::string begin(const Generation& generation) override { return look(generation); }
  std::string add(const ChoiceDelta& delta, Generation& generation) override;
  std::chrono::milliseconds look_every() const override {
    return call_.progress ? PromptNews::kEvery : std::chrono::milliseconds(0);
  }
  std::string look(const Generation& generation) override;
  std::string end(const Generation& generation) override {
    return stream_tail(call_, generation, kChunk, n_reasoning_tokens());
  }
  json whole(const Generation& generation) override;
  HttpReply error(const Error& error) override { return error_reply(error, "messages"); }

 private:
  struct Choice {
    explicit Choice(const ChatTask& task) : reader(task, "call_") {}
    ChatReader reader;
    bool started = false;
    json logprobs = json::array();  // of text that is still held back
    std::vector<TokenId> ids;       // of text that is still held back
    // Streams: forms of the choice's calls, and the text of the last one.
    std::vector<const CallForm*> forms = {};
    CustomInput input = {};
    Clock::time_point first;  // arrival of the first token
  };

  std::string events(const ChoiceDelta& delta, std::vector<ReplySegment> news,
                     Generation& generation);
  void read_call(Choice& choice, ReplySegment& segment) const;
  static json piece(const Choice& choice, const ReplySegment& segment);
  std::string first_event(int index, const Generation& generation) const;
  std::string joint_event(const ChoiceDelta& delta, const std::vector<ReplySegment>& news,
                          const Generation& generation);
  json details(Choice& choice) const;
  json finish_fields(const ChoiceDelta& delta) const;
  std::string chunk(const ChoiceDelta& of, json delta, json extra,
                    const Generation& generation) const;
  std::string timings_now(const ChoiceDelta& of, const Generation& generation) const;
  json message(const ChatReader& reader) const;
  json logprob_json(const std::vector<TokenLogprob>& row) const {
    json entry = chat_logprob_json(names_, row);
    if (call_.generation.params.processed_logprobs) name_as_probabilities(entry);
    return entry;
  }
  json choice_json(const CompletionOutput& one, size_t prompt);
  std::string prompt_text(const Generation& generation) const {
    return names_.tokenizer().decode(generation.prompt_output(0).prompt_token_ids, false);
  }
  int n_reasoning_tokens() const {
    int n = 0;
    for (const Choice& choice : choices_) n += choice.reader.n_reasoning_tokens();
    return n;
  }

  const ChatCall& call_;
  TokenNames names_;
  StreamEvents events_;
  std::vector<Choice> choices_;
  PromptNews prompt_news_;
  const Clock::time_point start_ = Clock::now();
};

// Reports prompts whose prefill has advanced.
std::string ChatShape::look(const Generation& generation) {
  std::string events;
  if (!call_.progress) return events;
  for (size_t prompt = 0; prompt < call_.tasks.size(); ++prompt) {
    json news = prompt_news_.next(generation, static_cast<int>(prompt));
    if (news.is_null()) continue;
    json event = envelope(call_, kChunk);
    event["choices"] =
        json::array({{{"index", prompt * static_cast<size_t>(call_.generation.params.n)},
                      {"delta", {{"role", "assistant"}, {"content", nullptr}}},
                      {"logprobs", nullptr},
                      {"finish_reason", nullptr}}});
    event["prompt_progress"] = std::move(news);
    events += sse(event);
  }
  return events;
}

// Returns `,"timings":{…}` so far, if every event has timings.
std::string ChatShape::timings_now(const ChoiceDelta& of, const Generation& generation) const {
  const Choice& choice = choices_[of.choice];
  if (!call_.timings_per_token || choice.first == Clock::time_point()) return {};
  RequestStats so_far;
  so_far.prefill_seconds = std::chrono::duration<double>(choice.first - start_).count();
  so_far.decode_seconds = std::chrono::duration<double>(Clock::now() - choice.first).count();
  const auto n_prompt =
      generation.prompt_output(of.choice / call_.generation.params.n).prompt_token_ids.size();
  return R"(,"timings":)" +
         dump(llamacpp_timings(so_far, static_cast<int64_t>(n_prompt), of.n_tokens));
}

std::string ChatShape::add(const ChoiceDelta& delta, Generation& generation) {
  Choice& choice = choices_[delta.choice];
  std::vector<ReplySegment> news = read_delta(choice.reader, delta, generation);
  if (call_.logprobs && !delta.logprobs.empty())
    choice.logprobs.push_back(logprob_json(delta.logprobs));
  if (!call_.stream) return {};
  if (delta.token != kNoToken && choice.first == Clock::time_point()) choice.first = Clock::now();
  if (call_.token_ids && delta.token != kNoToken) choice.ids.push_back(delta.token);
  return events(delta, std::move(news), generation);
}

std::string ChatShape::events(const ChoiceDelta& delta, std::vector<ReplySegment> news,
                              Generation& generation) {
  Choice& choice = choices_[delta.choice];
  std::string result;
  if (!std::exchange(choice.started, true))
    result = look(generation) + first_event(delta.choice, generation);
  const bool last = delta.finish != FinishReason::kNone;
  for (ReplySegment& segment : news) read_call(choice, segment);
  std::erase_if(news, [&](const ReplySegment& one) {
    return is_silent(one) || (one.kind == Kind::kReasoning && !call_.include_reasoning);
  });
  if (news.empty() && last && (!choice.logprobs.empty() || !choice.ids.empty()))
    news.push_back({Kind::kText, {}});
  if (call_.continuous_usage) return result + joint_event(delta, news, generation);
  for (const ReplySegment& segment : news) {
    if (segment.kind == Kind::kText && !call_.logprobs && !call_.token_ids) {  // the common case
      const std::string index = std::to_string(delta.choice), quoted = json_text(segment.text);
      const std::string_view pieces[] = {R"({"delta":{"content":)", quoted,
                                         R"(},"finish_reason":null,"index":)", index,
                                         R"(,"logprobs":null})"};
      result += events_.event(pieces, generation, delta.n_tokens, timings_now(delta, generation));
      continue;
    }
    result += chunk(delta, piece(choice, segment), details(choice), generation);
  }
  if (last) result += chunk(delta, json::object(), finish_fields(delta), generation);
  return result;
}

std::string ChatShape::first_event(int index, const Generation& generation) const {
  json extra = json::object();
  if (call_.token_ids) extra["prompt_token_ids"] = generation.prompt_output(0).prompt_token_ids;
  if (call_.prompt_text) extra["prompt_text"] = prompt_text(generation);
  ChoiceDelta none;
  none.choice = index;
  return chunk(none, {{"role", "assistant"}, {"content", call_.echo}}, std::move(extra),
               generation);
}

// Sends all segments of a delta in one event, so that token counts of a choice's events differ.
std::string ChatShape::joint_event(const ChoiceDelta& delta, const std::vector<ReplySegment>& news,
                                   const Generation& generation) {
  Choice& choice = choices_[delta.choice];
  const bool last = delta.finish != FinishReason::kNone;
  if (news.empty() && !last) return {};
  json said = json::object();
  for (const ReplySegment& segment : news) {
    json one = piece(choice, segment);
    if (said.contains("tool_calls") && one.contains("tool_calls")) {
      said["tool_calls"].push_back(std::move(one["tool_calls"][0]));
    } else {
      said.update(one);
    }
  }
  json extra = news.empty() ? json::object() : details(choice);
  if (last) extra.update(finish_fields(delta));
  return chunk(delta, std::move(said), std::move(extra), generation);
}

// Returns log-probabilities and token ids of the event's text.
json ChatShape::details(Choice& choice) const {
  json extra = json::object();
  if (call_.logprobs)
    extra["logprobs"] = {{"content", std::exchange(choice.logprobs, json::array())}};
  if (call_.token_ids) extra["token_ids"] = std::exchange(choice.ids, {});
  return extra;
}

json ChatShape::finish_fields(const ChoiceDelta& delta) const {
  return {{"finish_reason", finish_name(call_, choices_[delta.choice].reader)},
          {"stop_reason", stop_reason_json(delta.stop_reason)}};
}

// Records a starting call; converts a piece of arguments to the text it adds to a custom tool's
// call.
void ChatShape::read_call(Choice& choice, ReplySegment& segment) const {
  if (segment.kind != Kind::kCall) return;
  if (segment.begins) {
    choice.forms.push_back(form_of(call_.forms, segment.call.name));
    choice.input = {};
  }
  const CallForm* form = choice.forms.back();
  if (form != nullptr && form->custom)
    segment.call.arguments = choice.input.add(segment.call.arguments, segment.ends);
}

json ChatShape::piece(const Choice& choice, const ReplySegment& segment) {
  if (segment.kind == Kind::kText) return {{"content", segment.text}};
  // Two names are in use: vLLM's and DeepSeek's.
  if (segment.kind == Kind::kReasoning)
    return {{"reasoning", segment.text}, {"reasoning_content", segment.text}};
  const CallForm* form = choice.forms[static_cast<size_t>(segment.n_call)];
  return {{"tool_calls", json::array({call_delta(segment, form)})}};
}

std::string ChatShape::chunk(const ChoiceDelta& of, json delta, json extra,
                             const Generation& generation) const {
  json choice = {{"index", of.choice},
                 {"delta", std::move(delta)},
                 {"logprobs", nullptr},
                 {"finish_reason", nullptr}};
  choice.update(extra);
  return events_.event(dump(choice), generation, of.n_tokens, timings_now(of, generation));
}

json ChatShape::message(const ChatReader& reader) const {
  const std::string text = call_.echo + reader.text_of(Kind::kText);
  json result = {{"role", "assistant"}, {"content", text}, {"refusal", nullptr}};
  if (text.empty() && reader.n_calls() > 0) result["content"] = nullptr;
  const std::string reasoning = reader.text_of(Kind::kReasoning);
  if (call_.include_reasoning && !reasoning.empty())
    result["reasoning"] = result["reasoning_content"] = reasoning;
  for (const ReplySegment& segment : reader.segments()) {
    if (segment.kind != Kind::kCall) continue;
    ToolCall call = segment.call;
    const CallForm* form = form_of(call_.forms, call.name);
    if (form != nullptr && form->custom) call.arguments = custom_input(call.arguments);
    result["tool_calls"].push_back(call_json(call, form));
  }
  return result;
}

json ChatShape::choice_json(const CompletionOutput& one, size_t prompt) {
  const size_t index =
      prompt * static_cast<size_t>(call_.generation.params.n) + static_cast<size_t>(one.index);
  Choice& choice = choices_[index];
  json result = {{"index", index},
                 {"message", message(choice.reader)},
                 {"finish_reason", finish_name(call_, choice.reader)},
                 {"stop_reason", stop_reason_json(one.stop_reason)},
                 {"logprobs", nullptr},
                 {"token_ids", nullptr}};
  if (call_.logprobs)
    result["logprobs"] = {{"content", std::move(choice.logprobs)}, {"refusal", nullptr}};
  if (call_.token_ids) result["token_ids"] = one.token_ids;
  return result;
}

json ChatShape::whole(const Generation& generation) {
  const RequestOutput& first = generation.outputs().front();
  json body = envelope(call_, kChatObject);
  body["choices"] = json::array();
  for (size_t prompt = 0; prompt < generation.outputs().size(); ++prompt) {
    for (const CompletionOutput& one : generation.outputs()[prompt].outputs)
      body["choices"].push_back(choice_json(one, prompt));
  }
  body["prompt_logprobs"] =
      call_.prompt_logprobs ? prompt_logprobs_json(names_.tokenizer(), first) : json();
  body["prompt_token_ids"] = call_.token_ids ? json(first.prompt_token_ids) : json();
  if (call_.prompt_text) body["prompt_text"] = prompt_text(generation);
  add_totals(call_, generation, body, n_reasoning_tokens());
  return body;
}

}  // namespace

net::awaitable<void> post_chat_completions(Services& services, Exchange& exchange) {
  return answer_call<ChatShape>(services, exchange, read_chat_call);
}

net::awaitable<void> post_chat_batch(Services& services, Exchange& exchange) {
  return answer_call<ChatShape>(services, exchange, read_chat_batch);
}

}  // namespace penstock
