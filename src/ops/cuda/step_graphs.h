// Records the device work of steps and replays it, by StepKey and by the key of attention for the
// batch.
//
// The first step with a key is computed directly, the second is recorded and replayed, further ones
// are replayed only. Work of the host within a step (between()) cuts its recording into pieces, which
// are replayed with that work between them. All recordings use the step's memory from the same address on; when any memory
// is released, they are made anew. Only steps of few rows are recorded, and these are padded to
// fixed numbers of rows, so that few recordings serve all of them.
#pragma once
#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "ops/cuda/device.h"
#include "ops/cuda/step_memory.h"
#include "ops/ops.h"

namespace penstock::cuda {

class StepGraphs {
 public:
  static constexpr int kMostRows = 256;
  static constexpr int kMostRowsOfSequence = 64;  // more rows are a prompt
  static constexpr size_t kMostRecordings = 64;

  StepGraphs(Device& device, StepMemory& memory) : device_(device), memory_(memory) {}

  // Enables recording; otherwise every step is computed directly.
  void enable(bool on) { enabled_ = on; }
  // Lets kernels of a recording start while earlier ones run (Device::start_early).
  void start_early(bool on) { starts_early_ = on; }
  // Drops all recordings.
  void forget() { entries_.clear(); }
  // Returns whether a step over this batch can be recorded.
  bool suits(const Batch& batch) const;
  static int rows_for(int n);

  // Everything on which the work of a step depends.
  struct Key {
    StepKey step;
    int attention = 0;  // BatchUpload::attention_key
    int draw_room = 0;  // capacity for the step's own draws
    bool operator==(const Key&) const = default;
  };
  using StepFn = StepOutputs (*)(void* ctx);
  StepOutputs run(const Key& key, bool suits, StepFn fn, void* ctx);
  // Does work of the host, and of the device that cannot be recorded, at this place of the step:
  // now, or, within a recording, at every replay. What `work` refers to must outlive the recording.
  void between(std::function<void()> work);
  // Has all recordings made anew, since memory of the host that they use has moved.
  void expire() { n_released_ = -1; }

  int64_t n_recorded() const { return n_recorded_; }
  int64_t n_played() const { return n_played_; }

 private:
  // A recording, and what the host does behind it.
  struct Piece {
    std::unique_ptr<Recording> recording;
    std::function<void()> work;  // empty: nothing
  };
  struct Entry {
    Key key;
    size_t begin = 0, bytes = 0;  // of the step's memory
    StepOutputs outputs;
    std::vector<Piece> pieces;  // empty: not recorded yet
    bool refused = false;       // contains work that cannot be recorded
    int64_t used = 0;           // time of the last use
  };
  Entry& entry_of(const Key& key);
  bool record(Entry& entry, StepFn fn, void* ctx);
  void play(const Entry& entry);

  Device& device_;
  StepMemory& memory_;
  bool enabled_ = true, starts_early_ = true;
  std::vector<Entry> entries_;
  std::vector<Piece>* recorded_ = nullptr;  // pieces of the recording under way
  int64_t n_released_ = 0;
  int64_t clock_ = 0, n_recorded_ = 0, n_played_ = 0;
};

}  // namespace penstock::cuda
