#include "server/handlers/respond.h"

#include "server/api/api_request.h"
#include "server/http/post_surely.h"
#include "server/routing/client_reason.h"
#include "server/routing/errors.h"
#include "server/services/model_loads.h"
#include "server/services/request_record.h"
#include "server/services/services.h"

namespace penstock {
namespace {

// Keeps the models loaded that a request may ask for, loading the one that it names if some are not
// loaded. Errors: those of loading.
net::awaitable<Status> hold_models(Services& services, const Endpoint& endpoint,
                                   Exchange& exchange) {
  if (endpoint.access != Access::kKey || endpoint.request == nullptr ||
      !endpoint.request().contains("/properties/model"_json_pointer))
    co_return Status();
  RequestRecord& record = record_of(exchange);
  if (!services.models.some_unloaded()) record.leases = services.models.lease_all();
  if (!record.leases.empty()) co_return Status();
  std::string name;
  co_await services.run_apart(exchange,
                              [&] { name = model_named_in(services, exchange.request()); });
  const auto model = services.models.find(name, record.key);
  if (!model) co_return Status();  // the handler will refuse the request
  ModelLease lease = (*model)->lease();
  if (lease == nullptr) {
    auto loaded = co_await services.loads.lease(**model);
    if (!loaded) {
      co_return errorf(loaded.error().code, "model: {} could not be loaded: {}", (*model)->name(),
                       without_folders(loaded.error().message));
    }
    lease = *std::move(loaded);
  }
  record.leases = {std::move(lease)};
  co_return Status();
}

}  // namespace

net::awaitable<void> respond(Services& services, const Endpoint& endpoint, Exchange& exchange) {
  RequestRecord& record = record_of(exchange);
  if (!record.leases.empty()) co_return co_await endpoint.handler(services, exchange);  // nested
  const std::unique_ptr<RequestRecord, void (*)(RequestRecord*)> holder(
      &record, [](RequestRecord* one) { one->leases.clear(); });
  const auto self = std::make_shared<Exchange*>(&exchange);
  record.cut = [executor = exchange.executor(), weak = std::weak_ptr(self)] {
    post_surely(executor, [weak] {
      if (const auto one = weak.lock()) (*one)->cut();
    });
  };
  const Status held = co_await hold_models(services, endpoint, exchange);
  if (held)
    co_await endpoint.handler(services, exchange);
  else
    co_await exchange.reply(error_reply(exchange.request(), 503, held.error().message));
}

}  // namespace penstock
