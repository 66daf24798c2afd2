// GET /v1/usage: use and budgets of API keys. GET /v1/audit: administrative acts.
#include <charconv>

#include "server/api/api_request.h"
#include "server/api/schema_parts.h"
#include "server/api/store_call.h"
#include "server/http/apart_threads.h"
#include "server/keys/accounts.h"
#include "server/routing/endpoint.h"
#include "server/routing/errors.h"
#include "server/services/data_folder.h"
#include "server/services/request_record.h"
#include "server/services/services.h"

namespace penstock {

EndpointSchema usage_reply, audit_reply;

namespace {

constexpr int64_t kLongestAuditPage = 1000;
constexpr size_t kMostUseRows = 100000;  // rows in one reply

// A key sees its own use; administrators and servers without keys see all.
Result<UseQuery> read_use_query(Services& services, const HttpRequest& request) {
  UseQuery query;
  query.last_day = day_of(services.accounts.usage().now());
  query.first_day = first_day_of_month(query.last_day);
  for (const auto& [name, value] : request.query) {
    if (name == "start" || name == "end") {
      const auto day = day_of_text(value);
      if (!day) return errorf(ErrorCode::kInvalidArgument, "{}: {}", name, day.error().message);
      (name == "start" ? query.first_day : query.last_day) = *day;
    } else if (name == "key") {
      query.key = value;
      query.all_keys = false;
    } else {
      return errorf(ErrorCode::kInvalidArgument, "{}: unknown parameter, expected start, end, key",
                    name);
    }
  }
  const std::string& own = record_of(request).key;
  if (own.empty()) return query;
  if (!query.all_keys && query.key != own)
    return errorf(ErrorCode::kInvalidArgument,
                  "key: {} is another one; administrators may ask for it", query.key);
  query.key = own;
  query.all_keys = false;
  return query;
}

json use_json(const UseRow& row) {
  return {{"day", day_text(row.day)},
          {"key", row.key},
          {"model", row.model},
          {"requests", row.use.requests},
          {"input_tokens", row.use.input_tokens},
          {"cached_tokens", row.use.cached_tokens},
          {"output_tokens", row.use.output_tokens},
          {"seconds", static_cast<double>(row.use.microseconds) * 1e-6},
          {"cost", row.use.cost()}};
}

Result<json> use_reply(Services& services, const HttpRequest& request) {
  ASSIGN_OR_RETURN(const UseQuery query, read_use_query(services, request));
  ASSIGN_OR_RETURN(const auto rows, services.accounts.usage().rows(query));
  if (rows.size() > kMostUseRows)
    return errorf(ErrorCode::kInvalidArgument, "start: {} rows, more than {}: ask for fewer days",
                  rows.size(), kMostUseRows);
  UseCounts total;
  json reply = {{"object", "list"},
                {"start", day_text(query.first_day)},
                {"end", day_text(query.last_day)},
                {"kept", services.data.get() != nullptr},
                {"data", json::array()},
                {"total", nullptr},
                {"budgets", json::array()}};
  for (const UseRow& row : rows) {
    total += row.use;
    reply["data"].push_back(use_json(row));
  }
  json sum = use_json({0, "", "", total});
  for (const char* name : {"day", "key", "model"}) sum.erase(name);
  reply["total"] = std::move(sum);
  if (query.all_keys) return reply;
  for (const BudgetState& one : services.accounts.budgets_of(query.key)) {
    reply["budgets"].push_back({{"name", one.name},
                                {"limit", one.limit},
                                {"used", one.used},
                                {"resets_at", one.resets_at}});
  }
  return reply;
}

Status read_audit_query(const HttpRequest& request, int64_t& limit, int64_t& before) {
  for (const auto& [name, value] : request.query) {
    if (name != "limit" && name != "before")
      return errorf(ErrorCode::kInvalidArgument, "{}: unknown parameter, expected limit, before",
                    name);
    int64_t number = 0;
    const auto [end, error] = std::from_chars(value.data(), value.data() + value.size(), number);
    const int64_t most = name == "limit" ? kLongestAuditPage : INT64_MAX;
    if (error != std::errc() || end != value.data() + value.size() || number < 1 || number > most)
      return errorf(ErrorCode::kInvalidArgument, "{}: expected 1 to {}, got {}", name, most, value);
    (name == "limit" ? limit : before) = number;
  }
  return {};
}

json entry_json(const AuditEntry& entry) {
  return {{"number", entry.number},
          {"time", entry.time},
          {"key", entry.key},
          {"peer", entry.peer},
          {"act", entry.act},
          {"about", entry.about},
          {"status", entry.status == 0 ? json() : json(entry.status)}};
}

}  // namespace

const nlohmann::json& usage_reply() {
  using namespace schema;  // NOLINT: a schema
  static const nlohmann::json value =
      open({{"object", {{"enum", {"list"}}}},
            {"data", {{"type", "array"}, {"items", plain("object")}}},
            {"total", plain("object")},
            {"budgets", {{"type", "array"}, {"items", plain("object")}}}},
           {"object", "data", "total", "budgets"});
  return value;
}

const nlohmann::json& audit_reply() {
  using namespace schema;  // NOLINT: a schema
  static const nlohmann::json value =
      open({{"object", {{"enum", {"list"}}}},
            {"data", {{"type", "array"}, {"items", plain("object")}}},
            {"has_more", plain("boolean")}},
           {"object", "data", "has_more"});
  return value;
}

net::awaitable<void> get_usage(Services& services, Exchange& exchange) {
  HttpReply whole;
  co_await services.run_chore(exchange, [&] {
    const Result<json> reply = use_reply(services, exchange.request());
    whole = reply ? json_reply(*reply) : error_reply(reply.error());
  });
  co_await exchange.reply(std::move(whole));
}

net::awaitable<void> get_audit(Services& services, Exchange& exchange) {
  const StoreWork work = [&](const StoreCall& call) -> Result<json> {
    int64_t limit = 100, before = INT64_MAX;
    RETURN_IF_ERROR(read_audit_query(exchange.request(), limit, before));
    ASSIGN_OR_RETURN(const auto found, call.stores->audit->list(before, limit + 1));
    json reply = {{"object", "list"}, {"data", json::array()}};
    const size_t n = std::min(found.size(), static_cast<size_t>(limit));
    for (size_t i = 0; i < n; ++i) reply["data"].push_back(entry_json(found[i]));
    reply["has_more"] = found.size() > n;
    return reply;
  };
  co_await answer_from_stores(services, exchange, "/v1/audit", work);
}

}  // namespace penstock
