#include "server/services/services.h"

#include <memory>

#include "base/work.h"
#include "server/http/apart_threads.h"
#include "server/http/turn_threads.h"
#include "server/services/client_warnings.h"
#include "server/services/request_record.h"

namespace penstock {

net::awaitable<void> Services::run_apart(Exchange& exchange, size_t n_bytes,
                                         std::function<void()> work) {
  constexpr size_t kAtOnce = 4096;  // bytes: about a millisecond of tokenizing
  record_of(exchange);              // creates the record, for warnings
  if (n_bytes > kAtOnce || trusts_templates)
    co_await apart.run(exchange, n_bytes, std::move(work));
  else
    work();
  tell_warnings(*this, exchange);
}

net::awaitable<void> Services::run_apart(Exchange& exchange, std::function<void()> work) {
  return run_apart(exchange, exchange.request().body.size(), std::move(work));
}

net::awaitable<void> Services::run_chore(Exchange& exchange, std::function<void()> work) {
  const auto gone = std::make_shared<std::atomic<bool>>(exchange.gone());
  exchange.on_disconnect = [gone] { *gone = true; };
  co_await chores.run(exchange.request().asker(), [&] {
    if (!*gone) work();
  });
  exchange.on_disconnect = nullptr;
  if (*gone) throw WorkEnded({ErrorCode::kCancelled, "cancelled"});
}

}  // namespace penstock
