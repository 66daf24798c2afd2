// Draws on the device (kernels/sample.h), from when they are asked for until the host is told. What is left to the host: filters
// that leave more than 1,024 tokens.
#pragma once
#include <span>
#include <vector>

#include "kernels/sample_row.h"
#include "ops/batch.h"
#include "ops/cuda/device.h"
#include "ops/cuda/kernels/sample.h"
#include "ops/cuda/staged_copies.h"
#include "ops/cuda/step_memory.h"

namespace penstock::cuda {

struct Described;

class DeviceDraws {
 public:
  DeviceDraws(Device& device, StepMemory& step_memory)
      : device_(device),
        step_memory_(step_memory),
        staged_(device, kLeast),
        asked_{Asked{PinnedMemory(device)}, Asked{PinnedMemory(device)}} {}

  // Tokens that the batch names by who drew them become what was drawn.
  void begin_step(const Batch& batch, const BatchOnDevice* on_device);
  StepTicket end_step();
  // Of a step and all before it: returns when they are done and their draws told.
  void wait(StepTicket ticket);
  void sample(Tensor logits, std::span<const SampleRow> rows, std::span<SampleResult> results);
  // For tests, on the emulated device: one thread makes a draw, which takes a hundredth of the time there.
  void draw_alone() { alone_ = true; }

 private:
  // Of one call of sample().
  struct Asked {
    PinnedMemory told;  // drawn, and tops behind them, as they come from the device
    Memory drawn;       // DrawnOnDevice
    Memory tops;        // TopOnDevice, [draws][tops_stride]
    int tops_stride = 0;
    std::vector<SampleRow> rows;
    std::span<SampleResult> results;
    StepTicket step = 0, copied = 0;
    bool pending = false;
  };
  static constexpr size_t kLeast = size_t{1} << 16;  // bytes of descriptions

  bool make_room(Asked& asked, size_t n_draws, size_t n_tops);
  // Asks for what the kernel gave to be brought to the host: nobody needs to wait for more than that.
  void ask_back(Asked& asked, size_t n_tops);
  void tell(Asked& asked);
  // The kernel's draws, edits and masks, in one copy, until the next step begins. False after a failure.
  bool bring(const Described& described, Draw& kernel);
  template <class T>
  T* scratch(size_t n);

  Device& device_;
  StepMemory& step_memory_;
  StagedCopies staged_;
  Asked asked_[2];  // the next step may begin before this one's draws are told
  int now_ = 0;
  StepTicket last_ticket_ = 0;
  bool ended_ = false, alone_ = false;
};

}  // namespace penstock::cuda
