// Stored responses: GET and DELETE /v1/responses/{id}, POST /v1/responses/{id}/cancel, GET
// …/{id}/input_items.
#include <algorithm>
#include <boost/asio/use_awaitable.hpp>
#include <charconv>
#include <utility>

#include "base/free_memory.h"
#include "base/json_text.h"
#include "server/api/api_request.h"
#include "server/api/schema_parts.h"
#include "server/api/store_call.h"
#include "server/handlers/answer.h"
#include "server/handlers/background_stream.h"
#include "server/http/apart_threads.h"
#include "server/routing/endpoint.h"
#include "server/routing/errors.h"
#include "server/services/background_runs.h"
#include "server/services/services.h"

namespace penstock {

EndpointSchema response_deleted_reply, response_items_reply;

namespace {

constexpr const char* kResponsePath = "/v1/responses/{id}";

bool is_true(const std::string& text) { return text == "true" || text == "1"; }

Status read_number(const std::string& name, const std::string& text, int64_t least, int64_t most,
                   int64_t& value) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error == std::errc() && end == text.data() + text.size() && value >= least && value <= most)
    return {};
  return errorf(ErrorCode::kInvalidArgument, "{}: expected {} to {}, got {}", name, least, most,
                text);
}

struct ResponseQuery {
  bool stream = false, logprobs = false;
  int64_t starting_after = -1;
};

Result<ResponseQuery> read_response_query(const HttpRequest& request) {
  ResponseQuery query;
  for (const auto& [name, value] : request.query) {
    if (name == "stream" || name == "include_obfuscation") {
      if (!is_true(value) && value != "false" && value != "0")
        return errorf(ErrorCode::kInvalidArgument, "{}: expected true or false, got {}", name,
                      value);
      if (name == "stream") query.stream = is_true(value);
    } else if (name == "starting_after") {
      RETURN_IF_ERROR(read_number(name, value, 0, INT64_MAX - 1, query.starting_after));
    } else if (name == "include" || name == "include[]") {
      if (value != "message.output_text.logprobs" && value != "reasoning.encrypted_content")
        return errorf(ErrorCode::kInvalidArgument,
                      "include: expected message.output_text.logprobs, got {}", value);
      query.logprobs = query.logprobs || value == "message.output_text.logprobs";
    } else {
      return errorf(ErrorCode::kInvalidArgument,
                    "{}: unknown parameter, expected include, stream, starting_after", name);
    }
  }
  if (query.starting_after >= 0 && !query.stream)
    return errorf(ErrorCode::kInvalidArgument, "starting_after: needs stream=true");
  return query;
}

struct ItemsQuery {
  std::string after;
  int64_t limit = 20;
  bool oldest_first = false;
};

Result<ItemsQuery> read_items_query(const HttpRequest& request) {
  ItemsQuery query;
  for (const auto& [name, value] : request.query) {
    if (name == "after") {
      query.after = value;
    } else if (name == "limit") {
      RETURN_IF_ERROR(read_number(name, value, 1, 100, query.limit));
    } else if (name == "order") {
      if (value != "asc" && value != "desc")
        return errorf(ErrorCode::kInvalidArgument, "order: expected asc or desc, got {}", value);
      query.oldest_first = value == "asc";
    } else if (name != "include" && name != "include[]") {
      return errorf(ErrorCode::kInvalidArgument,
                    "{}: unknown parameter, expected limit, order, after, include", name);
    }
  }
  return query;
}

void drop_logprobs(json& reply) {
  for (json& item : reply["output"]) {
    if (!item.contains("content")) continue;
    for (json& part : item["content"]) {
      if (part.contains("logprobs")) part["logprobs"] = json::array();
    }
  }
}

// Returns the current state of a response. run: its run if it is in progress, or null.
Result<json> response_now(const StoredResponse& stored, const BackgroundRun* run) {
  json reply = bounded_json<json>(stored.reply);
  if (!reply.is_object() || !reply["output"].is_array())
    return errorf(ErrorCode::kInternal, "{}: what is stored of it cannot be read", stored.id);
  if (stored.ended) return reply;
  if (run != nullptr) {
    reply["status"] = run->cancelled() ? "cancelled" : run->begun() ? "in_progress" : "queued";
  } else {
    reply["status"] = "failed";
    reply["error"] = {{"code", "server_error"}, {"message", "it could not be kept"}};
  }
  return reply;
}

// A response with its run while it is in progress. The run is looked up first, so that a response
// that is in neither state has just ended.
struct Found {
  StoredResponse stored;
  std::shared_ptr<BackgroundRun> run;
};

Result<Found> find_response(Services& services, const StoreCall& call) {
  Found found;
  found.run = services.background.find(call.id);
  ASSIGN_OR_RETURN(found.stored, call.stores->responses->find(call.owner, call.id));
  if (found.stored.ended) found.run = nullptr;
  return found;
}

// Returns the events of a finished response from index `first` on. events: all of them.
std::string events_from(std::string events, const json& reply, int64_t first) {
  if (events.empty()) {  // the process was killed: only the end is known
    const std::string type = "response." + get_string(reply, "status");
    return sse_event(type, {{"response", reply}, {"type", type}, {"sequence_number", first}});
  }
  size_t at = 0;
  for (int64_t i = 0; i < first && at < events.size(); ++i)
    at = std::min(events.find("\n\n", at), events.size() - 2) + 2;
  events.erase(0, at);
  return events;
}

// Takes what was found apart, so that a slow reader holds no more than what it is sent.
net::awaitable<void> stream_response(Services& services, Exchange& exchange, Found& found,
                                     json& reply, int64_t first) {
  const bool streamed = found.run != nullptr ? found.run->keeps_events()
                                             : !found.stored.events.empty() ||
                                                   get_string(reply, "status") == "failed";
  if (!streamed || !get_bool(reply, "background")) {
    co_return co_await exchange.reply(error_reply(
        400, "stream: only of a response that was asked for with background and stream", "stream"));
  }
  if (exchange.request().method == "HEAD")
    co_return co_await exchange.reply(stream_head("text/event-stream; charset=utf-8"));
  if (found.run != nullptr) {
    free_memory(found.stored), reply = nullptr;
    co_return co_await stream_run(services, exchange, found.run, static_cast<size_t>(first));
  }
  if (!co_await exchange.begin_stream(stream_head("text/event-stream; charset=utf-8"))) co_return;
  exchange.put(events_from(std::exchange(found.stored, {}).events, reply, first));
  reply = nullptr;
  if (co_await exchange.flush()) co_await exchange.end_stream();
}

json item_page(json items, const ItemsQuery& query) {
  std::vector<json> list(std::move(items.get_ref<json::array_t&>()));
  if (!query.oldest_first) std::ranges::reverse(list);
  auto first = list.begin();
  if (!query.after.empty()) {
    first = std::ranges::find_if(
        list, [&](const json& one) { return get_string(one, "id") == query.after; });
    if (first == list.end()) return nullptr;
    ++first;
  }
  const auto n = std::min<int64_t>(query.limit, list.end() - first);
  json page = {{"object", "list"}, {"data", json::array()}};
  for (auto one = first; one != first + n; ++one) page["data"].push_back(std::move(*one));
  page["first_id"] = n > 0 ? page["data"].front()["id"] : json();
  page["last_id"] = n > 0 ? page["data"].back()["id"] : json();
  page["has_more"] = first + n != list.end();
  return page;
}

}  // namespace

const nlohmann::json& response_deleted_reply() {
  using namespace schema;  // NOLINT: a schema
  static const nlohmann::json value = open({{"id", plain("string")},
                                            {"object", {{"enum", {"response"}}}},
                                            {"deleted", plain("boolean")}},
                                           {"id", "object", "deleted"});
  return value;
}

const nlohmann::json& response_items_reply() {
  using namespace schema;  // NOLINT: a schema
  static const nlohmann::json value =
      open({{"object", {{"enum", {"list"}}}},
            {"data", {{"type", "array"}, {"items", plain("object")}}},
            {"has_more", plain("boolean")}},
           {"object", "data", "has_more"});
  return value;
}

net::awaitable<void> get_response(Services& services, Exchange& exchange) {
  const auto query = read_response_query(exchange.request());
  if (!query) co_return co_await exchange.reply(error_reply(query.error()));
  Result<Found> found;
  Result<json> reply;
  HttpReply whole;
  co_await services.run_chore(exchange, [&] {
    const auto call = read_store_call(services, exchange.request(), kResponsePath);
    found = call ? find_response(services, *call) : Result<Found>(tl::unexpected(call.error()));
    if (found) reply = response_now(found->stored, found->run.get());
    if (found && reply && !query->logprobs) drop_logprobs(*reply);
    if (found) free_memory(found->stored.input);
    if (!found || !reply || query->stream) return;
    whole = json_reply(*reply);
    *reply = nullptr, free_memory(found->stored);
  });
  if (!found) co_return co_await exchange.reply(error_reply(found.error()));
  if (!reply) co_return co_await exchange.reply(error_reply(reply.error()));
  if (query->stream)
    co_return co_await stream_response(services, exchange, *found, *reply,
                                       query->starting_after + 1);
  co_await exchange.reply(std::move(whole));
}

net::awaitable<void> delete_response(Services& services, Exchange& exchange) {
  const StoreWork work = [&](const StoreCall& call) -> Result<json> {
    RETURN_IF_ERROR(call.stores->responses->remove(call.owner, call.id));
    services.background.cancel(call.id);
    return json{{"id", call.id}, {"object", "response"}, {"deleted", true}};
  };
  co_await answer_from_stores(services, exchange, kResponsePath, work);
}

net::awaitable<void> post_response_cancel(Services& services, Exchange& exchange) {
  constexpr const char* kPath = "/v1/responses/{id}/cancel";
  std::shared_ptr<BackgroundRun> run;
  Result<json> reply;
  const auto look = [&] {
    const auto call = read_store_call(services, exchange.request(), kPath);
    auto found =
        call ? find_response(services, *call) : Result<Found>(tl::unexpected(call.error()));
    run = found ? found->run : nullptr;
    reply = found ? response_now(found->stored, run.get())
                  : Result<json>(tl::unexpected(found.error()));
  };
  co_await services.run_chore(exchange, look);
  if (reply && !get_bool(*reply, "background")) {
    co_return co_await exchange.reply(
        error_reply(400, "only a response that was asked for with background can be cancelled"));
  }
  if (run != nullptr) {
    services.background.cancel(run->id());
    net::steady_timer timer(exchange.executor());
    for (int tries = 0; run != nullptr && tries < 500; ++tries) {  // until the store has the end
      timer.expires_after(std::chrono::milliseconds(10));
      co_await timer.async_wait(net::use_awaitable);
      co_await services.run_chore(exchange, look);
    }
  }
  if (!reply) co_return co_await exchange.reply(error_reply(reply.error()));
  HttpReply whole;
  co_await services.run_chore(exchange, [&] {
    drop_logprobs(*reply);
    whole = json_reply(*reply);
    *reply = nullptr;
  });
  co_await exchange.reply(std::move(whole));
}

net::awaitable<void> get_response_items(Services& services, Exchange& exchange) {
  const StoreWork work = [&](const StoreCall& call) -> Result<json> {
    ASSIGN_OR_RETURN(const ItemsQuery query, read_items_query(exchange.request()));
    ASSIGN_OR_RETURN(const StoredResponse stored,
                     call.stores->responses->find(call.owner, call.id));
    json items = bounded_json<json>(stored.input);
    if (!items.is_array())
      return errorf(ErrorCode::kInternal, "{}: what is stored of it cannot be read", call.id);
    json page = item_page(std::move(items), query);
    if (page.is_null())
      return errorf(ErrorCode::kNotFound, "after: {} has no item {}", call.id, query.after);
    return page;
  };
  co_await answer_from_stores(services, exchange, "/v1/responses/{id}/input_items", work);
}

}  // namespace penstock
