#include "ops/host_rows.h"

namespace penstock {

void HostRows::set(Tensor x) {
  x_ = x;
  here_ = ops_.in_place(x);
  for (std::vector<float>& copy : copies_) copy.clear();
}

std::span<float> HostRows::row(int i) {
  const auto cols = static_cast<size_t>(x_.cols);
  if (here_ != nullptr) return {here_ + i * x_.row_stride, cols};
  if (copies_.size() <= static_cast<size_t>(i)) copies_.resize(static_cast<size_t>(i) + 1);
  std::vector<float>& copy = copies_[static_cast<size_t>(i)];
  if (copy.empty()) {
    copy.resize(cols);
    ops_.read_rows(x_.row_range(i, 1), copy);
  }
  return copy;
}

}  // namespace penstock
