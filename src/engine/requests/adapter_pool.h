// LoRA adapters of an engine: those that were opened, and which of them are in the model's memory now.
#pragma once
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "engine/compute/step_model.h"
#include "penstock/engine.h"

namespace penstock {

// What Engine::open_adapter() gives. Its files are read again whenever it comes into the model's memory.
class Adapter {
 public:
  // Errors: those of open_lora(), of a model it does not belong to, of a rank above `max_rank`.
  static Result<std::shared_ptr<const Adapter>> open(const std::string& path, const StepModel& model,
                                                     int max_rank);

  const std::string& path() const { return path_; }
  int rank() const { return rank_; }        // the largest of its layers'
  int64_t bytes() const { return bytes_; }  // in the model's memory
  // Of its content: two with the same compute the same.
  uint64_t fingerprint() const { return fingerprint_; }
  const StepModel& model() const { return *model_; }

  // The same adapter as each of several engines has opened it, at least one.
  static std::shared_ptr<const Adapter> of_engines(std::vector<std::shared_ptr<const Adapter>> opened);
  // Of an adapter of several: what engine i has opened; null: this is none.
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

// The slots of the model's memory from `first` on, each with one adapter that stays until another needs the place. Engine thread only.
class AdapterPool {
 public:
  AdapterPool(StepModel& model, int n_slots, int first = 0)
      : model_(model), first_(first), slots_(static_cast<size_t>(n_slots)) {}

  // The slot of an adapter, which stays there until it was given back as often as it was taken; nullopt: all slots are taken.
  // Errors: the file has changed or cannot be read, memory.
  Result<std::optional<int>> take(const std::shared_ptr<const Adapter>& adapter);
  void give_back(int slot) { --slots_[static_cast<size_t>(slot - first_)].n_users; }
  // Frees the memory of adapters that nobody can ask for any more.
  void drop_forgotten();

  int n_loaded() const;
  int64_t n_loads() const { return n_loads_; }

 private:
  struct Slot {
    std::shared_ptr<const Adapter> adapter;
    int n_users = 0;
    int64_t used = 0;  // when it was last taken
  };
  Status load(size_t slot, const std::shared_ptr<const Adapter>& adapter);

  StepModel& model_;
  const int first_;
  std::vector<Slot> slots_;
  int64_t n_taken_ = 0, n_loads_ = 0;
};

}  // namespace penstock
