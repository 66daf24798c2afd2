// Statistics of a layer's inputs over the calibration text.
#pragma once
#include <Eigen/Core>
#include <map>
#include <vector>

#include "base/thread_pool.h"
#include "ops/tensor.h"
#include "quantize/methods/strips.h"

namespace penstock {

using RowMatrix = Eigen::Matrix<float, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;

struct ActivationStats {
  int cols = 0;
  int64_t n_tokens = 0;
  std::vector<float> max_abs, sum_abs, sum_squares;  // [cols]
  // [cols, cols] sum of x x^T, set by finish(); empty if not wanted
  Eigen::MatrixXf hessian;
  // a sample of at most kMostRows inputs, [n_rows, cols]
  std::vector<float> rows;
  int n_rows() const {
    return cols > 0 ? static_cast<int>(rows.size() / static_cast<size_t>(cols)) : 0;
  }
  std::vector<float> mean_squares() const;

  static constexpr int kMostRows = 384;
  void add(ThreadPool& pool, Tensor x, bool with_hessian, int64_t expected_tokens);
  void finish();

 private:
  StripMatrix<float> gram_;  // upper triangle of the sum
};

}  // namespace penstock
