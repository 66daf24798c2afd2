// POST /sleep, /wake_up, GET /is_sleeping: vLLM's, for the whole server.
#include <fmt/format.h>

#include "server/api/api_request.h"
#include "server/api/schema_parts.h"
#include "server/routing/client_reason.h"
#include "server/routing/endpoint.h"
#include "server/routing/errors.h"
#include "server/services/config.h"
#include "server/services/model_loads.h"
#include "server/services/served_models.h"
#include "server/services/services.h"

namespace penstock {

EndpointSchema is_sleeping_reply;

namespace {

std::string in_query(const HttpRequest& request, const char* name, const char* otherwise) {
  const auto given = request.query.find(name);
  return given == request.query.end() ? otherwise : given->second;
}

Status check_allowed(const Services& services) {
  if (services.config.sleep_mode) return {};
  return errorf(ErrorCode::kNotFound,
                "sleeping: the server was started without --enable-sleep-mode");
}

// How long requests under way may go on. Levels 1 and 2 are the same: weights are read from their
// files when the server wakes.
Result<std::chrono::milliseconds> read_patience(const Services& services,
                                                const HttpRequest& request) {
  RETURN_IF_ERROR(check_allowed(services));
  const std::string level = in_query(request, "level", "1"),
                    mode = in_query(request, "mode", "abort");
  if (level != "1" && level != "2")
    return errorf(ErrorCode::kInvalidArgument, "level: expected 1 or 2, got {}", level);
  if (mode == "wait") return services.models.unload_patience();
  if (mode == "abort") return std::chrono::milliseconds(0);
  return errorf(ErrorCode::kInvalidArgument, "mode: expected abort or wait, got {}", mode);
}

// Tags name parts that vLLM wakes apart.
Status check_wake(const Services& services, const HttpRequest& request) {
  RETURN_IF_ERROR(check_allowed(services));
  const std::string tag = in_query(request, "tags", "weights");
  if (tag == "weights" || tag == "kv_cache" || tag == "scheduling") return {};
  return errorf(ErrorCode::kInvalidArgument,
                "tags: expected weights, kv_cache or scheduling, got {}", tag);
}

}  // namespace

const nlohmann::json& is_sleeping_reply() {
  static const nlohmann::json value =
      schema::open({{"is_sleeping", schema::plain("boolean")}}, {"is_sleeping"});
  return value;
}

net::awaitable<void> post_sleep(Services& services, Exchange& exchange) {
  const auto patience = read_patience(services, exchange.request());
  if (!patience) co_return co_await exchange.reply(error_reply(patience.error()));
  co_await services.loads.sleep(*patience);
  co_await exchange.reply(json_reply(json::object()));
}

net::awaitable<void> post_wake_up(Services& services, Exchange& exchange) {
  if (const Status may = check_wake(services, exchange.request()); !may)
    co_return co_await exchange.reply(error_reply(may.error()));
  const Status woken = co_await services.loads.wake();
  if (!woken) {
    co_return co_await exchange.reply(
        error_reply(exchange.request(), 503, without_folders(woken.error().message)));
  }
  co_await exchange.reply(json_reply(json::object()));
}

net::awaitable<void> get_is_sleeping(Services& services, Exchange& exchange) {
  const json body = {{"is_sleeping", services.models.sleeps()}};
  co_await exchange.reply(json_reply(body));
}

}  // namespace penstock
