// Rows of a step's tensor in the host's memory: where they are, if they are there, else copied when first asked for.
#pragma once
#include <span>
#include <vector>

#include "ops/ops.h"

namespace penstock {

class HostRows {
 public:
  explicit HostRows(Ops& ops) : ops_(ops) {}
  // From now on rows of x; those of the tensor before are gone.
  void set(Tensor x);
  const Tensor& tensor() const { return x_; }
  // [x.cols], may be overwritten; valid until the next set() or the end of the step.
  std::span<float> row(int i);

 private:
  Ops& ops_;
  Tensor x_;
  float* here_ = nullptr;
  std::vector<std::vector<float>> copies_;  // [row], empty: not asked for yet
};

}  // namespace penstock
