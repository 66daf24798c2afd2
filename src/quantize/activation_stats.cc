#include "quantize/activation_stats.h"

#include <algorithm>
#include <cmath>

namespace penstock {

void ActivationStats::add(ThreadPool& pool, Tensor x, bool with_hessian, int64_t expected_tokens) {
  if (cols == 0) {
    cols = x.cols;
    max_abs.assign(static_cast<size_t>(cols), 0.0f);
    sum_abs = sum_squares = max_abs;
    if (with_hessian) hessian = Eigen::MatrixXf::Zero(cols, cols);
  }
  // Every so many-th token, so that all of the text is in the sample.
  const int64_t stride = std::max<int64_t>(1, (expected_tokens + kMostRows - 1) / kMostRows);
  for (int t = 0; t < x.rows; ++t) {
    const float* row = x.f32(t);
    for (int j = 0; j < cols; ++j) {
      const float magnitude = std::fabs(row[j]);
      max_abs[static_cast<size_t>(j)] = std::max(max_abs[static_cast<size_t>(j)], magnitude);
      sum_abs[static_cast<size_t>(j)] += magnitude;
      sum_squares[static_cast<size_t>(j)] += magnitude * magnitude;
    }
    if ((n_tokens + t) % stride == 0 && n_rows() < kMostRows) rows.insert(rows.end(), row, row + cols);
  }
  n_tokens += x.rows;
  if (!with_hessian) return;
  const Eigen::Map<const RowMatrix, 0, Eigen::OuterStride<>> inputs(x.f32(), x.rows, cols,
                                                                    Eigen::OuterStride<>(x.row_stride));
  constexpr int kTile = 64;
  const int n_tiles = (cols + kTile - 1) / kTile;
  // Tile i and its mirror tile together have the same work for every i.
  pool.for_ranges((n_tiles + 1) / 2, 1, [&](int64_t begin, int64_t end, int) {
    const auto tile = [&](int64_t index) {
      const int first = static_cast<int>(index) * kTile, width = std::min(kTile, cols - first);
      hessian.block(first, first, cols - first, width).noalias() +=
          inputs.rightCols(cols - first).transpose() * inputs.middleCols(first, width);
    };
    for (int64_t i = begin; i < end; ++i) {
      tile(i);
      if (n_tiles - 1 - i != i) tile(n_tiles - 1 - i);
    }
  });
}

void ActivationStats::finish() {
  if (hessian.size() == 0) return;
  hessian.triangularView<Eigen::StrictlyUpper>() = hessian.transpose();
}

std::vector<float> ActivationStats::mean_squares() const {
  std::vector<float> means = sum_squares;
  for (float& value : means) value /= static_cast<float>(std::max<int64_t>(n_tokens, 1));
  return means;
}

}  // namespace penstock
