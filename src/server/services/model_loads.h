// Loads and unloads models at run time on a dedicated thread.
#pragma once
#include <boost/asio/awaitable.hpp>
#include <boost/asio/thread_pool.hpp>

#include <mutex>
#include <set>

#include "server/services/served_models.h"

namespace penstock {

// Operations run one at a time. Errors: those of loading; also when the thread was stopped.
class ModelLoads {
 public:
  // REQUIRES: `models` outlives this object.
  explicit ModelLoads(ServedModels& models) : models_(models) {}

  // again: retry a failed model immediately instead of after a while.
  boost::asio::awaitable<Status> load(ServedModel& model, bool again = false);
  // As ServedModels::load_and_lease().
  boost::asio::awaitable<Result<ModelLease>> lease(ServedModel& model);
  // Begins to load without waiting, and without evicting a model that is in use.
  void load_later(ServedModel& model);
  boost::asio::awaitable<Status> reload(ServedModel& model);
  boost::asio::awaitable<void> unload(ServedModel& model);
  // As ServedModels::sleep() and wake().
  boost::asio::awaitable<void> sleep(std::chrono::milliseconds patience);
  boost::asio::awaitable<Status> wake();
  // As ServedModel::add_adapter(); loads the model first if necessary.
  boost::asio::awaitable<Status> add_adapter(ServedModel& model, const AdapterSettings& adapter,
                                             bool replace);
  // Stops the thread after its current operation.
  void stop();

 private:
  ServedModels& models_;
  std::mutex mutex_;
  std::set<const ServedModel*> to_load_later_;
  boost::asio::thread_pool thread_{1};
};

}  // namespace penstock
