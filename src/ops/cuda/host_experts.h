// Mixtures whose experts lie in the host's memory: the CPU backend computes them in the middle of a
// step of the device.
//
// The step's inputs and the router's logits go to pinned memory, the host routes and multiplies
// while the device computes what was asked for between send() and run(), and the sum comes back. A
// kernel copies each way, so that recordings contain it.
//
// Where weights have twins (Ops::keep_twins()), the device routes, and computes the experts that it
// has copies of (hot_experts.h): the host computes the others, and the sums are added. In
// batch-invariant runs the device computes all of them, those without a copy in turns, so that bits
// depend on no place; so it does in steps of many tokens, where that takes less time.
#pragma once
#include <atomic>
#include <memory>
#include <vector>

#include "ops/cuda/device.h"
#include "ops/cuda/experts.h"
#include "ops/cuda/hot_experts.h"
#include "ops/cuda/kernels/batch.h"
#include "ops/cuda/measured_way.h"
#include "ops/cuda/packed_weight.h"
#include "ops/cuda/step_graphs.h"
#include "ops/ops.h"

namespace penstock::cuda {

class HostExperts final : private TwinMaker {
 public:
  // What it computes with.
  struct Parts {
    Ops& ops;
    Device& device;
    StepGraphs& graphs;
    Experts& experts;
    WeightPacker& packer;
  };
  HostExperts(const Parts& parts, const OpsConfig& config);

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
  // See Ops::keep_twins() and host_computes().
  void keep_twins(bool on) { keeps_twins_ = on; }
  bool computes(const Weight& weight) const {
    return !config_.batch_invariant || weight.twin() == nullptr;
  }
  // Whether steps of this backend take turns, which cannot be recorded.
  bool takes_turns() const { return takes_turns_; }
  HotExperts& hot() { return hot_; }
  const HotExperts& hot() const { return hot_; }

 private:
  // Tensors of a mixture in pinned memory.
  struct Pinned {
    Tensor x, router_logits, out;
    int32_t *tokens, *experts;  // experts: [rows, n_active], as are the weights
    float* weights;
  };
  // A mixture between send() and run() of which the device computes a part.
  struct Shared {
    HotLayer* layer = nullptr;  // null: the host computes all
    bool turns = false;         // the device computes all
    Choices choices = {};
    Tensor out;  // of the device's experts
  };
  Result<std::unique_ptr<Weight>> twin(const QuantizedMatrix& matrix) override;
  Result<std::unique_ptr<Weight>> twin(const GroupedMatrix& matrix, int first_row,
                                       int n_rows) override;
  Result<std::unique_ptr<Vector>> twin(std::span<const float> values) override;

  Pinned lay_out(Tensor x, Tensor router_logits, int n_active) const;
  void compute(const Pinned& at, const MoeParams& params, HotLayer* layer);
  void compute_in_time(const Pinned& at, const MoeParams& params, HotLayer* layer);
  // Rows of the step that are no padding.
  int n_own_rows(int n_rows) const;
  bool adapts(const MoeParams& params) const;
  Shared share(Tensor x, Tensor router_logits, const MoeParams& params, const Pinned& at);
  void run_in_turns(Tensor x, const MoeParams& params, const Pinned& at, Tensor out);
  std::span<const int32_t> adapters() const {
    return batch_ != nullptr ? batch_->adapters : std::span<const int32_t>();
  }
  // Begins a step of the CPU's whose batch has the tokens that the device has drawn.
  void begin_with_tokens(Ops& cpu, const Pinned& at);

  Ops& ops_;
  Device& device_;
  StepGraphs& graphs_;
  Experts& experts_;
  WeightPacker& packer_;
  const OpsConfig config_;
  std::unique_ptr<Ops> host_;
  PinnedMemory pinned_;
  HotExperts hot_;
  MeasuredWay way_;  // of steps that are not recorded
  bool keeps_twins_ = false, takes_turns_ = false;
  Shared shared_;                     // of the next run()
  std::vector<ExpertChoice> chosen_;  // the host's part
  const Batch* batch_ = nullptr;      // of the step
  Batch known_;                       // with tokens in place of stand-ins
  std::atomic<int64_t> bytes_read_ = 0;
  const BatchOnDevice* on_device_ = nullptr;
  bool is_sent_ = false;  // inputs of the next run()
  StepTicket sent_ = 0;
};

}  // namespace penstock::cuda
