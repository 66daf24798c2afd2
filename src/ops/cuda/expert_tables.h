// Where the weights of a layer's experts are, as kernels find them by an expert's number.
#pragma once
#include <memory>
#include <span>
#include <unordered_map>
#include <vector>

#include "ops/cuda/device.h"
#include "ops/cuda/kernels/products.h"
#include "ops/ops.h"

namespace penstock::cuda {

class ExpertTables {
 public:
  explicit ExpertTables(Device& device) : device_(device) {}
  // Made when first asked for. biases: one per weight, or none. Null after a failure of the device.
  const ExpertWeight* on_device(std::span<const std::unique_ptr<Weight>> weights,
                                std::span<const std::unique_ptr<Vector>> biases);

 private:
  struct Table {
    std::vector<ExpertWeight> host;
    Memory memory;
  };
  Device& device_;
  std::unordered_map<const void*, Table> tables_;  // by where the layer's weights are on the host
};

}  // namespace penstock::cuda
