#include "server/api/store_call.h"

#include "server/api/api_request.h"
#include "server/api/errors.h"
#include "server/http/apart_threads.h"
#include "server/server.h"

namespace penstock {

Result<StoreCall> read_store_call(Server& server, const HttpRequest& request, std::string_view route) {
  StoreCall call;
  ASSIGN_OR_RETURN(call.stores, server.stores());
  call.owner = server.owner_of(request);
  if (const size_t brace = route.find('{'); brace != std::string_view::npos) {
    const size_t n_behind = route.size() - route.find('}') - 1;
    call.id = request.path.substr(brace, request.path.size() - brace - n_behind);
  }
  return call;
}

net::awaitable<void> answer_from_stores(Server& server, Exchange& exchange, std::string_view route,
                                        const StoreWork& work) {
  HttpReply whole;
  co_await run_on(server.chores(), [&] {
    const auto call = read_store_call(server, exchange.request(), route);
    const Result<json> reply = call ? work(*call) : Result<json>(tl::unexpected(call.error()));
    whole = reply ? json_reply(*reply) : error_reply(reply.error());
  });
  co_await exchange.reply(std::move(whole));
}

}  // namespace penstock
