// Fused kernels for steps of few rows (kernels/layer.h): products compute the norm of their input
// and what follows them in the layer. The results are the bits of one operation after the other,
// for which multiply() serves, too.
#pragma once
#include <span>

#include "ops/batch.h"
#include "ops/cuda/device.h"
#include "ops/cuda/kernels/layer.h"
#include "ops/ops.h"

namespace penstock::cuda {

class LayerProducts {
 public:
  // any_rows: multiply() takes any number of rows, so that no row depends on how many there are;
  // otherwise at most 8, and 4 for codes, since WideProducts is faster with more.
  LayerProducts(Device& device, bool any_rows) : device_(device), any_rows_(any_rows) {}

  void enable(bool on) { enabled_ = on; }
  // Enables streaming of weights through shared memory (kernels/weight_stream.h), which changes the
  // order of sums.
  void stream(bool on) { streams_ = on; }
  void begin_step(const Batch& batch);
  // Whether the step has sequences with adapters and the target has terms of adapters.
  bool adapts(const LinearTarget& target) const { return target.adapters != nullptr && adapted_; }
  // Whether the norm of x is computed by its readers.
  bool takes_norms(Tensor x) const;
  // Fused operations of Ops, without the norm that linear_add() computes. Return false, and do
  // nothing, if no kernel fits.
  bool norm_linear(const NormedInput& h, std::span<const LinearTarget> targets);
  bool gated_linear(const NormedInput& h, const LinearTarget& gate, const LinearTarget& up,
                    const ActivationFunction& f, Tensor out);
  bool linear_add(Tensor in, const LinearTarget& target, Tensor x, float delta_scale);
  // One product, if it is faster here than in WideProducts.
  bool multiply(const Product& product);

 private:
  void launch(const LayerProduct& kernel, int n_tiles, bool streams);
  template <class K>
  bool stream(const LayerProduct& kernel, int n_tiles);
  bool suits_norm(const NormedInput& h, std::span<const LinearTarget> targets) const;
  bool suits(Tensor x, std::span<const LinearTarget> targets) const;

  Device& device_;
  bool any_rows_, enabled_ = true, streams_ = true, adapted_ = false;
};

}  // namespace penstock::cuda
