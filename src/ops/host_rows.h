// Rows of a step's tensor in host memory: in place if they are there, else copied on first use.
#pragma once
#include <span>
#include <vector>

#include "ops/ops.h"

namespace penstock {

class HostRows {
 public:
  explicit HostRows(Ops& ops) : ops_(ops) {}
  // Selects the tensor; rows of the previous one are invalid.
  void set(Tensor x);
  const Tensor& tensor() const { return x_; }
  // [x.cols], may be overwritten; valid until the next set() or the end of the step.
  std::span<float> row(int i);

 private:
  Ops& ops_;
  Tensor x_;
  float* here_ = nullptr;
  std::vector<std::vector<float>> copies_;  // [row]; empty: not copied
};

}  // namespace penstock
