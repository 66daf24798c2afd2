// POST /v1/messages and /v1/messages/count_tokens: Anthropic's API.
#include "base/json_text.h"
#include "frontend/chat/exact_json.h"
#include "server/api/api_request.h"
#include "server/api/conversations.h"
#include "server/api/counted_text.h"
#include "server/api/openai_json.h"
#include "server/api/schemas.h"
#include "server/handlers/answer.h"
#include "server/http/apart_threads.h"
#include "server/routing/errors.h"
#include "server/services/client_warnings.h"
#include "server/services/services.h"

namespace penstock {
namespace {

using Kind = ReplySegment::Kind;

HttpReply anthropic_error(const Error& error) {
  HttpReply reply = error_reply(error);
  if (error.message == kNoThreads) {  // clients retry without threads after this error
    json body = bounded_json<json>(anthropic_error_body(reply.status, error.message));
    body["error"]["details"] = {{"error_code", "thread_unsupported_request"},
                                {"unsupported", json::array({"thread"})}};
    reply.body = dump(body);
    return reply;
  }
  // Anthropic's message, which its clients match.
  const char* before = error.code == ErrorCode::kContextOverflow ? "prompt is too long: " : "";
  reply.body = anthropic_error_body(reply.status, before + error.message);
  return reply;
}

// Returns warnings about requested features that this server ignores.
std::vector<std::string> warnings_of_messages(const json& body) {
  std::vector<std::string> warnings;
  const auto is_something = [&](const char* name) {
    const json& value = get_field(body, name);
    return !value.is_null() && !value.empty();
  };
  if (is_something("mcp_servers"))
    warnings.emplace_back("mcp_servers: this server asks no MCP servers");
  if (is_something("container"))
    warnings.emplace_back("container: this server runs no code, there are no containers");
  const json& edits = get_field(get_field(body, "context_management"), "edits");
  for (size_t i = 0; i < edits.size(); ++i) {
    const bool keeps = get_string(edits[i], "type").starts_with("clear_thinking") &&
                       get_field(edits[i], "keep") == "all";
    if (keeps) continue;
    warnings.push_back(
        fmt::format("context_management.edits[{}]: nothing of the context is cleared", i));
  }
  return warnings;
}

// stop_sequences are read, and so bounded, as this server's stop.
Result<GenerationCall> read_message_generation(const Services& services, const ApiBody& asked,
                                               json& body) {
  json stop = take_field(body, "stop_sequences");
  if (stop.is_array()) body["stop"] = std::move(stop);
  auto generation = read_generation(services, asked, body, 1);
  constexpr std::string_view kOwn = "stop: ";
  if (!generation && generation.error().message.starts_with(kOwn))
    generation.error().message.replace(0, kOwn.size(), "stop_sequences: ");
  return generation;
}

struct MessageCall {
  GenerationCall generation;
  ChatTask task;
  std::string id;
  bool stream = false, timings = false, manages_context = false;
};

Result<MessageCall> read_message_call(Services& services, const HttpRequest& request) {
  ASSIGN_OR_RETURN(ApiBody asked, read_body(services, request, messages_request()));
  json& body = asked.fields;
  ServedModel& model = *asked.model;
  MessageCall call;
  ASSIGN_OR_RETURN(AskedConversation conversation, conversation_of_messages(body));
  warn_client(request, conversation.warnings);
  warn_client(request, warnings_of_messages(body));
  ASSIGN_OR_RETURN(call.generation, read_message_generation(services, asked, body));
  call.generation.tool_schemas = "input_schema";
  ASSIGN_OR_RETURN(call.task, read_task(std::move(conversation), call.generation));
  warn_client(request, call.task.warning);
  call.generation.prompts.push_back(std::move(call.task.prompt));
  // A model without reasoning stays within any budget.
  if (const auto n = get_int(get_field(body, "thinking"), "budget_tokens", -1); n >= 0) {
    const auto budget =
        model.chat().thinking_budget(static_cast<int>(n), call.task.parsers.starts_in_reasoning);
    if (budget) call.generation.thinking.push_back(*budget);
  }
  call.generation.keep_markers = call.task.parses();
  const std::string id = get_string(body, "request_id");
  call.id = id.empty() ? random_id("msg_") : "msg_" + id;
  call.stream = get_bool(body, "stream");
  call.timings = get_bool(body, "timings");
  call.manages_context = get_field(body, "context_management").is_object();
  return call;
}

class MessageShape final : public ReplyShape {
 public:
  explicit MessageShape(const MessageCall& call) : call_(call), reader_(call.task, "toolu_") {}

  std::string begin(const Generation& generation) override;
  std::string add(const ChoiceDelta& delta, Generation& generation) override;
  std::string end(const Generation& generation) override;
  const char* keep_alive() const override { return "event: ping\ndata: {\"type\": \"ping\"}\n\n"; }
  json whole(const Generation& generation) override;
  std::string whole_text(const Generation& generation) override {
    return dump_exact(whole(generation));
  }
  HttpReply error(const Error& error) override { return anthropic_error(error); }
  std::string error_event(const Error& error) override {
    return "event: error\ndata: " + anthropic_error(error).body + "\n\n";
  }

 private:
  static std::string event(const char* type, json fields) {
    fields["type"] = type;
    return sse_event(type, fields);
  }
  std::string take(const ReplySegment& segment);
  std::string close_block();
  json head() const;
  json stop_fields() const;
  json usage(const Generation& generation) const;

  const MessageCall& call_;
  ChatReader reader_;
  int n_blocks_ = 0;
  bool open_ = false;
  Kind open_kind_ = Kind::kText;
  StopReason stop_reason_;
};

json MessageShape::head() const {
  return {{"id", call_.id},           {"type", "message"},
          {"role", "assistant"},      {"model", call_.generation.name()},
          {"content", json::array()}, {"stop_reason", nullptr},
          {"stop_sequence", nullptr}};
}

// This API counts cached tokens separately from input tokens.
json MessageShape::usage(const Generation& generation) const {
  json usage = {{"input_tokens", generation.n_prompt_tokens() - generation.n_cached_tokens()},
                {"output_tokens", generation.n_completion_tokens()},
                {"cache_read_input_tokens", generation.n_cached_tokens()},
                {"cache_creation_input_tokens", 0}};
  add_cache_miss(generation, usage);
  mark_kept(generation, usage);
  return usage;
}

json MessageShape::stop_fields() const {
  json fields = {{"stop_reason", "end_turn"}, {"stop_sequence", nullptr}};
  if (reader_.finish() == FinishReason::kLength) fields["stop_reason"] = "max_tokens";
  if (reader_.finish() != FinishReason::kStop) return fields;
  if (const auto* text = std::get_if<std::string>(&stop_reason_)) {
    fields = {{"stop_reason", "stop_sequence"}, {"stop_sequence", *text}};
  } else if (reader_.n_calls() > 0) {
    fields["stop_reason"] = "tool_use";
  }
  return fields;
}

std::string MessageShape::begin(const Generation& generation) {
  json message = head();
  message["usage"] = usage(generation);
  return event("message_start", {{"message", std::move(message)}});
}

std::string MessageShape::close_block() {
  if (!std::exchange(open_, false)) return {};
  std::string events;
  if (open_kind_ == Kind::kReasoning) {
    const json delta = {{"type", "signature_delta"}, {"signature", ""}};
    events = event("content_block_delta", {{"index", n_blocks_ - 1}, {"delta", delta}});
  }
  return events + event("content_block_stop", {{"index", n_blocks_ - 1}});
}

std::string MessageShape::take(const ReplySegment& segment) {
  std::string events;
  const bool is_call = segment.kind == Kind::kCall;
  if (is_call ? segment.begins : !open_ || open_kind_ != segment.kind) {
    events = close_block();
    json block = {{"type", "text"}, {"text", ""}};
    if (segment.kind == Kind::kReasoning)
      block = {{"type", "thinking"}, {"thinking", ""}, {"signature", ""}};
    if (is_call) {
      block = {{"type", "tool_use"},
               {"id", segment.call.id},
               {"name", segment.call.name},
               {"input", json::object()}};
    }
    events +=
        event("content_block_start", {{"index", n_blocks_++}, {"content_block", std::move(block)}});
    open_ = true;
    open_kind_ = segment.kind;
  }
  json delta = {{"type", "text_delta"}, {"text", segment.text}};
  if (segment.kind == Kind::kReasoning)
    delta = {{"type", "thinking_delta"}, {"thinking", segment.text}};
  if (is_call) delta = {{"type", "input_json_delta"}, {"partial_json", segment.call.arguments}};
  if (!is_call || !segment.call.arguments.empty())
    events += event("content_block_delta", {{"index", n_blocks_ - 1}, {"delta", std::move(delta)}});
  return is_call && segment.ends ? events + close_block() : events;
}

std::string MessageShape::add(const ChoiceDelta& delta, Generation& generation) {
  const std::vector<ReplySegment> news = read_delta(reader_, delta, generation);
  if (delta.finish != FinishReason::kNone) stop_reason_ = delta.stop_reason;
  if (!call_.stream) return {};
  std::string events;
  for (const ReplySegment& segment : news) events += take(segment);
  return delta.finish == FinishReason::kNone ? events : events + close_block();
}

std::string MessageShape::end(const Generation& generation) {
  json delta = {{"delta", stop_fields()}, {"usage", usage(generation)}};
  if (call_.manages_context) delta["context_management"] = {{"applied_edits", json::array()}};
  if (call_.timings) delta["timings"] = timings_json(generation);
  return event("message_delta", std::move(delta)) + event("message_stop", json::object());
}

json MessageShape::whole(const Generation& generation) {
  json message = head();
  for (const ReplySegment& segment : reader_.segments()) {
    if (segment.kind == Kind::kText)
      message["content"].push_back({{"type", "text"}, {"text", segment.text}});
    if (segment.kind == Kind::kReasoning) {
      message["content"].push_back(
          {{"type", "thinking"}, {"thinking", segment.text}, {"signature", ""}});
    }
    if (segment.kind == Kind::kCall) {
      message["content"].push_back({{"type", "tool_use"},
                                    {"id", segment.call.id},
                                    {"name", segment.call.name},
                                    {"input", arguments_object(segment.call.arguments)}});
    }
  }
  message.update(stop_fields());
  if (call_.manages_context) message["context_management"] = {{"applied_edits", json::array()}};
  message["usage"] = usage(generation);
  if (call_.timings) message["timings"] = timings_json(generation);
  return message;
}

Result<json> count_tokens(Services& services, const HttpRequest& request) {
  ASSIGN_OR_RETURN(ApiBody asked, read_body(services, request, count_tokens_request()));
  RETURN_IF_ERROR(check_read_text(services, request, asked.fields));
  ASSIGN_OR_RETURN(AskedConversation conversation, conversation_of_messages(asked.fields));
  warn_client(request, conversation.warnings);
  conversation.any_length = true;
  ASSIGN_OR_RETURN(const ChatTask task, asked.model->chat().read(std::move(conversation)));
  return json{{"input_tokens", task.prompt.size()}};
}

}  // namespace

net::awaitable<void> post_messages(Services& services, Exchange& exchange) {
  return answer_call<MessageShape>(services, exchange, read_message_call, anthropic_error);
}

net::awaitable<void> post_count_tokens(Services& services, Exchange& exchange) {
  Result<json> result;
  const auto work = [&] { result = count_tokens(services, exchange.request()); };
  if (!co_await run_on_text(services, exchange, exchange.request().body.size(), work)) co_return;
  if (!result) co_return co_await exchange.reply(anthropic_error(result.error()));
  co_await exchange.reply(json_reply(*result));
}

}  // namespace penstock
