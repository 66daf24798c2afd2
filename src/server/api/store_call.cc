#include "server/api/store_call.h"

#include "server/api/api_request.h"
#include "server/http/apart_threads.h"
#include "server/keys/accounts.h"
#include "server/routing/endpoint.h"
#include "server/routing/errors.h"
#include "server/services/data_folder.h"
#include "server/services/services.h"

namespace penstock {

Result<StoreCall> read_store_call(Services& services, const HttpRequest& request,
                                  std::string_view route) {
  StoreCall call;
  ASSIGN_OR_RETURN(call.stores, services.data.stores());
  call.owner = services.accounts.owner_of(request);
  call.asker = request.asker();
  const std::vector<std::string> parts = path_parts(route, request.path);
  if (!parts.empty()) call.id = parts[0];
  if (parts.size() > 1) call.item = parts[1];
  return call;
}

net::awaitable<void> answer_from_stores(Services& services, Exchange& exchange,
                                        std::string_view route, const StoreWork& work) {
  HttpReply whole;
  co_await services.run_chore(exchange, [&] {
    const auto call = read_store_call(services, exchange.request(), route);
    const Result<json> reply = call ? work(*call) : Result<json>(tl::unexpected(call.error()));
    whole = reply ? json_reply(*reply) : error_reply(reply.error());
  });
  co_await exchange.reply(std::move(whole));
}

}  // namespace penstock
