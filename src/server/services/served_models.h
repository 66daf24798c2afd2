// The models of a server, found by name, and the memory budget that they share.
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

// Thread-safe after all models were added.
//
// Memory: a single model takes what its engine chooses. Several share a budget: each gets what its
// settings say or an equal share, and never more than it needs. A model that does not fit evicts
// the least recently used ones after their requests have finished, or were given `unload_patience`
// to; pinned models stay.
class ServedModels {
 public:
  // any_name: unknown names mean the default model. memory: bytes for all models together; 0: 0.85
  // of the memory that is free when they are loaded.
  explicit ServedModels(bool any_name = false, int64_t memory = 0,
                        std::chrono::milliseconds unload_patience = std::chrono::minutes(2))
      : any_name_(any_name), patience_(unload_patience), budget_(memory) {}
  ~ServedModels();

  // Adds a model; the first is the default. Errors: kInvalidArgument (no name, an empty one, or one
  // that is taken).
  Status add(std::unique_ptr<ServedModel> model);
  std::span<const std::unique_ptr<ServedModel>> all() const {
    return models_;
  }  // in the order they were added
  // name "": the first model that `key` may use. Errors: kNotFound, "model: expected A or B, got
  // C", listing only models that the key may use.
  Result<ServedModel*> find(std::string_view name, std::string_view key = {}) const;
  // Checks a name for an adapter of `base`: no model and no other model's adapter has it, and
  // without `replace` none of `base`. Holds until another adapter is added. Errors:
  // kInvalidArgument.
  Status check_adapter_name(std::string_view name, const ServedModel& base, bool replace) const;
  // Finds a model by its or an adapter's name, without regard to keys; null: none.
  ServedModel* named(std::string_view name) const;
  // Leases a model for immediate use. Errors: those of find(); kCancelled (not loaded; the message
  // says why).
  Result<ModelLease> lease(std::string_view name, std::string_view key = {}) const;
  // Leases all models for an observer; empty: some model is not loaded.
  std::vector<ModelLease> lease_all() const;

  // Loads the models with at_start, in order. Errors: if there is only one model, its error;
  // otherwise the first error if no model could be loaded. Other errors are logged and kept by the
  // model.
  Status load();
  bool ready() const { return ready_; }  // load() has finished
  // Whether lease() may require load(): some model is unloaded or may be unloaded when idle.
  bool some_unloaded() const;

  // Loads a model and blocks; operations are serialized. No effect if it is loaded. A failed model
  // is retried after a while, or immediately with `again`. Errors: those of loading;
  // kResourceExhausted (no room beside models that cannot be evicted).
  Status load(ServedModel& model, bool again = false);
  // As load(), and leases the model before anybody else can unload it. REQUIRES: the caller holds no
  // lease, since loading may wait for it.
  Result<ModelLease> load_and_lease(ServedModel& model);
  // As load(), but evicts only models that nobody uses.
  Status load_beside_busy_ones(ServedModel& model);
  void unload(ServedModel& model);
  Status reload(ServedModel& model);
  // Unloads all models, pinned ones too, and loads none until wake(). Requests under way have
  // `patience` to end. No effect while it sleeps.
  void sleep(std::chrono::milliseconds patience);
  // Loads the models that sleep() has unloaded; the server is awake whatever becomes of them. Errors:
  // the first one of loading.
  Status wake();
  bool sleeps() const { return sleeps_; }
  std::chrono::milliseconds unload_patience() const { return patience_; }
  // Sets the idle time after which a model is unloaded; nullopt: never. No effect on pinned models.
  void keep(ServedModel& model, std::optional<std::chrono::milliseconds> time);
  // Ends every sequence of all models.
  void stop();
  // As Engine::end_by() for all of them.
  void end_by(Clock::time_point latest);
  // Returns why one of the models has failed permanently, or ok. Does not block.
  Status status() const;

 private:
  // Whom a load may evict.
  enum class Evicts : uint8_t { kAnybody, kUnused };
  Status load_if_needed(ServedModel& model, bool again, Evicts evicts);
  Status load_now(ServedModel& model, Evicts evicts = Evicts::kAnybody);
  // Evicts other models and returns the bytes that this one may take; 0: the engine decides.
  Result<int64_t> make_room(const ServedModel& model, Evicts evicts);
  ServedModel* least_recently_used() const;
  int64_t taken() const;
  void watch_idle();
  void unload_idle_ones();
  void start_watch();

  const bool any_name_;
  const std::chrono::milliseconds patience_;
  int64_t budget_;
  std::vector<std::unique_ptr<ServedModel>> models_;
  std::atomic<bool> ready_{false}, sleeps_{false};
  std::vector<ServedModel*> to_wake_;  // guarded by loading_
  std::mutex loading_;                 // serializes loading and unloading
  std::mutex watch_mutex_;
  std::condition_variable watch_;
  std::atomic<bool> stopped_{false};
  std::thread watcher_;  // unloads idle models
};

// Returns the bytes of the model's files, an estimate of its weights; 0: unknown.
int64_t weight_bytes_of(const std::string& model);

}  // namespace penstock
