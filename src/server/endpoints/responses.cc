// POST /v1/responses: OpenAI's responses, plain and as typed stream events, at once or in the
// background.
#include "base/json_text.h"
#include "server/api/api_request.h"
#include "server/api/openai_json.h"
#include "server/api/response_call.h"
#include "server/handlers/answer.h"
#include "server/handlers/background_stream.h"
#include "server/handlers/constrain.h"
#include "server/http/apart_threads.h"
#include "server/keys/accounts.h"
#include "server/routing/errors.h"
#include "server/services/background_runs.h"
#include "server/services/config.h"
#include "server/services/data_folder.h"
#include "server/services/request_log.h"
#include "server/services/request_record.h"
#include "server/services/services.h"

namespace penstock {
namespace {

using Kind = ReplySegment::Kind;

class ResponseShape final : public ReplyShape {
 public:
  // run: of one in the background, else null.
  ResponseShape(Services& services, const ResponseCall& call, const BackgroundRun* run)
      : services_(services),
        call_(call),
        run_(run),
        names_(call.generation.model->tokenizer(), false),
        reader_(call.task, "call_") {}

  std::string begin(const Generation&) override {
    const json response = head("in_progress");
    std::string events = event("response.created", {{"response", response}});
    return events += event("response.in_progress", {{"response", response}});
  }
  std::string add(const ChoiceDelta& delta, Generation& generation) override;
  net::awaitable<void> keep(const Generation& generation, const Error* error) override;
  std::string end(const Generation&) override { return last_event(); }
  json whole(const Generation&) override { return last_; }
  HttpReply error(const Error& error) override { return error_reply(error, "input"); }
  std::string error_event(const Error&) override { return last_event(); }

  // As it is before anything is generated.
  json head(const char* status) const;
  bool kept() const { return !last_.is_null(); }
  // Keeps one that came to no end. reason: "" if it was cancelled. Returns the event that tells it.
  net::awaitable<std::string> keep_unfinished(std::string reason);

 private:
  struct Item {
    Kind kind;
    std::string id, text;
    ToolCall call;
    json logprobs = json::array();
    const char* status = "in_progress";
  };

  // Numbers the events: the order of calls is the order of sending.
  std::string event(const std::string& type, json fields);
  std::string take(const ReplySegment& segment, json logprobs);
  std::string open_item(const ReplySegment& segment);
  std::string close_item(bool cut = false);
  bool is_cut() const { return reader_.finish() == FinishReason::kLength; }
  std::string call_piece(const ReplySegment& segment);
  json item_json(const Item& item) const;
  json part_json(const Item& item) const;
  json finished(const Generation& generation) const;
  json failed(std::string_view message) const;
  std::string last_event() const;
  net::awaitable<void> store();
  // The place of the open item in events.
  json place() const {
    return {
        {"item_id", items_.back().id}, {"output_index", items_.size() - 1}, {"content_index", 0}};
  }

  Services& services_;
  const ResponseCall& call_;
  const BackgroundRun* const run_;
  TokenNames names_;
  ChatReader reader_;
  std::vector<Item> items_;
  bool open_ = false;          // the last item may still grow
  json held_ = json::array();  // log-probabilities of text that is still held back
  int64_t created_ = unix_time(), sequence_ = 0;
  json last_;  // the response as it has ended
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

json ResponseShape::item_json(const Item& item) const {
  json result = {{"id", item.id}, {"status", item.status}};
  const bool begun = std::string_view(item.status) == "in_progress";
  if (item.kind == Kind::kCall) {
    result.update({{"type", "function_call"},
                   {"call_id", item.call.id},
                   {"name", item.call.name},
                   {"arguments", item.call.arguments}});
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
            {segment.call.name, {}, segment.call.id}};
  items_.push_back(std::move(item));
  open_ = true;
  std::string events = event("response.output_item.added", {{"output_index", items_.size() - 1},
                                                            {"item", item_json(items_.back())}});
  if (segment.kind == Kind::kCall) return events;
  json fields = place();
  fields["part"] = part_json(items_.back());
  return events + event("response.content_part.added", std::move(fields));
}

std::string ResponseShape::call_piece(const ReplySegment& segment) {
  std::string events;
  if (segment.begins) {
    events = close_item();
    events += open_item(segment);
  }
  Item& item = items_.back();
  item.call.arguments += segment.call.arguments;
  if (!segment.call.arguments.empty()) {
    events += event("response.function_call_arguments.delta", {{"item_id", item.id},
                                                               {"output_index", items_.size() - 1},
                                                               {"delta", segment.call.arguments}});
  }
  return segment.ends ? events + close_item(is_cut()) : events;
}

// cut: the reply's end cuts the item off, unless it is a call whose arguments are whole.
std::string ResponseShape::close_item(bool cut) {
  if (!open_) return {};
  open_ = false;
  Item& item = items_.back();
  if (cut && item.kind == Kind::kCall) cut = bounded_json<json>(item.call.arguments).is_discarded();
  item.status = cut ? "incomplete" : "completed";
  std::string events;
  if (item.kind == Kind::kCall) {
    events = event("response.function_call_arguments.done", {{"item_id", item.id},
                                                             {"output_index", items_.size() - 1},
                                                             {"name", item.call.name},
                                                             {"arguments", item.call.arguments}});
  } else {
    json text = place(), part = place();
    text["text"] = item.text;
    if (item.kind == Kind::kText) text["logprobs"] = item.logprobs;
    part["part"] = part_json(item);
    events = event(
        item.kind == Kind::kText ? "response.output_text.done" : "response.reasoning_text.done",
        std::move(text));
    events += event("response.content_part.done", std::move(part));
  }
  return events + event("response.output_item.done",
                        {{"output_index", items_.size() - 1}, {"item", item_json(item)}});
}

std::string ResponseShape::take(const ReplySegment& segment, json logprobs) {
  if (segment.kind == Kind::kCall) return call_piece(segment);
  std::string events;
  if (!open_ || items_.back().kind != segment.kind) {
    events = close_item();
    events += open_item(segment);
  }
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
  if (call_.logprobs && !delta.logprobs.empty())
    held_.push_back(chat_logprob_json(names_, delta.logprobs));
  std::string events;
  for (const ReplySegment& segment : read_delta(reader_, delta, generation)) {
    events += take(segment, std::exchange(held_, json::array()));
  }
  if (delta.finish == FinishReason::kNone) return events;
  // A reply without a word still has a message.
  if (items_.empty()) events += take({Kind::kText, {}}, json::array());
  return events + close_item(is_cut());
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
  const bool cut = is_cut();
  json response = head(cut ? "incomplete" : "completed");
  if (cut) response["incomplete_details"] = {{"reason", "max_output_tokens"}};
  for (const Item& item : items_) response["output"].push_back(item_json(item));
  response["usage"] = {
      {"input_tokens", generation.n_prompt_tokens()},
      {"input_tokens_details", {{"cached_tokens", generation.n_cached_tokens()}}},
      {"output_tokens", generation.n_completion_tokens()},
      {"output_tokens_details", {{"reasoning_tokens", reader_.n_reasoning_tokens()}}},
      {"total_tokens", generation.n_prompt_tokens() + generation.n_completion_tokens()}};
  mark_kept(generation, response["usage"]);
  if (call_.timings) response["timings"] = timings_json(generation);
  return response;
}

json ResponseShape::failed(std::string_view message) const {
  json response = head("failed");
  response["error"] = {{"code", "server_error"}, {"message", message}};
  return response;
}

std::string ResponseShape::last_event() const {
  const std::string type = "response." + get_string(last_, "status");
  return sse_event(type, {{"response", last_}, {"type", type}, {"sequence_number", sequence_}});
}

net::awaitable<void> ResponseShape::keep(const Generation& generation, const Error* error) {
  last_ = error != nullptr ? failed(error->message) : finished(generation);
  if (call_.store) co_await store();
}

net::awaitable<std::string> ResponseShape::keep_unfinished(std::string reason) {
  last_ = reason.empty() ? head("cancelled") : failed(reason);
  co_await store();
  co_return last_event();
}

net::awaitable<void> ResponseShape::store() {
  StoredResponse stored;
  stored.id = call_.id, stored.owner = call_.owner;
  stored.input = call_.items, stored.reply = dump(last_);
  if (run_ != nullptr && run_->keeps_events()) stored.events = run_->events() + last_event();
  Result<bool> kept;
  co_await services_.chores.run(call_.owner, [&] {
    StoredResponses& responses = *(*services_.data.stores())->responses;
    if (run_ == nullptr)
      kept = responses.add(std::move(stored));
    else if (const Status ended = responses.end(stored); !ended)
      kept = tl::unexpected(ended.error());
    else
      kept = true;
  });
  if (kept && *kept) co_return;
  last_["store"] = false;
  services_.log.error(
      fmt::format("{} is not kept: {}", call_.id,
                  kept ? "it is larger than what an API key may keep" : kept.error().message));
}

using SharedCall = std::shared_ptr<Result<ResponseCall>>;

// The reason of a run that came to no end.
std::string reason_of(const BackgroundRun& run, const UnattendedExchange& exchange) {
  if (run.cancelled()) return "";
  if (exchange.replied() && exchange.status() != 200) {
    const json body = bounded_json<json>(exchange.body());
    return get_string(get_field(body, "error"), "message", "it could not be generated");
  }
  if (run.overflowed()) return "its events are more than the server keeps";
  return "the server was stopped while it generated this response";
}

BackgroundRuns::Work background_work(Services& services, const SharedCall& call) {
  return
      [&services, call](BackgroundRun& run, UnattendedExchange& exchange) -> net::awaitable<void> {
        const auto start = std::chrono::steady_clock::now();
        ResponseShape shape(services, **call, &run);
        co_await answer(services, exchange, (*call)->generation, true, shape);
        services.accounts.note_use(exchange, start);
        const bool again =
            exchange.status() == 429 && !exchange.gone() && !record_of(exchange).over_budget;
        if (shape.kept() || again) co_return;
        exchange.put(co_await shape.keep_unfinished(reason_of(run, exchange)));
      };
}

HttpReply queued_reply(Services& services, const ResponseCall& call) {
  return json_reply(ResponseShape(services, call, nullptr).head("queued"));
}

net::awaitable<void> answer_in_background(Services& services, Exchange& exchange,
                                          const SharedCall& call) {
  if (services.background.full())
    co_return co_await exchange.reply(error_reply(429, "background: too much is waiting already"));
  HttpReply queued = queued_reply(services, **call);
  Result<bool> kept;
  co_await services.run_chore(exchange, [&] {
    StoredResponse stored;
    stored.id = (*call)->id, stored.owner = (*call)->owner;
    stored.input = (*call)->items, stored.reply = queued.body;
    stored.ended = false;
    kept = (*services.data.stores())->responses->add(std::move(stored));
  });
  if (!kept) co_return co_await exchange.reply(error_reply(kept.error()));
  if (!*kept) {
    co_return co_await exchange.reply(
        error_reply(400, "input: it is more than what an API key may keep", "input"));
  }
  const bool keeps_events =
      std::exchange((*call)->stream, true);  // without them nobody sees that it has begun
  const auto run = services.background.start(
      (*call)->id, keeps_events, exchange, (*call)->items.size(), background_work(services, call));
  if (services.accounts.is_revoked(record_of(exchange).payer, (*call)->owner))
    services.background.cancel(run->id());
  if (keeps_events) co_return co_await stream_run(services, exchange, run, 0);
  co_await exchange.reply(std::move(queued));
}

}  // namespace

net::awaitable<void> post_responses(Services& services, Exchange& exchange) {
  const auto call = std::make_shared<Result<ResponseCall>>();
  const auto read = [&] { *call = read_response_call(services, exchange.request()); };
  // With a store it may read an earlier conversation from the disk, whose size nobody knows yet.
  const size_t n_bytes = exchange.request().body.size();
  const bool may_read = !services.config.data_dir.empty();
  co_await services.run_apart(exchange,
                              may_read ? std::max(n_bytes, ApartThreads::kSmall) : n_bytes, read);
  if (!*call) co_return co_await exchange.reply(error_reply(call->error()));
  if ((*call)->background) co_return co_await answer_in_background(services, exchange, call);
  ResponseShape shape(services, **call, nullptr);
  co_await answer(services, exchange, (*call)->generation, (*call)->stream, shape);
}

}  // namespace penstock
