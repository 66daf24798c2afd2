#include "engine/compute/step_costs.h"

#include <algorithm>

namespace penstock {
namespace {

// Rounds counts to keys of points; large counts about 6 % apart share one.
int key_of(int rows) {
  int key = rows;
  for (int step = 1; rows > 32 * step; step *= 2) key = (rows + step) / (2 * step) * (2 * step);
  return key;
}

}  // namespace

void RecentMedian::add(double value) {
  values_[n_++ % kKept] = value;
  if (n_ >= 2 * kKept) n_ -= kKept;
  const int n = std::min(n_, kKept);
  std::array<double, kKept> sorted{};
  for (int i = 0; i < n; ++i) {
    int place = i;
    for (; place > 0 && sorted[place - 1] > values_[i]; --place) sorted[place] = sorted[place - 1];
    sorted[place] = values_[i];
  }
  value_ = sorted[(n - 1) / 2];
}

void StepCosts::Point::add_first(double value) {
  first[static_cast<size_t>(n++)] = value;
  std::sort(first.begin(), first.begin() + n);
  shape = first[n == kFirst ? kFirst / 2 : 0];
}

void StepCosts::add(int rows, double seconds, int n_steps) {
  note(rows, seconds, n_steps);
  fit();
}

void StepCosts::note(int rows, double seconds, int n_steps) {
  const int key = key_of(rows);
  auto place = std::lower_bound(points_.begin(), points_.end(), key,
                                [](const Point& point, int k) { return point.rows < k; });
  if (place == points_.end() || place->rows != key) {
    constexpr double kMostAbove = 2;  // relative to other sizes, as one time may be disturbed
    double value = seconds / level_;
    if (!points_.empty()) value = std::min(value, kMostAbove * shape(rows, 1));
    points_.insert(place, {key, value, n_steps, {value}});
    return;
  }
  // Level and shape follow the median: deviations are clamped, so that outliers count no more than
  // small deviations. The level adapts much faster, as it is what all sizes have in common.
  constexpr double kMost = 0.1, kLevelWeight = 0.5, kShapeWeight = 0.05;
  const double off = std::clamp(seconds / (level_ * place->shape) - 1, -kMost, kMost);
  if (place->n < kFirst) return place->add_first(seconds / level_);
  level_ *= 1 + kLevelWeight * off;
  place->shape *= 1 + std::max(kShapeWeight, 0.3 / ++place->n) * off;
}

// Fits the nearest non-decreasing shapes (pool adjacent violators): a size that was measured once,
// and disturbed, does not affect a larger one that was measured often.
void StepCosts::fit() {
  pools_.clear();
  for (const Point& point : points_) {
    Pool pool{point.shape * point.n, static_cast<double>(point.n), 1};
    for (; !pools_.empty() && pools_.back().mean() >= pool.mean(); pools_.pop_back()) {
      pool.sum += pools_.back().sum, pool.n += pools_.back().n;
      pool.n_points += pools_.back().n_points;
    }
    pools_.push_back(pool);
  }
  size_t i = 0;
  for (const Pool& pool : pools_) {
    for (const size_t end = i + pool.n_points; i < end; ++i) points_[i].fitted = pool.mean();
  }
}

bool StepCosts::knows(int rows, int n_steps) const {
  return std::ranges::any_of(points_, [&](const Point& point) {
    return point.rows == key_of(rows) && point.n >= n_steps;
  });
}

double StepCosts::shape(int rows, double prior_share) const {
  if (points_.empty()) return 0;
  double low = 0;
  int low_rows = 0;
  for (const Point& point : points_) {
    const double at = point.fitted;
    if (rows <= point.rows) {
      if (rows == point.rows) return at;
      if (low_rows == 0) return at * (1 - prior_share * (point.rows - rows) / point.rows);
      return low + (at - low) * (rows - low_rows) / (point.rows - low_rows);
    }
    low = at, low_rows = point.rows;
  }
  const Point& first = points_.front();
  const double prior = prior_share * low / low_rows;
  const double slope = points_.size() > 1 ? (low - first.fitted) / (low_rows - first.rows) : prior;
  return low + std::max(slope, 0.25 * prior) * (rows - low_rows);
}

}  // namespace penstock
