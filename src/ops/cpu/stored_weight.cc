// Packed weights to files and back. The shape of what is in a file is checked, so that no kernel
// reads beyond it.
#include <cmath>
#include <cstring>
#include <vector>

#include "ops/cpu/weight.h"

namespace penstock {
namespace {

// StoredWeight::description; n_order column numbers follow it.
struct Description {
  int32_t rows, cols;
  uint64_t n_order;
  float fixed_scale;
  uint8_t type, rounding, has_row_scales, unused;
  uint8_t levels[16];
};
static_assert(sizeof(Description) == 40);

bool is_permutation(const InputOrder& order) {
  std::vector<bool> seen(order.size());
  for (const int32_t column : order) {
    if (column < 0 || static_cast<size_t>(column) >= order.size() ||
        seen[static_cast<size_t>(column)])
      return false;
    seen[static_cast<size_t>(column)] = true;
  }
  return true;
}

bool plausible(const Description& d, size_t description_bytes) {
  constexpr int kMaxSide = 1 << 28;  // padded sizes stay in an int
  return d.rows > 0 && d.rows <= kMaxSide && d.cols > 0 && d.cols <= kMaxSide &&
         d.type < kPanelTypeCount &&
         d.rounding <= static_cast<uint8_t>(ActivationRounding::Kind::kFixed) &&
         d.has_row_scales <= 1 &&
         (d.rounding != static_cast<uint8_t>(ActivationRounding::Kind::kFixed) ||
          (std::isfinite(d.fixed_scale) && d.fixed_scale > 0)) &&
         (d.n_order == 0 || d.n_order == static_cast<uint64_t>(d.cols)) &&
         description_bytes == sizeof d + d.n_order * sizeof(int32_t);
}

}  // namespace

std::span<const std::byte> CpuWeight::bytes() const {
  const size_t scale_bytes =
      panels_.row_scales == nullptr
          ? 0
          : sizeof(float) * kPanelRows * static_cast<size_t>(panels_.n_panels());
  return {reinterpret_cast<const std::byte*>(panels_.data),
          panels_.panel_bytes * static_cast<size_t>(panels_.n_panels()) + scale_bytes};
}

std::string CpuWeight::description() const {
  Description d = {};
  d.rows = panels_.rows, d.cols = panels_.cols;
  d.n_order = order_ == nullptr ? 0 : order_->size();
  d.fixed_scale = rounding_.fixed_scale;
  d.type = static_cast<uint8_t>(panels_.type), d.rounding = static_cast<uint8_t>(rounding_.kind);
  d.has_row_scales = panels_.row_scales != nullptr ? 1 : 0;
  std::memcpy(d.levels, panels_.levels, sizeof d.levels);
  std::string text(reinterpret_cast<const char*>(&d), sizeof d);
  if (order_ != nullptr)
    text.append(reinterpret_cast<const char*>(order_->data()), order_->size() * sizeof(int32_t));
  return text;
}

Result<std::unique_ptr<Weight>> WeightPacker::restore(const StoredWeight& stored,
                                                      std::shared_ptr<const void> owner) {
  const auto refuse = [](const char* what) {
    return errorf(ErrorCode::kCorruptFile, "stored weight: {}", what);
  };
  Description d = {};
  if (stored.description.size() < sizeof d) return refuse("the description is cut off");
  std::memcpy(&d, stored.description.data(), sizeof d);
  if (!plausible(d, stored.description.size())) return refuse("no such shape or type");
  auto weight = std::make_unique<CpuWeight>();
  PanelMatrix& panels = weight->panels_;
  panels.rows = d.rows, panels.cols = d.cols, panels.type = static_cast<PanelType>(d.type);
  const PanelSize size = panel_size(panels.type, d.cols);
  panels.padded_cols = size.padded_cols, panels.panel_bytes = size.bytes;
  std::memcpy(panels.levels, d.levels, sizeof d.levels);
  panels.data = reinterpret_cast<const uint8_t*>(stored.bytes.data());
  const size_t panels_bytes = size.bytes * static_cast<size_t>(panels.n_panels());
  if (d.has_row_scales != 0)
    panels.row_scales = reinterpret_cast<const float*>(panels.data + panels_bytes);
  if (size.bytes == 0 || weight->bytes().size() != stored.bytes.size())
    return refuse("not of its size");
  if (reinterpret_cast<uintptr_t>(panels.data) % 64 != 0) return refuse("not aligned");
  if (panels.type == PanelType::kF8Row && panels.row_scales == nullptr)
    return refuse("row scales are missing");
  weight->rounding_ = {static_cast<ActivationRounding::Kind>(d.rounding), d.fixed_scale};
  if (d.n_order != 0) {
    InputOrder order(d.n_order);
    std::memcpy(order.data(), stored.description.data() + sizeof d, d.n_order * sizeof(int32_t));
    if (!is_permutation(order)) return refuse("the order of its columns is no order");
    weight->order_ = shared_order(std::move(order));
  }
  weight->owner_ = std::move(owner);
  return std::unique_ptr<Weight>(std::move(weight));
}

}  // namespace penstock
