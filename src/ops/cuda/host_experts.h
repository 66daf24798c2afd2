// Mixtures whose experts lie in the host's memory: the CPU backend computes them in the middle of a
// step of the device.
//
// The step's inputs and the router's logits go to pinned memory, the host routes and multiplies
// while the device computes what was asked for between send() and run(), and the sum comes back. A
// kernel copies each way, so that recordings contain it.
#pragma once
#include <atomic>
#include <memory>

#include "ops/cuda/device.h"
#include "ops/cuda/kernels/batch.h"
#include "ops/cuda/step_graphs.h"
#include "ops/ops.h"

namespace penstock::cuda {

class HostExperts {
 public:
  HostExperts(Ops& ops, Device& device, StepGraphs& graphs, const OpsConfig& config);

  // Returns the CPU backend, which the first call makes; null with several ranks, or where it cannot
  // be made.
  Ops* host();
  // REQUIRES: the batch is unchanged until the step ends.
  void begin_step(const Batch* batch, const BatchOnDevice* on_device);
  // Asks the device for the mixture's inputs, and for the tokens if they choose the experts.
  void send(Tensor x, Tensor router_logits, const MoeParams& params);
  // As Ops::moe(); sends the inputs unless they were sent.
  void run(Tensor x, Tensor router_logits, const MoeParams& params, Tensor out);
  int64_t bytes_read() const { return bytes_read_; }  // as Ops::expert_bytes_read()

 private:
  // Tensors of a mixture in pinned memory.
  struct Pinned {
    Tensor x, router_logits, out;
    int32_t* tokens;
  };
  Pinned lay_out(Tensor x, Tensor router_logits) const;
  void compute(const Pinned& at, const MoeParams& params);
  // Begins a step of the CPU's whose batch has the tokens that the device has drawn.
  void begin_with_tokens(Ops& cpu, const Pinned& at);

  Ops& ops_;
  Device& device_;
  StepGraphs& graphs_;
  const OpsConfig config_;
  std::unique_ptr<Ops> host_;
  PinnedMemory pinned_;
  const Batch* batch_ = nullptr;  // of the step
  Batch known_;                   // with tokens in place of stand-ins
  std::atomic<int64_t> bytes_read_ = 0;
  const BatchOnDevice* on_device_ = nullptr;
  bool is_sent_ = false;  // inputs of the next run()
  StepTicket sent_ = 0;
};

}  // namespace penstock::cuda
