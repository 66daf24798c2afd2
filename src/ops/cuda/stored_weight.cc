// Packed weights to files and back. The bytes are those on the device; the shape in a description
// is validated, so that no kernel reads out of bounds.
#include <cmath>
#include <cstring>
#include <vector>

#include "ops/cuda/packed_weight.h"

namespace penstock::cuda {
namespace {

// The format of StoredWeight::description.
struct Description {
  int32_t rows, cols;
  float unit, fixed_scale;
  uint8_t form, scales, offsets, zeros, bits, group, to_int8, has_order;
};
static_assert(sizeof(Description) == 24);

bool plausible(const Description& d) {
  constexpr int kMaxSide = 1 << 28;  // padded sizes fit an int
  const bool flags = d.offsets <= 1 && d.zeros <= 1 && d.to_int8 <= 1 && d.has_order <= 1;
  if (!flags || d.rows <= 0 || d.rows > kMaxSide || d.cols <= 0 || d.cols > kMaxSide) return false;
  if (!std::isfinite(d.unit) || !std::isfinite(d.fixed_scale) || d.fixed_scale < 0) return false;
  if (d.form < static_cast<uint8_t>(WeightForm::kCodes)) return true;
  const bool group = d.group == 16 || d.group == 32 || d.group == 64;
  return d.form == static_cast<uint8_t>(WeightForm::kCodes) && group && d.bits >= 1 &&
         d.bits <= 8 && d.bits != 7 && d.scales <= static_cast<uint8_t>(ScaleForm::kSuper) &&
         !(d.offsets && d.zeros);
}

bool is_permutation(const std::byte* order, int n) {
  std::vector<bool> seen(static_cast<size_t>(n));
  for (int k = 0; k < n; ++k) {
    int32_t column;
    std::memcpy(&column, order + sizeof column * static_cast<size_t>(k), sizeof column);
    if (column < 0 || column >= n || seen[static_cast<size_t>(column)]) return false;
    seen[static_cast<size_t>(column)] = true;
  }
  return true;
}

}  // namespace

std::string WeightPacker::describe(const CudaWeight& weight) {
  const WeightOnDevice& w = weight.on_device();
  Description d = {};
  d.rows = w.rows, d.cols = w.cols, d.unit = w.unit, d.fixed_scale = weight.rounding().fixed_scale;
  d.form = static_cast<uint8_t>(w.form), d.scales = static_cast<uint8_t>(w.scales);
  d.offsets = w.offsets, d.zeros = w.zeros, d.bits = static_cast<uint8_t>(w.bits);
  d.group = static_cast<uint8_t>(w.group), d.to_int8 = weight.rounding().to_int8;
  d.has_order = w.input_order != nullptr;
  return {reinterpret_cast<const char*>(&d), sizeof d};
}

OwnedBytes WeightPacker::store(const CudaWeight& weight) const {
  const auto bytes =
      std::make_shared<std::vector<std::byte>>(static_cast<size_t>(weight.packed_bytes()));
  device_.copy_out(bytes->data(), weight.on_device().data, bytes->size());
  return {*bytes, bytes};
}

Result<std::unique_ptr<Weight>> WeightPacker::restore(const StoredWeight& stored) {
  const auto refuse = [](const char* what) {
    return errorf(ErrorCode::kCorruptFile, "stored weight: {}", what);
  };
  Description d = {};
  if (stored.description.size() != sizeof d) return refuse("a description of another length");
  std::memcpy(&d, stored.description.data(), sizeof d);
  if (!plausible(d)) return refuse("no such shape or type");
  WeightOnDevice shape;
  shape.rows = d.rows, shape.cols = d.cols, shape.unit = d.unit;
  shape.form = static_cast<WeightForm>(d.form);
  shape.scales = static_cast<ScaleForm>(d.scales), shape.offsets = d.offsets != 0;
  shape.zeros = d.zeros != 0, shape.bits = d.bits, shape.group = d.group;
  set_layout(shape);
  const WeightParts parts(shape, d.has_order != 0);
  if (parts.bytes() != stored.bytes.size()) return refuse("not of its size");
  if (d.has_order != 0 && !is_permutation(stored.bytes.data() + parts.order_at(), d.cols))
    return refuse("the order of its columns is no order");
  return put_back(shape, parts, {d.to_int8 != 0, d.fixed_scale}, stored.bytes);
}

}  // namespace penstock::cuda
