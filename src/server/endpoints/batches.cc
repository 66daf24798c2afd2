// OpenAI's batches: POST and GET /v1/batches, GET /v1/batches/{id}, POST /v1/batches/{id}/cancel.
#include <charconv>

#include "base/json_text.h"
#include "server/api/api_request.h"
#include "server/api/json_check.h"
#include "server/api/json_reader.h"
#include "server/api/schema_parts.h"
#include "server/api/store_call.h"
#include "server/batches/batch_runner.h"
#include "server/routing/endpoint.h"
#include "server/routing/errors.h"
#include "server/services/request_record.h"
#include "server/services/services.h"

namespace penstock {

EndpointSchema batch_request, batch_reply, batches_reply;

namespace {

constexpr int64_t kLongestBatchPage = 100;
constexpr int64_t kLongestWindowHours = 24 * 30;

json batch_json(const StoredBatch& batch) {
  const auto when = [&](BatchStatus status) {
    const int64_t time = batch.since[static_cast<size_t>(status)];
    return time > 0 ? json(time) : json();
  };
  const auto or_null = [](const std::string& text) { return text.empty() ? json() : json(text); };
  const auto parsed = [](const std::string& text) {
    return text.empty() ? json() : bounded_json<json>(text);
  };
  return {{"id", batch.id},
          {"object", "batch"},
          {"endpoint", batch.endpoint},
          {"errors", parsed(batch.errors)},
          {"input_file_id", batch.input_file},
          {"completion_window", batch.window},
          {"status", name_of(batch.status)},
          {"output_file_id", or_null(batch.output_file)},
          {"error_file_id", or_null(batch.error_file)},
          {"created_at", batch.created},
          {"in_progress_at", when(BatchStatus::kInProgress)},
          {"expires_at", batch.expires},
          {"finalizing_at", when(BatchStatus::kFinalizing)},
          {"completed_at", when(BatchStatus::kCompleted)},
          {"failed_at", when(BatchStatus::kFailed)},
          {"expired_at", when(BatchStatus::kExpired)},
          {"cancelling_at", when(BatchStatus::kCancelling)},
          {"cancelled_at", when(BatchStatus::kCancelled)},
          {"request_counts",
           {{"total", batch.total}, {"completed", batch.completed}, {"failed", batch.failed}}},
          {"metadata", parsed(batch.metadata)}};
}

// Parses "24h", "30m", "90s" or "7d" to seconds.
Result<int64_t> read_window(const std::string& text) {
  int64_t n = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), n);
  const std::string unit(end, text.data() + text.size());
  const int64_t seconds = unit == "s"   ? 1
                          : unit == "m" ? 60
                          : unit == "h" ? 3600
                          : unit == "d" ? 86400
                                        : 0;
  if (error == std::errc() && seconds > 0 && n > 0 && n <= kLongestWindowHours * 3600 / seconds)
    return n * seconds;
  return errorf(ErrorCode::kInvalidArgument,
                "completion_window: expected a time such as 24h, at most {}h, got {}",
                kLongestWindowHours, text);
}

// window: in seconds.
Result<StoredBatch> read_new_batch(const HttpRequest& request, int64_t& window) {
  constexpr size_t kMostBytes = 64 * 1024;
  ASSIGN_OR_RETURN(const json body, read_json(request.body, kMostBytes));
  RETURN_IF_ERROR(check_json(batch_request(), body));
  StoredBatch batch;
  batch.key = record_of(request).key, batch.payer = record_of(request).payer;
  batch.endpoint = get_string(body, "endpoint");
  batch.input_file = get_string(body, "input_file_id");
  batch.window = get_string(body, "completion_window");
  ASSIGN_OR_RETURN(window, read_window(batch.window));
  if (const json& metadata = get_field(body, "metadata"); metadata.is_object())
    batch.metadata = dump(metadata);
  return batch;
}

struct BatchQuery {
  std::string after;
  int64_t limit = 20;
};

Result<BatchQuery> read_batch_query(const HttpRequest& request) {
  BatchQuery query;
  for (const auto& [name, value] : request.query) {
    if (name == "after") {
      query.after = value;
    } else if (name == "limit") {
      const auto [end, error] =
          std::from_chars(value.data(), value.data() + value.size(), query.limit);
      if (error != std::errc() || end != value.data() + value.size() || query.limit < 1 ||
          query.limit > kLongestBatchPage) {
        return errorf(ErrorCode::kInvalidArgument, "limit: expected 1 to {}, got {}",
                      kLongestBatchPage, value);
      }
    } else {
      return errorf(ErrorCode::kInvalidArgument, "{}: unknown parameter, expected limit, after",
                    name);
    }
  }
  return query;
}

}  // namespace

const nlohmann::json& batch_request() {
  using namespace schema;  // NOLINT: a schema
  static const nlohmann::json value = [] {
    return closed(
        {{"input_file_id", plain("string")},
         {"endpoint",
          {{"enum",
            {"/v1/chat/completions", "/v1/completions", "/v1/embeddings", "/v1/responses"}}}},
         {"completion_window", {{"type", "string"}, {"maxLength", 32}}},
         {"metadata", metadata("texts by name, kept with the batch")}},
        {"input_file_id", "endpoint", "completion_window"});
  }();
  return value;
}

const nlohmann::json& batch_reply() {
  using namespace schema;  // NOLINT: a schema
  static const nlohmann::json value =
      open({{"id", plain("string")},
            {"object", {{"enum", {"batch"}}}},
            {"endpoint", plain("string")},
            {"input_file_id", plain("string")},
            {"completion_window", plain("string")},
            {"status", plain("string")},
            {"created_at", plain("integer")},
            {"request_counts", plain("object")}},
           {"id", "object", "endpoint", "status", "created_at", "request_counts"});
  return value;
}

const nlohmann::json& batches_reply() {
  using namespace schema;  // NOLINT: a schema
  static const nlohmann::json value = open({{"object", {{"enum", {"list"}}}},
                                            {"data", {{"type", "array"}, {"items", batch_reply()}}},
                                            {"has_more", plain("boolean")}},
                                           {"object", "data", "has_more"});
  return value;
}

net::awaitable<void> post_batch(Services& services, Exchange& exchange) {
  int64_t window = 0;
  auto asked = read_new_batch(exchange.request(), window);
  if (!asked) co_return co_await exchange.reply(error_reply(asked.error()));
  const StoreWork work = [&](const StoreCall& call) -> Result<json> {
    asked->owner = call.owner;
    ASSIGN_OR_RETURN(const StoredBatch batch, call.stores->batches->add(*std::move(asked), window));
    services.batches->wake();
    return batch_json(batch);
  };
  co_await answer_from_stores(services, exchange, "/v1/batches", work);
}

net::awaitable<void> get_batches(Services& services, Exchange& exchange) {
  const StoreWork work = [&](const StoreCall& call) -> Result<json> {
    ASSIGN_OR_RETURN(const BatchQuery query, read_batch_query(exchange.request()));
    bool more = false;
    ASSIGN_OR_RETURN(const auto batches,
                     call.stores->batches->list(call.owner, query.after, query.limit, more));
    json reply = {{"object", "list"}, {"data", json::array()}};
    for (const StoredBatch& batch : batches) reply["data"].push_back(batch_json(batch));
    reply["first_id"] = batches.empty() ? json() : json(batches.front().id);
    reply["last_id"] = batches.empty() ? json() : json(batches.back().id);
    reply["has_more"] = more;
    return reply;
  };
  co_await answer_from_stores(services, exchange, "/v1/batches", work);
}

net::awaitable<void> get_batch(Services& services, Exchange& exchange) {
  const StoreWork work = [](const StoreCall& call) -> Result<json> {
    ASSIGN_OR_RETURN(const StoredBatch batch, call.stores->batches->find(call.owner, call.id));
    return batch_json(batch);
  };
  co_await answer_from_stores(services, exchange, "/v1/batches/{id}", work);
}

net::awaitable<void> post_batch_cancel(Services& services, Exchange& exchange) {
  const StoreWork work = [&](const StoreCall& call) -> Result<json> {
    ASSIGN_OR_RETURN(const StoredBatch batch, call.stores->batches->cancel(call.owner, call.id));
    services.batches->wake();
    return batch_json(batch);
  };
  co_await answer_from_stores(services, exchange, "/v1/batches/{id}/cancel", work);
}

}  // namespace penstock
