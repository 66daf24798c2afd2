#include "engine/compute/pooler.h"

#include <algorithm>
#include <cmath>

#include "base/check.h"

namespace penstock {

void Pooler::add(std::span<const float> state) {
  PENSTOCK_CHECK(static_cast<int>(state.size()) == dim_);
  ++n_;
  for (size_t p = 0; p < poolings_.size(); ++p) {
    std::vector<double>& sum = sums_[p];
    const Pooling pooling = poolings_[p];
    const bool replaces = n_ == 1 || pooling == Pooling::kLast;
    if (replaces) {
      sum.assign(state.begin(), state.end());
    } else if (pooling == Pooling::kMax) {
      for (size_t d = 0; d < sum.size(); ++d) sum[d] = std::max<double>(sum[d], state[d]);
    } else if (pooling != Pooling::kCls) {
      const double weight = pooling == Pooling::kWeightedMean ? n_ : 1.0;
      for (size_t d = 0; d < sum.size(); ++d) sum[d] += weight * state[d];
    }
  }
}

std::vector<float> Pooler::result() const {
  PENSTOCK_CHECK(n_ > 0);
  std::vector<float> out;
  out.reserve(poolings_.size() * static_cast<size_t>(dim_));
  const double n = n_;
  for (size_t p = 0; p < poolings_.size(); ++p) {
    double by = 1.0;
    if (poolings_[p] == Pooling::kMean) by = n;
    if (poolings_[p] == Pooling::kMeanBySqrt) by = std::sqrt(n);
    if (poolings_[p] == Pooling::kWeightedMean) by = n * (n + 1) / 2;
    for (const double value : sums_[p]) out.push_back(static_cast<float>(value / by));
  }
  return out;
}

}  // namespace penstock
