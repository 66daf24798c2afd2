#include "server/streaming.h"

#include "server/errors.h"

namespace penstock {

net::awaitable<void> stream_events(Server& server, Exchange& exchange, Generation& generation,
                                   std::function<std::string(const ChoiceDelta&)> render,
                                   std::function<std::string()> finish) {
  HttpReply head;
  head.content_type = "text/event-stream; charset=utf-8";
  head.headers.emplace_back("Cache-Control", "no-cache");
  head.headers.emplace_back("X-Accel-Buffering", "no");  // proxies must not hold events back
  bool open = co_await exchange.begin_stream(std::move(head));
  std::vector<ChoiceDelta> deltas;
  while (open && co_await generation.next(deltas, server.config().keep_alive_interval)) {
    std::string chunk;
    for (const ChoiceDelta& delta : deltas) chunk += render(delta);
    if (deltas.empty()) chunk = ": keep-alive\n\n";
    if (!chunk.empty()) open = co_await exchange.write(std::move(chunk));
  }
  if (!open || generation.client_gone()) co_return;
  std::string tail;
  if (const auto& error = generation.error(); error && error->code != ErrorCode::kCancelled) {
    tail = "data: " + error_body(http_status(error->code), error->message) + "\n\n";
  }
  tail += finish();
  if (co_await exchange.write(std::move(tail))) co_await exchange.end_stream();
}

}  // namespace penstock
