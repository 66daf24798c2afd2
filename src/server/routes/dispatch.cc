#include "server/routes/dispatch.h"

#include "base/work.h"
#include "server/handlers/respond.h"
#include "server/routes/router.h"
#include "server/routing/errors.h"
#include "server/services/image_urls.h"
#include "server/services/request_log.h"
#include "server/services/services.h"

namespace penstock {

net::awaitable<void> answer(Services& services, const Endpoint& endpoint, Exchange& exchange) {
  std::string failure;
  std::optional<Error> ended;
  try {
    if (services.image_urls != nullptr) {
      if (Status fetched = co_await services.image_urls->resolve(services, exchange); !fetched)
        co_return co_await exchange.reply(error_reply(
            exchange.request(), http_status(fetched.error().code), fetched.error().message));
    }
    const RouteConfig* choice = nullptr;
    if (services.router->serves_at(endpoint)) {
      co_await services.run_apart(exchange,
                                  [&] { choice = services.router->asked_for(exchange.request()); });
    }
    if (choice != nullptr)
      co_await services.router->answer(*choice, endpoint, exchange);
    else
      co_await respond(services, endpoint, exchange);
  } catch (const WorkEnded& work) {
    ended = work.error();
  } catch (const std::exception& error) {
    failure = error.what();
  }
  if (ended && !exchange.replied()) {
    // The client is still connected, so that cancellation means shutdown.
    if (ended->code == ErrorCode::kCancelled) ended->message = "shutting down";
    co_return co_await exchange.reply(
        error_reply(exchange.request(), http_status(ended->code), ended->message));
  }
  if (failure.empty()) co_return;
  services.log.error(fmt::format("{} {} {}: {}", exchange.request().id, exchange.request().method,
                                 exchange.request().path, failure));
  if (!exchange.replied())
    co_await exchange.reply(error_reply(exchange.request(), 500, "internal error"));
}

}  // namespace penstock
