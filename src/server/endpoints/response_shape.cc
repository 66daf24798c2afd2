#include "server/endpoints/response_shape.h"

#include "base/json_text.h"
#include "server/api/earlier_items.h"
#include "server/api/response_items.h"
#include "server/routing/client_reason.h"
#include "server/routing/errors.h"
#include "server/services/data_folder.h"
#include "server/services/request_log.h"
#include "server/services/services.h"

namespace penstock {

ResponseShape::ResponseShape(Services& services, const ResponseCall& call, const BackgroundRun* run)
    : services_(services),
      call_(call),
      run_(run),
      names_(call.generation.model->tokenizer(), false),
      reader_(call.task, "call_") {}

std::string ResponseShape::begin() {
  if (!call_.stream) return {};
  const std::string response = begun("in_progress");
  std::string events = response_event("response.created", response);
  ++sequence_;
  events += response_event("response.in_progress", response);
  ++sequence_;
  return events;
}

std::string ResponseShape::response_event(const std::string& type,
                                          const std::string& response) const {
  return fmt::format(
      "event: {0}\ndata: {{\"response\":{1},\"type\":\"{0}\",\"sequence_number\":{2}}}\n\n", type,
      response, sequence_);
}

std::string ResponseShape::event(const std::string& type, json fields) {
  if (!call_.stream) return {};
  fields["type"] = type;
  fields["sequence_number"] = sequence_++;
  return sse_event(type, fields);
}

std::string ResponseShape::item_event(const char* type, size_t place, json fields) {
  fields["item_id"] = items_[place].id;
  fields["output_index"] = place;
  return event(type, std::move(fields));
}

json ResponseShape::part_json(const Item& item) const {
  if (item.kind == Kind::kReasoning) return {{"type", "reasoning_text"}, {"text", item.text}};
  return {{"type", "output_text"},
          {"text", item.text},
          {"annotations", json::array()},
          {"logprobs", item.logprobs}};
}

json ResponseShape::item_json(const Item& item) const {
  if (!item.list.is_null()) return item.list;
  if (!item.mcp.id.empty()) return mcp_call_json(item.mcp, item.status);
  json result = {{"id", item.id}, {"status", item.status}};
  const bool begun = std::string_view(item.status) == "in_progress";
  if (item.kind == Kind::kCall) {
    result.update({{"type", item.custom() ? "custom_tool_call" : "function_call"},
                   {"call_id", item.call.id},
                   {"name", item.call.name},
                   {item.custom() ? "input" : "arguments", item.call.arguments}});
    if (item.form != nullptr && !item.form->name_space.empty())
      result["namespace"] = item.form->name_space;
    return result;
  }
  result["content"] = begun ? json::array() : json::array({part_json(item)});
  if (item.kind == Kind::kReasoning) {
    result.update({{"type", "reasoning"}, {"summary", json::array()}});
    if (call_.seals_reasoning)
      result["encrypted_content"] = begun ? json("") : json(sealed_reasoning(item.text));
  } else {
    result.update({{"type", "message"}, {"role", "assistant"}});
  }
  return result;
}

std::string ResponseShape::added(Item item) {
  items_.push_back(std::move(item));
  return event("response.output_item.added",
               {{"output_index", items_.size() - 1}, {"item", item_json(items_.back())}});
}

std::string ResponseShape::done(size_t place) {
  return event("response.output_item.done",
               {{"output_index", place}, {"item", item_json(items_[place])}});
}

std::string ResponseShape::open_item(const ReplySegment& segment) {
  open_ = true;
  if (segment.kind == Kind::kCall) return open_call(segment.call);
  Item item{segment.kind, random_id(segment.kind == Kind::kReasoning ? "rs_" : "msg_")};
  std::string events = added(std::move(item));
  json fields = place();
  fields["part"] = part_json(items_.back());
  return events + event("response.content_part.added", std::move(fields));
}

std::string ResponseShape::open_call(const ToolCall& call) {
  const McpCallee* const callee = call_.mcp ? call_.mcp->find(call.name) : nullptr;
  if (callee == nullptr) {
    Item item{Kind::kCall, random_id("fc_"), {}, {call.name, {}, call.id}};
    item.form = form_of(call_.forms, call.name);
    if (item.form != nullptr) item.call.name = item.form->name;
    if (item.custom()) item.id = random_id("ctc_");
    return added(std::move(item));
  }
  McpCallItem mcp;
  mcp.id = random_id(callee->asks ? "mcpr_" : "mcp_");
  mcp.label = callee->use->label, mcp.name = call.name, mcp.asks = callee->asks;
  return open_mcp_call(std::move(mcp));
}

std::string ResponseShape::open_mcp_call(McpCallItem call) {
  const bool asks = call.asks;
  Item item{Kind::kCall, call.id};
  item.mcp = std::move(call);
  const std::string events = added(std::move(item));
  return asks ? events : events + item_event("response.mcp_call.in_progress", items_.size() - 1);
}

std::string ResponseShape::call_piece(const ReplySegment& segment) {
  std::string events;
  if (segment.begins) {
    events = close_item();
    events += open_item(segment);
  }
  Item& item = items_.back();
  const std::string piece =
      item.custom() ? item.input.add(segment.call.arguments, segment.ends) : segment.call.arguments;
  const bool is_mcp = !item.mcp.id.empty();
  (is_mcp ? item.mcp.arguments : item.call.arguments) += piece;
  if (!piece.empty() && !item.mcp.asks) {
    events += item_event(is_mcp          ? "response.mcp_call_arguments.delta"
                         : item.custom() ? "response.custom_tool_call_input.delta"
                                         : "response.function_call_arguments.delta",
                         items_.size() - 1, {{"delta", piece}});
  }
  return segment.ends ? events + close_item(is_cut()) : events;
}

// A call that this server runs stays in progress.
std::string ResponseShape::close_mcp_call(size_t place, bool cut) {
  Item& item = items_[place];
  std::string events;
  if (!item.mcp.asks) {
    events =
        item_event("response.mcp_call_arguments.done", place, {{"arguments", item.mcp.arguments}});
    if (!cut) return events;
  }
  item.status = cut ? "incomplete" : "completed";
  return events + done(place);
}

// cut: the reply ended here, so that the item is incomplete unless it is a complete call.
std::string ResponseShape::close_item(bool cut) {
  if (!open_) return {};
  open_ = false;
  Item& item = items_.back();
  const bool is_mcp = !item.mcp.id.empty();
  const std::string& arguments = is_mcp ? item.mcp.arguments : item.call.arguments;
  if (cut && item.kind == Kind::kCall)
    cut = item.custom() ? !item.input.complete() : bounded_json<json>(arguments).is_discarded();
  if (is_mcp) return close_mcp_call(items_.size() - 1, cut);
  item.status = cut ? "incomplete" : "completed";
  std::string events;
  if (item.kind == Kind::kCall) {
    json fields = {{item.custom() ? "input" : "arguments", item.call.arguments}};
    if (!item.custom()) fields["name"] = item.call.name;
    events = item_event(item.custom() ? "response.custom_tool_call_input.done"
                                      : "response.function_call_arguments.done",
                        items_.size() - 1, std::move(fields));
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
  return events + done(items_.size() - 1);
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
  // An empty reply still has a message item.
  if (items_.size() == round_) events += take({Kind::kText, {}}, json::array());
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
                   {"output", json::array()},
                   {"conversation", nullptr},
                   {"store", call_.store}};
  if (!call_.conversation_id.empty()) response["conversation"] = {{"id", call_.conversation_id}};
  return response;
}

std::string ResponseShape::text_of(const json& own) const {
  std::string text = dump(own);
  text.back() = ',';
  text += call_.echoed;
  return text += '}';
}

void ResponseShape::set_last(json own) {
  last_ = std::move(own);
  last_text_.clear();
}

const std::string& ResponseShape::last_text() {
  if (last_text_.empty()) last_text_ = text_of(last_);
  return last_text_;
}

void ResponseShape::add_use(const Generation& generation) {
  use_.input += generation.n_prompt_tokens();
  use_.cached += generation.n_cached_tokens();
  if (details_.empty()) add_cache_miss(generation, details_);
  use_.output += generation.n_completion_tokens();
  use_.reasoning += reader_.n_reasoning_tokens();
  mark_kept(generation, marks_);
  if (call_.timings) timings_ = timings_json(generation);
}

json ResponseShape::finished(std::string reason) const {
  if (reason.empty() && is_cut()) reason = "max_output_tokens";
  json response = head(reason.empty() ? "completed" : "incomplete");
  if (!reason.empty()) response["incomplete_details"] = {{"reason", reason}};
  add_output(response);
  if (call_.timings) response["timings"] = timings_;
  return response;
}

void ResponseShape::add_output(json& response) const {
  for (const Item& item : items_) response["output"].push_back(item_json(item));
  json details = {{"cached_tokens", use_.cached}};
  details.update(details_);
  response["usage"] = {{"input_tokens", use_.input},
                       {"input_tokens_details", std::move(details)},
                       {"output_tokens", use_.output},
                       {"output_tokens_details", {{"reasoning_tokens", use_.reasoning}}},
                       {"total_tokens", use_.input + use_.output}};
  response["usage"].update(marks_);
}

json ResponseShape::failed(std::string_view message) const {
  json response = head("failed");
  response["error"] = {{"code", "server_error"}, {"message", message}};
  if (call_.mcp) add_output(response);
  return response;
}

void ResponseShape::begin_round() {
  reader_ = ChatReader(call_.task, "call_");
  round_ = items_.size();
}

json ResponseShape::round_items() const {
  json items = json::array();
  for (size_t i = round_; i < items_.size(); ++i) items.push_back(item_json(items_[i]));
  return items;
}

std::vector<size_t> ResponseShape::calls_to_run() const {
  std::vector<size_t> places;
  for (size_t i = round_; i < items_.size(); ++i) {
    const bool waits = std::string_view(items_[i].status) == "in_progress";
    if (waits && !items_[i].mcp.id.empty() && !items_[i].mcp.asks) places.push_back(i);
  }
  return places;
}

bool ResponseShape::waits_for_client() const {
  for (size_t i = round_; i < items_.size(); ++i) {
    const Item& item = items_[i];
    const bool is_call = item.kind == Kind::kCall && item.list.is_null();
    if (is_call && (item.mcp.id.empty() || item.mcp.asks)) return true;
  }
  return is_cut();
}

std::string ResponseShape::end_call(size_t place, const Result<McpResult>& result) {
  Item& item = items_[place];
  const bool worked = result && !result->failed;
  if (worked)
    item.mcp.output = result->text;
  else
    item.mcp.problem = !result                ? result.error().message
                       : result->text.empty() ? "the tool has failed"
                                              : result->text;
  item.status = worked ? "completed" : "failed";
  const std::string events =
      item_event(worked ? "response.mcp_call.completed" : "response.mcp_call.failed", place);
  return events + done(place);
}

std::string ResponseShape::begin_approved(const ApprovedCall& approved) {
  McpCallItem call;
  call.id = random_id("mcp_");
  call.label = approved.label, call.name = approved.name, call.arguments = approved.arguments;
  call.request_id = approved.request_id;
  const std::string begun = open_mcp_call(std::move(call));
  return begun + close_mcp_call(last_place(), false);
}

std::string ResponseShape::begin_list(const std::string& label) {
  Item item{Kind::kCall, random_id("mcpl_")};
  item.list = {{"id", item.id},
               {"type", "mcp_list_tools"},
               {"server_label", label},
               {"tools", json::array()},
               {"error", nullptr}};
  const std::string events = added(std::move(item));
  return events + item_event("response.mcp_list_tools.in_progress", items_.size() - 1);
}

std::string ResponseShape::end_list(const Result<json>& tools) {
  const size_t place = items_.size() - 1;
  json& list = items_[place].list;
  if (tools)
    list["tools"] = *tools;
  else
    list["error"] = tools.error().message;
  const std::string events = item_event(
      tools ? "response.mcp_list_tools.completed" : "response.mcp_list_tools.failed", place);
  return events + done(place);
}

net::awaitable<void> ResponseShape::finish(std::string reason) {
  set_last(finished(std::move(reason)));
  if (!call_.conversation_id.empty()) co_await extend();
  if (call_.store) co_await store();
}

// Appends the items to the conversation; marks the response as failed if that fails.
net::awaitable<void> ResponseShape::extend() {
  Status added;
  co_await services_.chores.run(
      call_.asker, [&] { added = extend_conversation(**services_.data.stores(), call_, last_); });
  if (added) co_return;
  services_.log.error(fmt::format("{}: {} does not go on: {}", call_.id, call_.conversation_id,
                                  added.error().message));
  set_last(failed("conversation: " + without_folders(added.error().message)));
}

net::awaitable<void> ResponseShape::fail(std::string message) {
  set_last(failed(message));
  if (call_.store) co_await store();
}

std::string ResponseShape::last_event() {
  return response_event("response." + get_string(last_, "status"), last_text());
}

net::awaitable<void> ResponseShape::keep(const Generation& generation, const Error* error) {
  add_use(generation);
  if (error != nullptr) co_return co_await fail(error->message);
  if (generation.error()) co_return co_await fail(kStopped);
  co_await finish("");
}

net::awaitable<std::string> ResponseShape::keep_unfinished(std::string reason) {
  set_last(reason.empty() ? head("cancelled") : failed(reason));
  co_await store();
  co_return last_event();
}

net::awaitable<void> ResponseShape::store() {
  StoredResponse stored;
  stored.id = call_.id, stored.owner = call_.owner;
  stored.input = call_.items;
  Result<bool> kept;
  co_await services_.chores.run(call_.asker, [&] {
    stored.reply = last_text();
    if (run_ != nullptr && run_->keeps_events()) stored.events = run_->events() + last_event();
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
  last_text_.clear();
  services_.log.error(
      fmt::format("{} is not kept: {}", call_.id,
                  kept ? "it is larger than what an API key may keep" : kept.error().message));
}

}  // namespace penstock
