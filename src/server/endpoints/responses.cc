// POST /v1/responses: OpenAI's responses, plain and as typed stream events. Nothing is stored.
#include "server/api/conversations.h"

#include "server/api/answer.h"
#include "server/api/api_request.h"
#include "server/api/errors.h"
#include "server/api/openai_json.h"
#include "server/api/schemas.h"
#include "server/http/run_apart.h"
#include "server/server.h"

namespace penstock {
namespace {

using Kind = ReplySegment::Kind;

struct ResponseCall {
  GenerationCall generation;
  ChatTask task;
  json echoed = json::object();  // the fields of the reply that repeat the request
  std::string id;
  bool stream = false, logprobs = false, timings = false;
};

// The request's own fields in the reply, with the defaults of those it left out.
json echoed_fields(const json& body, const SamplingParams& params) {
  const auto given = [&](const char* name, json fallback) {
    const json& value = get_field(body, name);
    return value.is_null() ? fallback : value;
  };
  const json& reasoning = get_field(body, "reasoning");
  const json& text = get_field(body, "text");
  const json format = text.is_object() ? get_field(text, "format") : json();
  return {
      {"instructions", given("instructions", nullptr)},
      {"max_output_tokens", given("max_output_tokens", nullptr)},
      {"metadata", given("metadata", json::object())},
      {"parallel_tool_calls", get_bool(body, "parallel_tool_calls", true)},
      {"reasoning",
       {{"effort", reasoning.is_object() ? get_field(reasoning, "effort") : json()}, {"summary", nullptr}}},
      {"temperature", params.temperature},
      {"top_p", params.top_p},
      {"text", {{"format", format.is_null() ? json{{"type", "text"}} : format}}},
      {"tool_choice", given("tool_choice", "auto")},
      {"tools", given("tools", json::array())},
      {"top_logprobs", get_int(body, "top_logprobs", 0)},
      {"truncation", "disabled"},
      {"previous_response_id", nullptr},
      {"background", false},
      {"store", false},
      {"service_tier", "default"},
      {"user", given("user", nullptr)}};
}

bool wants_logprobs(const json& body) {
  const json& include = get_field(body, "include");
  return include.is_array() &&
         std::ranges::find(include, json("message.output_text.logprobs")) != include.end();
}

Result<ResponseCall> read_response_call(Server& server, const HttpRequest& request) {
  ASSIGN_OR_RETURN(ApiBody asked, read_body(server, request, responses_request()));
  json& body = asked.fields;
  ServedModel& model = *asked.model;
  ResponseCall call;
  ASSIGN_OR_RETURN(call.generation, read_generation(server, asked, body, -1));
  SamplingParams& params = call.generation.params;
  call.echoed = echoed_fields(body, params);  // before the conversation takes what it needs
  ASSIGN_OR_RETURN(Conversation conversation, conversation_of_response(body));
  call.generation.tool_schemas = "parameters";
  call.generation.strict_tools = true;
  ASSIGN_OR_RETURN(call.task, read_task(std::move(conversation), call.generation));
  const int room = model.max_model_len() - static_cast<int>(call.task.prompt.size());
  params.max_tokens = static_cast<int>(get_int(body, "max_output_tokens", std::max(room, 1)));
  const auto top = static_cast<int>(get_int(body, "top_logprobs", 0));
  call.logprobs = wants_logprobs(body);
  if (top > 0 && !call.logprobs) {
    return errorf(ErrorCode::kInvalidArgument,
                  "top_logprobs: needs include: [\"message.output_text.logprobs\"]");
  }
  if (call.logprobs) params.logprobs = top;
  call.generation.prompts.push_back(std::move(call.task.prompt));
  call.generation.keep_markers = call.task.parses();
  const std::string id = get_string(body, "request_id");
  call.id = id.empty() ? random_id("resp_") : "resp_" + id;
  call.stream = get_bool(body, "stream");
  call.timings = get_bool(body, "timings");
  return call;
}

class ResponseShape final : public ReplyShape {
 public:
  explicit ResponseShape(const ResponseCall& call)
      : call_(call), names_(call.generation.model->tokenizer(), false), reader_(call.task, "call_") {}

  std::string begin(const Generation&) override {
    const json response = head("in_progress");
    std::string events = event("response.created", {{"response", response}});
    return events += event("response.in_progress", {{"response", response}});
  }
  std::string add(const ChoiceDelta& delta, Generation& generation) override;
  std::string end(const Generation& generation) override;
  json whole(const Generation& generation) override;
  HttpReply error(const Error& error) override { return error_reply(error, "input"); }
  std::string error_event(const Error& error) override;

 private:
  struct Item {
    Kind kind;
    std::string id, text;
    ToolCall call;
    json logprobs = json::array();
  };

  // Numbers the events: the order of calls is the order of sending.
  std::string event(const std::string& type, json fields);
  std::string take(const ReplySegment& segment, json logprobs);
  std::string open_item(const ReplySegment& segment);
  std::string close_item();
  std::string call_events();
  json item_json(const Item& item, const char* status) const;
  json part_json(const Item& item) const;
  json head(const char* status) const;
  json finished(const Generation& generation) const;
  // The place of the open item in events.
  json place() const {
    return {{"item_id", items_.back().id}, {"output_index", items_.size() - 1}, {"content_index", 0}};
  }

  const ResponseCall& call_;
  TokenNames names_;
  ChatReader reader_;
  std::vector<Item> items_;
  bool open_ = false;          // the last item may still grow
  json held_ = json::array();  // log-probabilities of text that is still held back
  int64_t created_ = unix_time(), sequence_ = 0;
};

std::string ResponseShape::event(const std::string& type, json fields) {
  if (!call_.stream) return {};
  fields["type"] = type;
  fields["sequence_number"] = sequence_++;
  return sse_event(type, fields);
}

json ResponseShape::part_json(const Item& item) const {
  if (item.kind == Kind::kReasoning) return {{"type", "reasoning_text"}, {"text", item.text}};
  return {{"type", "output_text"},
          {"text", item.text},
          {"annotations", json::array()},
          {"logprobs", item.logprobs}};
}

json ResponseShape::item_json(const Item& item, const char* status) const {
  json result = {{"id", item.id}, {"status", status}};
  const bool begun = std::string_view(status) == "in_progress";
  if (item.kind == Kind::kCall) {
    result.update({{"type", "function_call"},
                   {"call_id", item.call.id},
                   {"name", item.call.name},
                   {"arguments", begun ? "" : item.call.arguments}});
    return result;
  }
  result["content"] = begun ? json::array() : json::array({part_json(item)});
  if (item.kind == Kind::kReasoning) {
    result.update({{"type", "reasoning"}, {"summary", json::array()}});
  } else {
    result.update({{"type", "message"}, {"role", "assistant"}});
  }
  return result;
}

std::string ResponseShape::open_item(const ReplySegment& segment) {
  Item item{segment.kind,
            random_id(segment.kind == Kind::kReasoning ? "rs_"
                      : segment.kind == Kind::kText    ? "msg_"
                                                       : "fc_"),
            {},
            segment.call};
  items_.push_back(std::move(item));
  open_ = true;
  std::string events =
      event("response.output_item.added",
            {{"output_index", items_.size() - 1}, {"item", item_json(items_.back(), "in_progress")}});
  if (segment.kind == Kind::kCall) return events;
  json fields = place();
  fields["part"] = part_json(items_.back());
  return events + event("response.content_part.added", std::move(fields));
}

std::string ResponseShape::call_events() {
  const ToolCall& call = items_.back().call;
  json fields = {{"item_id", items_.back().id}, {"output_index", items_.size() - 1}};
  json done = fields;
  fields["delta"] = call.arguments;
  done.update({{"name", call.name}, {"arguments", call.arguments}});
  std::string events = event("response.function_call_arguments.delta", std::move(fields));
  return events += event("response.function_call_arguments.done", std::move(done));
}

std::string ResponseShape::close_item() {
  if (!open_) return {};
  open_ = false;
  const Item& item = items_.back();
  std::string events;
  if (item.kind == Kind::kCall) {
    events = call_events();
  } else {
    json text = place(), part = place();
    text["text"] = item.text;
    if (item.kind == Kind::kText) text["logprobs"] = item.logprobs;
    part["part"] = part_json(item);
    events = event(item.kind == Kind::kText ? "response.output_text.done" : "response.reasoning_text.done",
                   std::move(text));
    events += event("response.content_part.done", std::move(part));
  }
  const char* status = reader_.finish() == FinishReason::kLength ? "incomplete" : "completed";
  return events + event("response.output_item.done",
                        {{"output_index", items_.size() - 1}, {"item", item_json(item, status)}});
}

std::string ResponseShape::take(const ReplySegment& segment, json logprobs) {
  std::string events;
  if (!open_ || segment.kind == Kind::kCall || items_.back().kind != segment.kind) {
    events = close_item();
    events += open_item(segment);
  }
  if (segment.kind == Kind::kCall) return events + close_item();
  Item& item = items_.back();
  item.text += segment.text;
  json fields = place();
  fields["delta"] = segment.text;
  if (segment.kind == Kind::kReasoning)
    return events + event("response.reasoning_text.delta", std::move(fields));
  for (const json& one : logprobs) item.logprobs.push_back(one);
  fields["logprobs"] = std::move(logprobs);
  return events + event("response.output_text.delta", std::move(fields));
}

std::string ResponseShape::add(const ChoiceDelta& delta, Generation& generation) {
  if (call_.logprobs && !delta.logprobs.empty()) held_.push_back(chat_logprob_json(names_, delta.logprobs));
  std::string events;
  for (const ReplySegment& segment : read_delta(reader_, delta, generation)) {
    events += take(segment, std::exchange(held_, json::array()));
  }
  if (delta.finish == FinishReason::kNone) return events;
  // A reply without a word still has a message.
  if (items_.empty()) events += take({Kind::kText, {}}, json::array());
  return events + close_item();
}

json ResponseShape::head(const char* status) const {
  json response = {{"id", call_.id},
                   {"object", "response"},
                   {"created_at", created_},
                   {"status", status},
                   {"error", nullptr},
                   {"usage", nullptr},
                   {"incomplete_details", nullptr},
                   {"model", call_.generation.name()},
                   {"output", json::array()}};
  response.update(call_.echoed);
  return response;
}

json ResponseShape::finished(const Generation& generation) const {
  const bool cut = reader_.finish() == FinishReason::kLength;
  json response = head(cut ? "incomplete" : "completed");
  if (cut) response["incomplete_details"] = {{"reason", "max_output_tokens"}};
  for (const Item& item : items_) {
    response["output"].push_back(
        item_json(item, cut && &item == &items_.back() ? "incomplete" : "completed"));
  }
  response["usage"] = {{"input_tokens", generation.n_prompt_tokens()},
                       {"input_tokens_details", {{"cached_tokens", generation.n_cached_tokens()}}},
                       {"output_tokens", generation.n_completion_tokens()},
                       {"output_tokens_details", {{"reasoning_tokens", reader_.n_reasoning_tokens()}}},
                       {"total_tokens", generation.n_prompt_tokens() + generation.n_completion_tokens()}};
  if (call_.timings) response["timings"] = timings_json(generation);
  return response;
}

std::string ResponseShape::end(const Generation& generation) {
  const bool cut = reader_.finish() == FinishReason::kLength;
  return event(cut ? "response.incomplete" : "response.completed", {{"response", finished(generation)}});
}

json ResponseShape::whole(const Generation& generation) { return finished(generation); }

std::string ResponseShape::error_event(const Error& error) {
  json response = head("failed");
  response["error"] = {{"code", "server_error"}, {"message", error.message}};
  return event("response.failed", {{"response", std::move(response)}});
}

}  // namespace

net::awaitable<void> post_responses(Server& server, Exchange& exchange) {
  decltype(read_response_call(server, exchange.request())) call;
  co_await run_apart(exchange, [&] { call = read_response_call(server, exchange.request()); });
  if (!call) co_return co_await exchange.reply(error_reply(call.error()));
  ResponseShape shape(*call);
  co_await answer(server, exchange, call->generation, call->stream, shape);
}

}  // namespace penstock
