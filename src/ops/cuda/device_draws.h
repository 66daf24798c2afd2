// Draws on the device (kernels/sample.h), from when they are asked for until the host is told. What is left to the host: filters
// that leave more than 1,024 tokens.
//
// Draws that a batch brings are a part of its step, recorded and played with it; what else sample() asks for is a launch by itself. What is
// drawn the kernel writes to pinned memory of the host, and the tokens where the next step finds them.
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

// Of all draws of a call: what each is, and the edits and masks of all, one after the other.
struct DescribedDraws {
  std::vector<DrawOnDevice> draws;
  std::vector<EditOnDevice> edits;
  std::vector<uint32_t> masks;
  DrawsOnDevice on_device;  // without where those three will lie there
};

class DeviceDraws {
 public:
  DeviceDraws(Device& device, StepMemory& step_memory)
      : device_(device),
        step_memory_(step_memory),
        staged_(device, kLeast),
        asked_{Asked{PinnedMemory(device)}, Asked{PinnedMemory(device)}} {}

  // The draws that the batch brings, for its upload; valid until the next call.
  const DescribedDraws& begin_step(const Batch& batch);
  // The tokens that were drawn last before the step, by the draw.
  const int32_t* tokens_before() const { return before_; }
  // Of the step's draws, in the step's operations. n: of at least as many draws as there are.
  void draw(Tensor logits, const DrawsOnDevice* on_device, int n) { launch(logits, on_device, n); }
  StepTicket end_step();
  // Of a step and all before it: returns when they are done and their draws told.
  void wait(StepTicket ticket);
  void sample(Tensor logits, std::span<const SampleRow> rows, std::span<SampleResult> results);
  // For tests, on the emulated device: one thread makes a draw, which takes a hundredth of the time there.
  void draw_alone() { alone_ = true; }

 private:
  // Of one call of sample(), or a step's.
  struct Asked {
    PinnedMemory told;  // DrawnOnDevice, and TopOnDevice [draws][tops_stride] behind them
    Memory tokens;
    int tops_stride = 0;
    std::vector<SampleRow> rows;
    std::span<SampleResult> results;
    StepTicket step = 0;    // the first one that may be theirs
    StepTicket copied = 0;  // 0: at the end of the step
    bool pending = false;
  };
  static constexpr size_t kLeast = size_t{1} << 16;  // bytes of descriptions

  // Makes described_. False after a failure.
  bool ask(std::span<const SampleRow> rows, std::span<SampleResult> results, int n_mask_words);
  bool make_room(Asked& asked, size_t n_draws, size_t n_tops);
  void launch(Tensor logits, const DrawsOnDevice* on_device, int n);
  void tell(Asked& asked);
  // described_, in one copy, until the next step begins. Null after a failure.
  const DrawsOnDevice* bring();
  template <class T>
  T* scratch(size_t n);

  Device& device_;
  StepMemory& step_memory_;
  StagedCopies staged_;
  Asked asked_[2];  // the next step may begin before this one's draws are told
  int now_ = 0;
  DescribedDraws described_;
  const int32_t* before_ = nullptr;
  StepTicket last_ticket_ = 0;
  bool ended_ = false, alone_ = false;
};

}  // namespace penstock::cuda
