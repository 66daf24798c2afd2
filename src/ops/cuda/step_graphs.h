// Steps that are recorded and played again: what a step's operations ask of the device, by StepKey and what of attention
// goes by the batch.
//
// A step is computed as it comes, the next one with the same key is recorded and played, and those that follow are played only. All
// recordings use the step's memory from the same place on, one after the other; when any memory is given back, they are made anew.
// Only steps of few rows are worth it, and they get rows in fixed numbers, so that few recordings serve all of them.
#pragma once
#include <cstdint>
#include <memory>
#include <vector>

#include "ops/cuda/device.h"
#include "ops/cuda/step_memory.h"
#include "ops/ops.h"

namespace penstock::cuda {

class StepGraphs {
 public:
  static constexpr int kMostRows = 256;
  static constexpr int kMostRowsOfSequence = 64;  // more of them are a prompt
  static constexpr size_t kMostRecordings = 64;

  StepGraphs(Device& device, StepMemory& memory) : device_(device), memory_(memory) {}

  // Off: every step is computed as it comes.
  void enable(bool on) { enabled_ = on; }
  // Whether kernels of a recording start while those before them still run (Device::start_early).
  void start_early(bool on) { starts_early_ = on; }
  // All recordings are made anew.
  void forget() { entries_.clear(); }
  // Whether a step over this batch will be asked for in run(), and with how many rows.
  bool suits(const Batch& batch) const;
  static int rows_for(int n);

  // What decides what a step asks for.
  struct Key {
    StepKey step;
    int attention = 0;  // BatchUpload::attention_key
    int draw_room = 0;  // of the step's own draws
    bool operator==(const Key&) const = default;
  };
  using StepFn = StepOutputs (*)(void* ctx);
  StepOutputs run(const Key& key, bool suits, StepFn fn, void* ctx);

  int64_t n_recorded() const { return n_recorded_; }
  int64_t n_played() const { return n_played_; }

 private:
  struct Entry {
    Key key;
    size_t begin = 0, bytes = 0;  // of the step's memory
    StepOutputs outputs;
    std::unique_ptr<Recording> recording;  // null: not made yet
    bool refused = false;                  // asks for what cannot be recorded
    int64_t used = 0;                      // when
  };
  Entry& entry_of(const Key& key);
  bool record(Entry& entry, StepFn fn, void* ctx);

  Device& device_;
  StepMemory& memory_;
  bool enabled_ = true, starts_early_ = true;
  std::vector<Entry> entries_;
  int64_t n_released_ = 0;
  int64_t clock_ = 0, n_recorded_ = 0, n_played_ = 0;
};

}  // namespace penstock::cuda
