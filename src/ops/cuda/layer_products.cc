#include "ops/cuda/layer_products.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "base/check.h"
#include "ops/cuda/cuda_vector.h"
#include "ops/cuda/packed_weight.h"
#include "ops/cuda/tensors.h"
#include "ops/cuda/wide_products.h"

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

// Adds a target to the kernel, from first_tile on. Returns its number of tiles.
int add_target(LayerProduct& kernel, const LinearTarget& target, Tensor out, int first_tile) {
  const WeightOnDevice& weight = static_cast<const CudaWeight&>(*target.weight).on_device();
  PENSTOCK_CHECK(weight.cols == kernel.x.cols && weight.rows == out.cols &&
                 out.rows == kernel.x.rows);
  kernel.targets[kernel.n_targets++] = {weight, rows_of(out), device_data(target.bias), first_tile,
                                        stream_coding(weight)};
  return (out.cols + WeightOnDevice::kTileRows - 1) / WeightOnDevice::kTileRows;
}

bool can_stream(const WeightOnDevice& w) {
  return stream_coding(w) != StreamCoding::kNone && stream_coding(w) != StreamCoding::kF16 &&
         w.input_order == nullptr && w.cols % 16 == 0;
}
bool can_stream(const LinearTarget& target) {
  return can_stream(static_cast<const CudaWeight&>(*target.weight).on_device());
}

// The streaming kernels load inputs in pieces of 8 bytes.
bool can_stream(const Rows& x) {
  return reinterpret_cast<uintptr_t>(x.data) % 8 == 0 && x.stride % 2 == 0;
}

// Bytes of shared memory for a warp's inputs of `items` items, or of all items if there are fewer.
template <class K>
int input_bytes(const LayerProduct& kernel, int items) {
  const auto bytes_of = [&]<class C>(C) {
    constexpr int kCols = kStreamWarps * C::kItemCols;
    return std::min(items, (kernel.targets[0].w.padded_cols + kCols - 1) / kCols) *
           C::template kInputBytes<K::kTokens>;
  };
  return std::max(bytes_of(typename CodingOf<K::kOne>::Type()),
                  bytes_of(typename CodingOf<K::kOther>::Type()));
}

// The codings of the kernel's targets. A streaming kernel is compiled for at most two different
// ones.
using Codings = std::pair<StreamCoding, StreamCoding>;
std::optional<Codings> codings_of(const LayerProduct& kernel) {
  using enum StreamCoding;
  Codings both = {kernel.targets[0].coding, kernel.targets[0].coding};
  for (int i = 1; i < kernel.n_targets; ++i) {
    const StreamCoding other = kernel.targets[i].coding;
    if (both.first == both.second) both = std::minmax({both.first, other});
    if (other != both.first && other != both.second) return {};
  }
  const bool has = both.first == both.second ||
                   (both.second == kSuper6 && (both.first == kSuper4 || both.first == kSuper5));
  return has ? std::optional(both) : std::nullopt;
}

// Calls fn.operator()<One, Other>() with the codings as template arguments.
template <class Fn>
bool with_codings(Codings both, Fn fn) {
  using enum StreamCoding;
  const auto alone = [&]<StreamCoding One>() { return fn.template operator()<One, One>(); };
  if (both == Codings{kSuper4, kSuper6}) return fn.template operator()<kSuper4, kSuper6>();
  if (both == Codings{kSuper5, kSuper6}) return fn.template operator()<kSuper5, kSuper6>();
  switch (both.first) {
    case kBF16: return alone.template operator()<kBF16>();
    case kHalf8: return alone.template operator()<kHalf8>();
    case kHalf4: return alone.template operator()<kHalf4>();
    case kWide4: return alone.template operator()<kWide4>();
    case kWide4Zeros: return alone.template operator()<kWide4Zeros>();
    case kSuper4: return alone.template operator()<kSuper4>();
    case kSuper5: return alone.template operator()<kSuper5>();
    case kSuper6: return alone.template operator()<kSuper6>();
    case kE2M1: return alone.template operator()<kE2M1>();
    case kNone:
    case kF16: break;
  }
  return false;
}

}  // namespace

// Launches the streaming kernel K. Returns false if it needs more shared memory than there is.
template <class K>
bool LayerProducts::stream(const LayerProduct& kernel, int n_tiles) {
  const int most_bytes = device_.most_shared_bytes();
  const auto bytes_of = [&](int items) { return input_bytes<K>(kernel, items); };
  int items = 3;
  while (items > 1 && K::shared_bytes(bytes_of(items)) > most_bytes) --items;
  const int few = bytes_of(items), all = bytes_of(1 << 20);
  if (K::shared_bytes(few) > most_bytes) return false;
  const auto at_once = [&](int of_inputs) {
    return device_.n_blocks_at_once(K::shared_bytes(of_inputs));
  };
  // A block that multiplies its inputs more than once keeps all of them, if they fit.
  const bool again = n_tiles > at_once(few) || kernel.end == End::kGate;
  const int bytes = again && K::shared_bytes(all) <= most_bytes ? all : few;
  const int n_blocks = std::min(n_tiles, at_once(bytes)),
            n_parts = (kernel.x.rows + K::kTokens - 1) / K::kTokens;
  device_.launch(K{kernel, n_tiles, n_blocks, bytes},
                 Grid{n_blocks, n_parts, K::shared_bytes(bytes)});
  return true;
}

// A row's result does not depend on how many rows a block takes. One row fits every GPU's memory.
void LayerProducts::launch(const LayerProduct& kernel, int n_tiles, bool streams) {
  if (!streams) return device_.launch(kernel, Grid{n_tiles, 1, LayerProduct::kSharedBytes});
  const std::optional<Codings> codings = codings_of(kernel);
  PENSTOCK_CHECK(codings.has_value());
  const bool done = with_codings(*codings, [&]<StreamCoding One, StreamCoding Other>() {
    if (kernel.x.rows > 4 && stream<StreamProduct<8, One, Other>>(kernel, n_tiles)) return true;
    if (kernel.x.rows > 1 && stream<StreamProduct<4, One, Other>>(kernel, n_tiles)) return true;
    return stream<StreamProduct<1, One, Other>>(kernel, n_tiles);
  });
  PENSTOCK_CHECK(done);
}

void LayerProducts::begin_step(const Batch& batch) {
  adapted_ = std::ranges::any_of(batch.adapters, [](int32_t slot) { return slot >= 0; });
}

bool LayerProducts::takes_norms(Tensor x) const {
  return enabled_ && x.rows > 0 && x.rows <= LayerProduct::kTokens;
}

// Streaming kernels read one row of a norm's weights only.
bool LayerProducts::suits_norm(const NormedInput& h, std::span<const LinearTarget> targets) const {
  return !streams_ || !h.norm || row_norm_of(*h.norm, h.x.cols).weight_rows == 1 ||
         std::ranges::none_of(targets,
                              [](const LinearTarget& target) { return can_stream(target); });
}

bool LayerProducts::suits(Tensor x, std::span<const LinearTarget> targets) const {
  return takes_norms(x) && std::ranges::all_of(targets, [&](const LinearTarget& target) {
           const auto& weight = static_cast<const CudaWeight&>(*target.weight);
           const WeightForm form = weight.on_device().form;
           const bool by_mma = form == WeightForm::kCodes || form == WeightForm::kBF16;
           if (!any_rows_ && x.rows >= WideProducts::least_rows(form)) return false;
           return by_mma && !weight.rounding().to_int8 && !adapts(target);
         });
}

bool LayerProducts::norm_linear(const NormedInput& h, std::span<const LinearTarget> targets) {
  if (!suits(h.x, targets) || !suits_norm(h, targets)) return false;
  // Streaming kernels sum in another order than the others. Each target is computed by the kernel
  // that suits it, so that its bits do not depend on the other targets.
  for (const bool streams : {true, false}) {
    LayerProduct kernel = product_of(h, End::kStore);
    const bool may = streams_ && can_stream(kernel.x);
    int n_tiles = 0;
    const auto flush = [&] {
      if (kernel.n_targets > 0) launch(kernel, n_tiles, streams);
      kernel.n_targets = n_tiles = 0;
    };
    for (const LinearTarget& target : targets) {
      if ((may && can_stream(target)) != streams) continue;
      const int n_more = add_target(kernel, target, target.out, n_tiles);
      // a third coding: the target goes to the next kernel
      if (streams && !codings_of(kernel)) {
        --kernel.n_targets, flush();
        add_target(kernel, target, target.out, 0);
      }
      n_tiles += n_more;
      if (kernel.n_targets == LayerProduct::kMostTargets) flush();
    }
    flush();
  }
  return true;
}

bool LayerProducts::gated_linear(const NormedInput& h, const LinearTarget& gate,
                                 const LinearTarget& up, const ActivationFunction& f, Tensor out) {
  const LinearTarget both[] = {gate, up};
  LayerProduct kernel = product_of(h, End::kGate);
  const bool may = streams_ && can_stream(kernel.x), streams = may && can_stream(gate);
  if (!suits(h.x, both) || !suits_norm(h, both) || (may && can_stream(up)) != streams) return false;
  kernel.f = f;
  const int n_tiles = add_target(kernel, gate, out, 0);
  add_target(kernel, up, out, 0);
  if (streams && kernel.targets[0].coding != kernel.targets[1].coding) return false;
  launch(kernel, n_tiles, streams);
  return true;
}

bool LayerProducts::linear_add(Tensor in, const LinearTarget& target, Tensor x, float delta_scale) {
  if (target.partial || !suits(in, {&target, 1})) return false;
  LayerProduct kernel = product_of({in, {}, in}, End::kAdd);
  kernel.factor = delta_scale;
  const int n_tiles = add_target(kernel, target, x, 0);
  launch(kernel, n_tiles, streams_ && can_stream(kernel.x) && can_stream(target));
  return true;
}

bool LayerProducts::multiply(const Product& product) {
  if (!streams_ || !can_stream(product.x) || !can_stream(product.w) ||
      product.token_scales != nullptr)
    return false;
  if (!any_rows_ && product.x.rows > LayerProduct::kTokens) return false;
  LayerProduct kernel{};
  kernel.x = product.x, kernel.end = End::kStore;
  kernel.targets[kernel.n_targets++] = {product.w, product.out, product.bias, 0,
                                        stream_coding(product.w)};
  launch(kernel, (product.w.rows + WeightOnDevice::kTileRows - 1) / WeightOnDevice::kTileRows,
         true);
  return true;
}

}  // namespace penstock::cuda
