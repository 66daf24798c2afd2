#include "server/handlers/respond.h"

#include "server/api/api_request.h"
#include "server/routing/errors.h"
#include "server/services/client_reason.h"
#include "server/services/model_loads.h"
#include "server/services/request_record.h"
#include "server/services/services.h"

namespace penstock {
namespace {

// Loads the model that a request names. The returned lease keeps it loaded; null: no model is
// needed, or the handler will refuse the request. Errors: those of loading.
net::awaitable<Result<ModelLease>> load_named(Services& services, const Endpoint& endpoint,
                                              Exchange& exchange) {
  if (endpoint.access != Access::kKey || endpoint.request == nullptr ||
      !endpoint.request().contains("/properties/model"_json_pointer) ||
      !services.models.some_unloaded())
    co_return ModelLease();
  std::string name;
  co_await services.run_apart(exchange,
                              [&] { name = model_named_in(services, exchange.request()); });
  const auto model = services.models.find(name, record_of(exchange).key);
  if (!model) co_return ModelLease();
  constexpr int kMostTries = 3;  // an idle model may be unloaded again meanwhile
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

net::awaitable<void> respond(Services& services, const Endpoint& endpoint, Exchange& exchange) {
  const auto lease = co_await load_named(services, endpoint, exchange);
  if (lease) co_return co_await endpoint.handler(services, exchange);
  co_await exchange.reply(error_reply(exchange.request(), 503, lease.error().message));
}

}  // namespace penstock
