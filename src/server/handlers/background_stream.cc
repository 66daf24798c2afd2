#include "server/handlers/background_stream.h"

#include <boost/asio/redirect_error.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/use_awaitable.hpp>

#include "server/handlers/answer.h"
#include "server/services/config.h"
#include "server/services/services.h"

namespace penstock {

net::awaitable<void> stream_run(Services& services, Exchange& exchange,
                                std::shared_ptr<BackgroundRun> run, size_t next) {
  const auto timer = std::make_shared<net::steady_timer>(exchange.executor());
  // Posted, so that the cancellation takes effect during a wait or before the next one.
  const auto news = std::make_shared<BackgroundRun::News>(
      [timer] { net::post(timer->get_executor(), [timer] { timer->cancel(); }); });
  run->watch(news);
  exchange.on_disconnect = [timer] { timer->cancel(); };
  bool open = co_await exchange.begin_stream(stream_head("text/event-stream; charset=utf-8"));
  for (bool more = true; open && more;) {
    std::string text;
    more = run->take(next, text);
    if (!text.empty()) open = co_await exchange.write(text);
    if (!text.empty() || !more) continue;
    timer->expires_after(services.config.keep_alive_interval);
    boost::system::error_code woken;
    co_await timer->async_wait(net::redirect_error(net::use_awaitable, woken));
    open = !exchange.gone();
    if (open && !woken) open = co_await exchange.write(kKeepAlive);
  }
  exchange.on_disconnect = nullptr;
  if (open) co_await exchange.end_stream();
}

}  // namespace penstock
