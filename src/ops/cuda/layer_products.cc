#include "ops/cuda/layer_products.h"

#include <algorithm>

#include "base/check.h"
#include "ops/cuda/cuda_vector.h"
#include "ops/cuda/packed_weight.h"
#include "ops/cuda/tensors.h"

namespace penstock::cuda {
namespace {

using End = LayerProduct::End;

LayerProduct product_of(const NormedInput& h, End end) {
  LayerProduct kernel{};
  kernel.x = rows_of(h.norm ? h.x : h.values), kernel.end = end;
  kernel.has_norm = h.norm.has_value();
  if (h.norm) kernel.norm = row_norm_of(*h.norm, h.x.cols);
  return kernel;
}

// Returns how many tiles it has.
int add_target(LayerProduct& kernel, const LinearTarget& target, Tensor out, int first_tile) {
  const WeightOnDevice& weight = static_cast<const CudaWeight&>(*target.weight).on_device();
  PENSTOCK_CHECK(weight.cols == kernel.x.cols && weight.rows == out.cols && out.rows == kernel.x.rows);
  kernel.targets[kernel.n_targets++] = {weight, rows_of(out), device_data(target.bias), first_tile};
  return (out.cols + WeightOnDevice::kTileRows - 1) / WeightOnDevice::kTileRows;
}

bool can_stream(const LayerProduct& kernel) {
  for (int i = 0; i < kernel.n_targets; ++i) {
    const WeightOnDevice& w = kernel.targets[i].w;
    const StreamCoding coding = stream_coding(w);
    const bool same = kernel.end != End::kGate || coding == stream_coding(kernel.targets[0].w);
    if (coding == StreamCoding::kNone || !same || w.input_order != nullptr) return false;
  }
  return !kernel.has_norm || kernel.norm.weight_rows == 1;
}

}  // namespace

void LayerProducts::launch(const LayerProduct& kernel, int n_tiles) {
  const auto stream = [&]<class K>() { device_.launch(K{kernel}, Grid{n_tiles, 1, K::kSharedBytes}); };
  const bool one = kernel.x.rows == 1, gates = kernel.end == End::kGate;
  if (!streams_ || !can_stream(kernel)) {
    device_.launch(kernel, Grid{n_tiles, 1, LayerProduct::kSharedBytes});
  } else if (gates) {
    one ? stream.operator()<StreamProduct<1, true>>() : stream.operator()<StreamProduct<8, true>>();
  } else {
    one ? stream.operator()<StreamProduct<1, false>>() : stream.operator()<StreamProduct<8, false>>();
  }
}

void LayerProducts::begin_step(const Batch& batch) {
  adapted_ = std::ranges::any_of(batch.adapters, [](int32_t slot) { return slot >= 0; });
}

bool LayerProducts::takes_norms(Tensor x) const {
  return enabled_ && x.rows > 0 && x.rows <= LayerProduct::kTokens;
}

bool LayerProducts::suits(Tensor x, std::span<const LinearTarget> targets) const {
  return takes_norms(x) && std::ranges::all_of(targets, [&](const LinearTarget& target) {
           const auto& weight = static_cast<const CudaWeight&>(*target.weight);
           const WeightForm form = weight.on_device().form;
           const bool by_mma = form == WeightForm::kCodes || form == WeightForm::kBF16;
           return by_mma && !weight.rounding().to_int8 && (target.adapters == nullptr || !adapted_);
         });
}

bool LayerProducts::norm_linear(const NormedInput& h, std::span<const LinearTarget> targets) {
  if (!suits(h.x, targets)) return false;
  while (!targets.empty()) {
    const size_t n = std::min<size_t>(targets.size(), LayerProduct::kMostTargets);
    LayerProduct kernel = product_of(h, End::kStore);
    int n_tiles = 0;
    for (const LinearTarget& target : targets.first(n))
      n_tiles += add_target(kernel, target, target.out, n_tiles);
    launch(kernel, n_tiles);
    targets = targets.subspan(n);
  }
  return true;
}

bool LayerProducts::gated_linear(const NormedInput& h, const LinearTarget& gate, const LinearTarget& up,
                                 const ActivationFunction& f, Tensor out) {
  const LinearTarget both[] = {gate, up};
  if (!suits(h.x, both)) return false;
  LayerProduct kernel = product_of(h, End::kGate);
  kernel.f = f;
  const int n_tiles = add_target(kernel, gate, out, 0);
  add_target(kernel, up, out, 0);
  launch(kernel, n_tiles);
  return true;
}

bool LayerProducts::linear_add(Tensor in, const LinearTarget& target, Tensor x, float delta_scale) {
  if (target.partial || !suits(in, {&target, 1})) return false;
  LayerProduct kernel = product_of({in, {}, in}, End::kAdd);
  kernel.factor = delta_scale;
  const int n_tiles = add_target(kernel, target, x, 0);
  launch(kernel, n_tiles);
  return true;
}

bool LayerProducts::multiply(const Product& product) {
  if (!enabled_ || !streams_ || product.x.rows > LayerProduct::kTokens || product.token_scales != nullptr)
    return false;
  LayerProduct kernel{};
  kernel.x = product.x, kernel.end = End::kStore;
  kernel.targets[kernel.n_targets++] = {product.w, product.out, product.bias};
  if (!can_stream(kernel)) return false;
  launch(kernel, (product.w.rows + WeightOnDevice::kTileRows - 1) / WeightOnDevice::kTileRows);
  return true;
}

}  // namespace penstock::cuda
