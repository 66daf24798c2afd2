// Awaits what another thread computes for a request, and cancels it when the client leaves.
#pragma once
#include <boost/asio/as_tuple.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <functional>
#include <memory>
#include <optional>

#include "base/result.h"
#include "server/http/exchange.h"
#include "server/http/post_surely.h"

namespace penstock {

// submit: begins the work and returns an id; `done` is called once, on any thread. cancel: called with
// the id when the client leaves, before or during the work; the work still calls `done`.
template <class T>
net::awaitable<Result<T>> await_result(
    Exchange& exchange, std::function<Result<uint64_t>(std::function<void(Result<T>)> done)> submit,
    std::function<void(uint64_t id)> cancel) {
  struct Arrival {
    explicit Arrival(const net::any_io_executor& executor)
        : timer(executor, net::steady_timer::time_point::max()) {}
    net::steady_timer timer;
    std::optional<Result<T>> ended;  // valid once `here` is set
    bool here = false;               // used on the executor only
  };
  const auto executor = exchange.executor();
  const auto arrival = std::make_shared<Arrival>(executor);
  const auto id = submit([arrival, executor](Result<T> result) {
    arrival->ended = std::move(result);
    post_surely(executor, [arrival] {
      arrival->here = true;
      arrival->timer.cancel();
    });
  });
  if (!id) co_return tl::unexpected(id.error());
  if (exchange.gone()) cancel(*id);
  exchange.on_disconnect = [cancel, id = *id] { cancel(id); };
  while (!arrival->here) co_await arrival->timer.async_wait(net::as_tuple(net::use_awaitable));
  exchange.on_disconnect = nullptr;
  co_return *std::move(arrival->ended);
}

}  // namespace penstock
