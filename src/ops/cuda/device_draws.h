// Draws on the device (kernels/sample.h), from when they are asked for until the host is told. What is left to the host: filters
// (top-k, top-p, min-p) and lists of likely tokens.
#pragma once
#include <span>
#include <vector>

#include "kernels/sample_row.h"
#include "ops/batch.h"
#include "ops/cuda/device.h"
#include "ops/cuda/kernels/sample.h"
#include "ops/cuda/step_memory.h"

namespace penstock::cuda {

class DeviceDraws {
 public:
  DeviceDraws(Device& device, StepMemory& step_memory) : device_(device), step_memory_(step_memory) {}

  // Tokens that the batch names by who drew them become what was drawn.
  void begin_step(const Batch& batch, const BatchOnDevice* on_device);
  StepTicket end_step();
  // Of a step and all before it: returns when they are done and their draws told.
  void wait(StepTicket ticket);
  void sample(Tensor logits, std::span<const SampleRow> rows, std::span<SampleResult> results);

 private:
  // Of one call of sample().
  struct Asked {
    Memory memory;  // DrawnOnDevice
    std::vector<SampleRow> rows;
    std::span<SampleResult> results;
    StepTicket step = 0;
    bool pending = false;
  };
  void tell(Asked& asked);
  // A copy on the device, until the next step begins; null after a failure, or where there are none.
  template <class T>
  T* bring(const std::vector<T>& values);
  template <class T>
  T* scratch(size_t n);

  Device& device_;
  StepMemory& step_memory_;
  Asked asked_[2];  // the next step may begin before this one's draws are told
  int now_ = 0;
  StepTicket last_ticket_ = 0;
  bool ended_ = false;
};

}  // namespace penstock::cuda
