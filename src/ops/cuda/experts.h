// Mixture of experts without a word to the host: kernels choose, sort and multiply (kernels/moe.h).
#pragma once
#include <memory>
#include <span>
#include <unordered_map>
#include <vector>

#include "ops/cuda/device.h"
#include "ops/cuda/kernels/batch.h"
#include "ops/cuda/kernels/products.h"
#include "ops/cuda/step_memory.h"
#include "ops/ops.h"

namespace penstock::cuda {

class Experts {
 public:
  // All outlive this. ops: for operations on rows.
  Experts(Ops& ops, Device& device, StepMemory& memory) : ops_(ops), device_(device), memory_(memory) {}

  // As Ops::moe(). batch: null where a step is over tensors alone.
  void run(Tensor x, Tensor router_logits, const MoeParams& params, const BatchOnDevice* batch, Tensor out);

 private:
  struct Table {
    std::vector<ExpertWeight> host;
    Memory memory;
  };
  // Where the weights of a layer's experts are, as kernels find them by an expert's number; made when first asked for. biases: one
  // per weight, or none. Null after a failure of the device.
  const ExpertWeight* table_of(std::span<const std::unique_ptr<Weight>> weights,
                               std::span<const std::unique_ptr<Vector>> biases);
  template <class T>
  T* scratch(size_t n);
  // x and out: rows by expert.
  void multiply(Tensor x, std::span<const std::unique_ptr<Weight>> weights,
                std::span<const std::unique_ptr<Vector>> biases, const int32_t* tile_experts, Tensor out);

  Ops& ops_;
  Device& device_;
  StepMemory& memory_;
  std::unordered_map<const void*, Table> tables_;  // by where the layer's weights are on the host
};

}  // namespace penstock::cuda
