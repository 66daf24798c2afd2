// Draws on the device (kernels/sample.h), from the request until the host has the results. Draws
// whose filters leave more than 1,024 tokens are left to the host.
//
// Draws of a batch are a part of its step, recorded and replayed with it; other calls of sample()
// are launches of their own. The kernel writes results to pinned host memory, and tokens to where
// the next step reads them (stand-in tokens).
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

// Descriptions of all draws of a call, with their edits and masks concatenated.
struct DescribedDraws {
  std::vector<DrawOnDevice> draws;
  std::vector<EditOnDevice> edits;
  std::vector<uint32_t> masks;
  DrawsOnDevice on_device;  // without the device addresses of these three
};

class DeviceDraws {
 public:
  DeviceDraws(Device& device, StepMemory& step_memory)
      : device_(device),
        step_memory_(step_memory),
        staged_(device, kLeast),
        asked_{Asked{PinnedMemory(device)}, Asked{PinnedMemory(device)}} {}

  // Returns the draws of the batch, for its upload; valid until the next call.
  const DescribedDraws& begin_step(const Batch& batch);
  // Returns the tokens of the previous step's draws, by draw.
  const int32_t* tokens_before() const { return before_; }
  // Draws as one of the step's operations. n: capacity, at least the number of draws.
  void draw(Tensor logits, const DrawsOnDevice* on_device, int n) { launch(logits, on_device, n); }
  StepTicket end_step();
  // Waits for a step and all earlier ones, and delivers their draws.
  void wait(StepTicket ticket);
  void sample(Tensor logits, std::span<const SampleRow> rows, std::span<SampleResult> results);
  // For tests on the emulated device: one thread makes a draw, which takes a hundredth of the time
  // there.
  void draw_alone() { alone_ = true; }

 private:
  // The draws of one call of sample(), or of a step.
  struct Asked {
    // DrawnOnDevice, then TopOnDevice [draws][tops_stride]
    PinnedMemory told;
    Memory tokens;
    int tops_stride = 0;
    std::vector<SampleRow> rows;
    std::span<SampleResult> results;
    StepTicket step = 0;    // the first step that they may belong to
    StepTicket copied = 0;  // 0: at the end of the step
    bool pending = false;
  };
  static constexpr size_t kLeast = size_t{1} << 16;  // bytes of descriptions

  // Makes described_. Returns false after a failure.
  bool ask(std::span<const SampleRow> rows, std::span<SampleResult> results, int n_mask_words);
  bool make_room(Asked& asked, size_t n_draws, size_t n_tops);
  void launch(Tensor logits, const DrawsOnDevice* on_device, int n);
  void tell(Asked& asked);
  // Copies described_ to the device, valid until the next step begins. Null after a failure.
  const DrawsOnDevice* bring();
  template <class T>
  T* scratch(size_t n);

  Device& device_;
  StepMemory& step_memory_;
  StagedCopies staged_;
  // two: the next step may begin before this one's draws are delivered
  Asked asked_[2];
  int now_ = 0;
  DescribedDraws described_;
  const int32_t* before_ = nullptr;
  StepTicket last_ticket_ = 0;
  bool ended_ = false, alone_ = false;
};

}  // namespace penstock::cuda
