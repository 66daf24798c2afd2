#include "server/http/run_apart.h"

#include <boost/asio/co_spawn.hpp>
#include <boost/asio/thread_pool.hpp>
#include <boost/asio/use_awaitable.hpp>

namespace penstock {
namespace {

constexpr size_t kLargeBody = 64 * 1024;  // bytes: some ten milliseconds of tokenizing

net::awaitable<void> call(std::function<void()> work) {
  work();
  co_return;
}

}  // namespace

net::awaitable<void> run_on(net::thread_pool& threads, std::function<void()> work) {
  co_await net::co_spawn(threads, call(std::move(work)), net::use_awaitable);
}

net::awaitable<void> run_apart(const Exchange& exchange, std::function<void()> work) {
  if (exchange.request().body.size() < kLargeBody) {
    work();
    co_return;
  }
  static net::thread_pool thread(1);
  co_await run_on(thread, std::move(work));
}

}  // namespace penstock
