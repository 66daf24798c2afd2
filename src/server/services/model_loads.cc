#include "server/services/model_loads.h"

#include <boost/asio/post.hpp>

#include "server/http/apart_threads.h"

namespace penstock {

net::awaitable<Status> ModelLoads::load(ServedModel& model, bool again) {
  Status loaded;
  co_await run_on(thread_, [&] { loaded = models_.load(model, again); });
  co_return loaded;
}

net::awaitable<Result<ModelLease>> ModelLoads::lease(ServedModel& model) {
  Result<ModelLease> lease;
  co_await run_on(thread_, [&] { lease = models_.load_and_lease(model); });
  co_return lease;
}

void ModelLoads::load_later(ServedModel& model) {
  {
    const std::lock_guard lock(mutex_);
    if (!to_load_later_.insert(&model).second) return;
  }
  net::post(thread_, [this, &model] {
    try {
      (void)models_.load_beside_busy_ones(model);  // the model and the log have the error
    } catch (const std::bad_alloc&) {              // nobody waits: it is tried again when asked for
    }
    const std::lock_guard lock(mutex_);
    to_load_later_.erase(&model);
  });
}

net::awaitable<Status> ModelLoads::add_adapter(ServedModel& model, const AdapterSettings& adapter,
                                               bool replace) {
  Status added;
  co_await run_on(thread_, [&] {
    added = models_.check_adapter_name(adapter.name, model, replace);
    if (!added) return;
    const auto lease = models_.load_and_lease(model);
    added = lease ? (*lease)->add_adapter(adapter, replace) : Status(tl::unexpected(lease.error()));
  });
  co_return added;
}

net::awaitable<Status> ModelLoads::reload(ServedModel& model) {
  Status loaded;
  co_await run_on(thread_, [&] { loaded = models_.reload(model); });
  co_return loaded;
}

net::awaitable<void> ModelLoads::unload(ServedModel& model) {
  co_await run_on(thread_, [&] { models_.unload(model); });
}

net::awaitable<void> ModelLoads::sleep(std::chrono::milliseconds patience) {
  co_await run_on(thread_, [&] { models_.sleep(patience); });
}

net::awaitable<Status> ModelLoads::wake() {
  Status woken;
  co_await run_on(thread_, [&] { woken = models_.wake(); });
  co_return woken;
}

void ModelLoads::stop() {
  thread_.stop();
  thread_.join();
}

}  // namespace penstock
