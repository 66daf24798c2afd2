// Products of steps of few rows with their neighbours in a layer in one kernel (kernels/layer.h): a norm is taken by the products that read
// it, and what becomes of a product by the product. All bits are those of one operation after the other, which
// multiply() is for, too.
#pragma once
#include <span>

#include "ops/batch.h"
#include "ops/cuda/device.h"
#include "ops/cuda/kernels/layer.h"
#include "ops/ops.h"

namespace penstock::cuda {

class LayerProducts {
 public:
  // any_rows: products by themselves of however many, so that none depends on how many others there are; otherwise of 8 at most, and of 4 with codes,
  // of which WideProducts is faster with more.
  LayerProducts(Device& device, bool any_rows) : device_(device), any_rows_(any_rows) {}

  void enable(bool on) { enabled_ = on; }
  // Off: no weights come through shared memory (kernels/weight_stream.h), which gives sums of another order.
  void stream(bool on) { streams_ = on; }
  void begin_step(const Batch& batch);
  // Whether the step has a sequence with adapters, and the target some.
  bool adapts(const LinearTarget& target) const { return target.adapters != nullptr && adapted_; }
  // Whether a norm of x is left to those that read it.
  bool takes_norms(Tensor x) const;
  // The parts of a layer that Ops has, but for what linear_add() prepares. False: not done, for it is not for these kernels.
  bool norm_linear(const NormedInput& h, std::span<const LinearTarget> targets);
  bool gated_linear(const NormedInput& h, const LinearTarget& gate, const LinearTarget& up,
                    const ActivationFunction& f, Tensor out);
  bool linear_add(Tensor in, const LinearTarget& target, Tensor x, float delta_scale);
  // A product by itself, for which only that is worth it.
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
