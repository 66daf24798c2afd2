// Products of many rows (kernels/wide_product.h): rounds their inputs and chooses the size of
// blocks.
#pragma once
#include <span>

#include "ops/cuda/device.h"
#include "ops/cuda/kernels/wide_product.h"
#include "ops/ops.h"

namespace penstock::cuda {

class WideProducts {
 public:
  // Numbers of rows from which on products are computed here (of codes, of floats), and from which
  // on inputs and decoded weights are rounded to BF16; so a row's result depends on the number of
  // rows.
  static constexpr int kLeastOfCodes = 5, kLeastOfFloats = 9, kLeastRounded = 65;
  static constexpr int least_rows(WeightForm form) {
    return form == WeightForm::kCodes ? kLeastOfCodes : kLeastOfFloats;
  }

  // enabled: false if the bits of a row must not depend on other rows.
  WideProducts(Device& device, bool enabled)
      : device_(device), enabled_(enabled), gates_(device.emulated()) {}

  void enable(bool on) { enabled_ = on; }
  // Enables gated_linear(). Off by default on GPUs, since no GPU has run its kernel yet.
  void gate(bool on) { gates_ = on; }
  // How products are split: rows of a block, and parts into which inputs are split. 0: the best for
  // the device.
  struct Cut {
    int tokens = 0, splits = 0;
    bool operator==(const Cut&) const = default;
  };
  struct Shape {
    int rows, outputs, units;  // of 64 inputs
  };
  // Returns the fastest split for a device with this many multiprocessors.
  static Cut best_cut(const Shape& shape, int n_multiprocessors, bool has_wgmma);
  void cut(Cut as) { forced_ = as; }

  // Invalidates the rounded inputs: x is another tensor, or has changed. The output of
  // gated_linear(), which it rounds itself, stays valid if it is x and no kernel was launched
  // since.
  void begin_inputs(const float* x = nullptr) {
    if (x == nullptr || rounded_.of != x || device_.n_launches() != gated_at_) rounded_ = {};
  }
  // Returns false, and does nothing, if no kernel fits, or if the device has too little shared
  // memory.
  bool multiply(const Product& product);
  // Ops::gated_linear() of weights without adapters, if the separate products would not split their
  // inputs: the results are the bits of products and activation one after the other, and `out` is
  // rounded for its reader. Returns false like multiply().
  bool gated_linear(Tensor x, const LinearTarget& gate, const LinearTarget& up,
                    const ActivationFunction& f, Tensor out);

  // Rows sorted by expert (kernels/moe.h), made from the rows of x; on the device, in the form of
  // RoundToTiles.
  struct RowsByExpert {
    Rows x;
    const int32_t* sources;  // null: x is sorted by expert
    const float* choice_weights;
    int n_active;
    const int32_t* tile_experts;
    int n_rows;
  };
  // Returns the multiple of rows at which each expert's rows must begin for multiply_experts(); 0:
  // there are too few rows, or the weights do not fit. REQUIRES: all weights have one shape.
  int rows_of_experts(std::span<const ExpertWeight> experts, int n_tokens, int n_choices) const;
  // experts: table on the device. first: one of the weights.
  void multiply_experts(const ExpertWeight* experts, const WeightOnDevice& first,
                        const RowsByExpert& rows, int rows_of_expert, Rows out);
  // Returns the memory to the device.
  void give_back() { begin_inputs(), inputs_.reset(), gated_.reset(), split_sums_.reset(); }

 private:
  // Rows of x, rounded for products.
  struct Rounded {
    const float* of = nullptr;
    const int32_t *input_order = nullptr, *sources = nullptr;
    bool halves = false;
    int padded_cols = 0, padded_tokens = 0, parts = 0;
    bool operator==(const Rounded&) const = default;
  };
  Status round(RoundToTiles kernel, const WeightOnDevice& w);
  const float* floats_of_inputs() const;
  Status make_room(Memory& memory, size_t bytes);
  Cut cut_for(const Product& product) const;
  template <StreamCoding Of>
  bool launch(const Product& product, Cut cut, int parts);

  Device& device_;
  bool enabled_, gates_;
  Cut forced_;
  // rounded inputs and split sums of the previous product
  Memory inputs_, split_sums_;
  Memory gated_;  // inputs of the product after a gated one
  Rounded rounded_;
  // Device::n_launches() after the last gated product
  uint64_t gated_at_ = 0;
};

}  // namespace penstock::cuda
