// Products of many rows (kernels/wide_product.h): what is rounded for them, and which size of block they take.
#pragma once
#include <span>

#include "ops/cuda/device.h"
#include "ops/cuda/kernels/wide_product.h"
#include "ops/ops.h"

namespace penstock::cuda {

class WideProducts {
 public:
  // From so many rows on they are made here (of codes, of floats); and inputs, and what codes stand for, rounded to BF16. So what a row gives
  // depends on how many there are.
  static constexpr int kLeastOfCodes = 5, kLeastOfFloats = 9, kLeastRounded = 65;
  static constexpr int least_rows(WeightForm form) {
    return form == WeightForm::kCodes ? kLeastOfCodes : kLeastOfFloats;
  }

  // enabled: false where a row's bits must be the same whatever the others are.
  WideProducts(Device& device, bool enabled)
      : device_(device), enabled_(enabled), gates_(device.emulated()) {}

  void enable(bool on) { enabled_ = on; }
  // Whether gated_linear() does anything. On a GPU it does not by itself: no GPU has run its kernel yet.
  void gate(bool on) { gates_ = on; }
  // How products are cut: rows of a block, and into how many parts inputs are split. 0: as suits the device.
  struct Cut {
    int tokens = 0, splits = 0;
    bool operator==(const Cut&) const = default;
  };
  struct Shape {
    int rows, outputs, units;  // of 64 inputs
  };
  // What a device with so many multiprocessors is done with first.
  static Cut best_cut(const Shape& shape, int n_multiprocessors, bool has_wgmma);
  void cut(Cut as) { forced_ = as; }

  // What was rounded is of no use any more: x is another, or has changed. But gated_linear() has rounded its own output, if that is what x is and no kernel
  // was launched since.
  void begin_inputs(const float* x = nullptr) {
    if (x == nullptr || rounded_.of != x || device_.n_launches() != gated_at_) rounded_ = {};
  }
  // False: not done, for it is not for these kernels, or they have too little shared memory here.
  bool multiply(const Product& product);
  // Ops::gated_linear() of weights without adapters, where products by themselves would not split their inputs: with the bits of products and activation one after the other; out is rounded for the product that reads it next.
  // False: as above.
  bool gated_linear(Tensor x, const LinearTarget& gate, const LinearTarget& up, const ActivationFunction& f,
                    Tensor out);

  // Rows by expert (kernels/moe.h), made of the rows of x; on the device, as RoundToTiles has them.
  struct RowsByExpert {
    Rows x;
    const int32_t* sources;  // or null: x is by expert itself
    const float* choice_weights;
    int n_active;
    const int32_t* tile_experts;
    int n_rows;
  };
  // From a multiple of how many rows on each expert's have to lie, so that multiply_experts() takes them. 0: it does not take so few, or these
  // weights, whose shapes must be one.
  int rows_of_experts(std::span<const ExpertWeight> experts, int n_tokens, int n_choices) const;
  // experts: on the device. first: one of the weights.
  void multiply_experts(const ExpertWeight* experts, const WeightOnDevice& first, const RowsByExpert& rows,
                        int rows_of_expert, Rows out);
  // Memory of the device.
  void give_back() { begin_inputs(), inputs_.reset(), gated_.reset(), split_sums_.reset(); }

 private:
  // Rows of x as products read them.
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
  Memory inputs_, split_sums_;  // of the product before
  Memory gated_;                // whose inputs come next
  Rounded rounded_;
  uint64_t gated_at_ = 0;  // Device::n_launches() behind the last gated product
};

}  // namespace penstock::cuda
