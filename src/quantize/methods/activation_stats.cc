#include "quantize/methods/activation_stats.h"
#include "ops/cpu/host_tensor.h"

#include <algorithm>
#include <cmath>

namespace penstock {

void ActivationStats::add(ThreadPool& pool, Tensor x, bool with_hessian, int64_t expected_tokens) {
  if (cols == 0) {
    cols = x.cols;
    max_abs.assign(static_cast<size_t>(cols), 0.0f);
    sum_abs = sum_squares = max_abs;
    const int padded = (cols + kStripFloats - 1) / kStripFloats * kStripFloats;
    if (with_hessian) gram_ = StripMatrix<float>(padded, padded);
  }
  // Samples every stride-th token, so that the sample covers the whole text.
  const int64_t stride = std::max<int64_t>(1, (expected_tokens + kMostRows - 1) / kMostRows);
  for (int t = 0; t < x.rows; ++t) {
    const float* row = f32(x, t);
    for (int j = 0; j < cols; ++j) {
      const float magnitude = std::fabs(row[j]);
      max_abs[static_cast<size_t>(j)] = std::max(max_abs[static_cast<size_t>(j)], magnitude);
      sum_abs[static_cast<size_t>(j)] += magnitude;
      sum_squares[static_cast<size_t>(j)] += magnitude * magnitude;
    }
    if ((n_tokens + t) % stride == 0 && n_rows() < kMostRows)
      rows.insert(rows.end(), row, row + cols);
  }
  n_tokens += x.rows;
  if (!with_hessian) return;
  StripMatrix<float> strips(x.rows, cols);
  pool.for_ranges(x.rows, 1, [&](int64_t begin, int64_t end, int) {
    for (int t = static_cast<int>(begin); t < end; ++t) {
      for (int j = 0; j < cols; j += kStripFloats)
        std::copy_n(f32(x, t) + j, std::min(kStripFloats, cols - j), strips.at(t, j));
    }
  });
  add_gram(pool, strips, x.rows, gram_);
}

void ActivationStats::finish() {
  if (gram_.empty()) return;
  hessian.resize(cols, cols);
  for (int j = 0; j < cols; ++j) {
    for (int i = 0; i <= j; ++i) hessian(i, j) = hessian(j, i) = gram_(i, j);
  }
  gram_ = {};
}

std::vector<float> ActivationStats::mean_squares() const {
  std::vector<float> means = sum_squares;
  for (float& value : means) value /= static_cast<float>(std::max<int64_t>(n_tokens, 1));
  return means;
}

}  // namespace penstock
