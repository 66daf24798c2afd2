// Products of experts that have few rows each, by streams of weights (kernels/expert_stream.h).
#pragma once
#include <span>

#include "ops/cuda/device.h"
#include "ops/cuda/kernels/expert_stream.h"

namespace penstock::cuda {

class ExpertStreams {
 public:
  explicit ExpertStreams(Device& device) : device_(device) {}

  void enable(bool on) { enabled_ = on; }
  // Whether products of rows x with these weights are computed here.
  bool suits(std::span<const ExpertWeight> experts, const Rows& x) const;
  // Whether two weights of an expert may be multiplied by one kernel. REQUIRES: both suit.
  static bool alike(const WeightOnDevice& a, const WeightOnDevice& b);
  // Returns how many rows a group should have for which `wanted` would be best: as many, or fewer if
  // the device has too little shared memory. One row fits every GPU.
  int rows_of_group(const WeightOnDevice& w, int wanted) const;

  struct Work {
    const ExpertWeight *experts, *ups;  // tables on the device; ups: null, or f(experts) * ups
    WeightOnDevice shape;               // of all weights
    ExpertGroups groups;
    int rows_of_group;
    Rows x, out;
    bool by_token;  // see ExpertStream
    ActivationFunction f = {};
  };
  void multiply(const Work& work);

 private:
  template <class K>
  void launch(const Work& work);

  Device& device_;
  bool enabled_ = true;
};

}  // namespace penstock::cuda
