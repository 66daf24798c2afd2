#include "server/handlers/dispatch.h"

#include "base/work.h"
#include "server/api/api_request.h"
#include "server/handlers/router.h"
#include "server/routing/errors.h"
#include "server/services/client_reason.h"
#include "server/services/model_loads.h"
#include "server/services/request_log.h"
#include "server/services/services.h"

namespace penstock {
namespace {

// Loads the model that a request names. What it returns keeps it until the request is over; null where there is nothing
// to load, or whoever reads the request refuses it. Errors: of loading.
net::awaitable<Result<ModelLease>> load_named(Services& services, const Route& route, Exchange& exchange) {
  if (route.access != Access::kKey || route.request == nullptr ||
      !route.request().contains("/properties/model"_json_pointer) || !services.models.some_unloaded())
    co_return ModelLease();
  std::string name;
  co_await services.run_apart(exchange, [&] { name = model_named_in(services, exchange.request()); });
  const auto model = services.models.find(name, exchange.request().key);
  if (!model) co_return ModelLease();
  constexpr int kMostTries = 3;  // one that goes when nobody uses it may have gone again
  for (int tries = 0; tries < kMostTries; ++tries) {
    if (ModelLease lease = (*model)->lease()) co_return lease;
    const Status loaded = co_await services.loads.load(**model);
    if (!loaded) {
      co_return errorf(loaded.error().code, "model: {} could not be loaded: {}", (*model)->name(),
                       without_folders(loaded.error().message));
    }
  }
  co_return (*model)->lease();
}

}  // namespace

net::awaitable<void> answer(Services& services, const Route& route, Exchange& exchange) {
  std::string failure;
  std::optional<Error> ended;
  try {
    if (const RouteConfig* choice = services.router->asked_for(route, exchange.request()))
      co_await services.router->answer(*choice, route, exchange);
    else
      co_await respond(services, route, exchange);
  } catch (const WorkEnded& work) {
    ended = work.error();
  } catch (const std::exception& error) {
    failure = error.what();
  }
  if (ended && !exchange.replied()) {
    // Cancelled for a client that is still there: the server stops.
    if (ended->code == ErrorCode::kCancelled) ended->message = "shutting down";
    co_return co_await exchange.reply(
        error_reply(exchange.request(), http_status(ended->code), ended->message));
  }
  if (failure.empty()) co_return;
  services.log.error(fmt::format("{} {} {}: {}", exchange.request().id, exchange.request().method,
                                 exchange.request().path, failure));
  if (!exchange.replied()) co_await exchange.reply(error_reply(exchange.request(), 500, "internal error"));
}

net::awaitable<void> respond(Services& services, const Route& route, Exchange& exchange) {
  const auto lease = co_await load_named(services, route, exchange);
  if (lease) co_return co_await route.handler(services, exchange);
  co_await exchange.reply(error_reply(exchange.request(), 503, lease.error().message));
}

}  // namespace penstock
