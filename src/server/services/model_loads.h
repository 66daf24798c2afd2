// Loading and unloading of models while the server runs, on a thread for that.
#pragma once
#include <boost/asio/awaitable.hpp>
#include <boost/asio/thread_pool.hpp>

#include "server/services/served_models.h"

namespace penstock {

// One is loaded or unloaded at a time. Errors: of loading, and of a thread that has stopped.
class ModelLoads {
 public:
  // models: outlives it.
  explicit ModelLoads(ServedModels& models) : models_(models) {}

  // again: a model that failed is tried at once, not after a while.
  boost::asio::awaitable<Status> load(ServedModel& model, bool again = false);
  boost::asio::awaitable<Status> reload(ServedModel& model);
  boost::asio::awaitable<void> unload(ServedModel& model);
  // ServedModel::add_adapter() for a model that is loaded first if need be.
  boost::asio::awaitable<Status> add_adapter(ServedModel& model, const AdapterSettings& adapter,
                                             bool replace);
  // Ends the thread behind what it is at.
  void stop();

 private:
  ServedModels& models_;
  boost::asio::thread_pool thread_{1};
};

}  // namespace penstock
