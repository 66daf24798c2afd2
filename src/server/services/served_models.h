// The models that a server serves, each found by the names that requests give, and the memory that
// they share.
#pragma once
#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "server/services/served_model.h"

namespace penstock {

// Filled before anything is served; then used by any thread.
//
// Memory: one model alone takes what its engine takes. Several have a budget together. Each gets
// what its settings say, or an equal share, and never more than it needs; who does not fit takes
// the place of the models that were not used for longest, whose requests end first. Pinned ones
// stay.
class ServedModels {
 public:
  // any_name: what nobody is called is the default model. memory: bytes for all of them together;
  // 0: 0.85 of what is free when they are loaded.
  explicit ServedModels(bool any_name = false, int64_t memory = 0)
      : any_name_(any_name), budget_(memory) {}
  ~ServedModels();

  // The first model is the default. Errors: kInvalidArgument, no name, an empty one, or one that is
  // taken.
  Status add(std::unique_ptr<ServedModel> model);
  std::span<const std::unique_ptr<ServedModel>> all() const {
    return models_;
  }  // in the order they were added
  ServedModel& default_model() const { return *models_.front(); }
  // "": the first that `key` may use. Error: kNotFound, "model: expected A or B, got C", of those
  // it may use.
  Result<ServedModel*> find(std::string_view name, std::string_view key = {}) const;
  // Of whoever may use it; an adapter's name is its model's. Null: nobody has that name.
  ServedModel* named(std::string_view name) const;
  // To use it now. Errors: of find(); kCancelled, it is not loaded, and why.
  Result<ModelLease> lease(std::string_view name, std::string_view key = {}) const;

  // Loads those that are loaded at the start, in their order. Error: of the only one, or the first
  // when none could be loaded; others are logged, and kept by the model.
  Status load();
  bool ready() const { return ready_; }  // load() is through
  // Whether lease() may fail for want of load(), now or once a model that goes when nobody uses it
  // has gone.
  bool some_unloaded() const;

  // Blocking, one after the other. Nothing when it is loaded; a model that failed is tried again
  // after a while, or with `again` at once. Errors: of loading; kResourceExhausted, no room beside
  // those that stay.
  Status load(ServedModel& model, bool again = false);
  void unload(ServedModel& model);
  Status reload(ServedModel& model);
  // From now on it is unloaded when nobody has used it for so long; nothing: it stays. Pinned ones
  // stay anyway.
  void keep(ServedModel& model, std::optional<std::chrono::milliseconds> time);
  // Ends every sequence of all of them.
  void stop();
  // Ok, or why one of them can compute nothing any more. Never waits.
  Status status() const;

 private:
  Status load_now(ServedModel& model);
  // Bytes that it may take, after others made room. 0: as the engine decides.
  Result<int64_t> make_room(const ServedModel& model);
  ServedModel* least_recently_used() const;
  int64_t taken() const;
  void watch_idle();
  void unload_idle_ones();
  void start_watch();

  const bool any_name_;
  int64_t budget_;
  std::vector<std::unique_ptr<ServedModel>> models_;
  std::atomic<bool> ready_{false};
  std::mutex loading_;  // one is loaded or unloaded at a time
  std::mutex watch_mutex_;
  std::condition_variable watch_;
  std::atomic<bool> stopped_{false};
  std::thread watcher_;  // unloads those that are idle
};

// Bytes of the model's files: about what its weights take. 0 when it has none that can be seen.
int64_t weight_bytes_of(const std::string& model);

}  // namespace penstock
