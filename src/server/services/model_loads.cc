#include "server/services/model_loads.h"

#include "server/http/apart_threads.h"

namespace penstock {

net::awaitable<Status> ModelLoads::load(ServedModel& model, bool again) {
  Status loaded;
  co_await run_on(thread_, [&] { loaded = models_.load(model, again); });
  co_return loaded;
}

net::awaitable<Status> ModelLoads::add_adapter(ServedModel& model, const AdapterSettings& adapter,
                                               bool replace) {
  Status added;
  co_await run_on(thread_, [&] {
    added = models_.check_adapter_name(adapter.name, model, replace);
    if (added) added = models_.load(model);
    if (!added) return;
    const ModelLease lease = model.lease();
    added = lease == nullptr ? Status(errorf(ErrorCode::kCancelled,
                                             "model: {} is not loaded: try again", model.name()))
                             : lease->add_adapter(adapter, replace);
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

void ModelLoads::stop() {
  thread_.stop();
  thread_.join();
}

}  // namespace penstock
