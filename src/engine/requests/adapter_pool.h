// LoRA adapters of an engine: opened adapters, and the slots of those that are loaded now.
#pragma once
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "engine/compute/step_model.h"
#include "penstock/engine.h"

namespace penstock {

// An opened adapter, as returned by Engine::open_adapter(). Its files are read again whenever it is
// loaded into a slot.
class Adapter {
 public:
  // Opens an adapter. Errors: those of open_lora(); kInvalidArgument when it is of another model or
  // its rank is above max_rank.
  static Result<std::shared_ptr<const Adapter>> open(const std::string& path,
                                                     const StepModel& model, int max_rank);

  const std::string& path() const { return path_; }
  int rank() const { return rank_; }        // largest rank of its layers
  int64_t bytes() const { return bytes_; }  // bytes that it takes when loaded
  // Fingerprint of its content: adapters with equal fingerprints compute the same.
  uint64_t fingerprint() const { return fingerprint_; }
  const StepModel& model() const { return *model_; }

  // Makes one adapter of those that each of several engines has opened from the same files.
  // REQUIRES: at least one.
  static std::shared_ptr<const Adapter> of_engines(
      std::vector<std::shared_ptr<const Adapter>> opened);
  // The adapter of engine i, or null if this was not made by of_engines().
  std::shared_ptr<const Adapter> of_engine(size_t i) const {
    return i < opened_.size() ? opened_[i] : nullptr;
  }

 private:
  std::string path_;
  int rank_ = 0;
  int64_t bytes_ = 0;
  uint64_t fingerprint_ = 0;
  const StepModel* model_ = nullptr;
  std::vector<std::shared_ptr<const Adapter>> opened_;
};

// The adapter slots of a model from `first` on. Each holds one adapter, which stays loaded until
// another needs the slot. Engine thread only.
class AdapterPool {
 public:
  AdapterPool(StepModel& model, int n_slots, int first = 0)
      : model_(model), first_(first), slots_(static_cast<size_t>(n_slots)) {}

  // Returns the slot of an adapter, loading it if needed. It stays there until give_back() was
  // called as often as take(). nullopt: all slots are in use. Errors: the file has changed or
  // cannot be read, or there is no memory for it.
  Result<std::optional<int>> take(const std::shared_ptr<const Adapter>& adapter);
  void give_back(int slot) { --slots_[static_cast<size_t>(slot - first_)].n_users; }
  // Unloads adapters that only the pool still refers to.
  void drop_forgotten();

 private:
  struct Slot {
    std::shared_ptr<const Adapter> adapter;
    int n_users = 0;
    int64_t used = 0;  // value of n_taken_ when it was last taken
  };
  Status load(size_t slot, const std::shared_ptr<const Adapter>& adapter);

  StepModel& model_;
  const int first_;
  std::vector<Slot> slots_;
  int64_t n_taken_ = 0;
};

}  // namespace penstock
