#include "quantize/gptq.h"

#include <Eigen/Cholesky>
#include <algorithm>
#include <cmath>
#include <numeric>

namespace penstock {

namespace {

using Matrix = Eigen::MatrixXd;

// In which order inputs are rounded.
std::vector<int32_t> order_of(ActOrder act_order, const Eigen::MatrixXf& hessian) {
  std::vector<int32_t> order(static_cast<size_t>(hessian.rows()));
  std::iota(order.begin(), order.end(), 0);
  if (act_order == ActOrder::kNone) return order;
  std::stable_sort(order.begin(), order.end(),
                   [&](int32_t a, int32_t b) { return hessian(a, a) > hessian(b, b); });
  return order;
}

// The upper factor U of the inverse of the damped Hessian (H^-1 = U^T U), inputs in `order`. With J the
// reversal, J H J = L L^T gives U = J L^-1 J: one factorization and one triangular inverse. More damping
// until it exists.
Matrix inverse_factor(const Eigen::MatrixXf& hessian, const std::vector<int32_t>& order, double damping) {
  const int n = static_cast<int>(order.size());
  double mean = 0;
  for (int i = 0; i < n; ++i) mean += hessian(i, i) / n;
  if (!(mean > 0)) return Matrix::Identity(n, n);
  for (double share = std::max(damping, 1e-8);; share = share * 10) {
    Matrix reversed(n, n);
    for (int j = 0; j < n; ++j) {
      for (int i = 0; i < n; ++i)
        reversed(i, j) =
            hessian(order[static_cast<size_t>(n - 1 - i)], order[static_cast<size_t>(n - 1 - j)]);
      if (!(reversed(j, j) > 0)) reversed(j, j) = mean;  // an input that is always zero
      reversed(j, j) += share * mean;
    }
    const Eigen::LLT<Matrix> factor(reversed);
    if (factor.info() == Eigen::Success) {
      const Matrix inverse = factor.matrixL().solve(Matrix::Identity(n, n));
      if (inverse.allFinite()) return inverse.reverse();
    }
    if (share > 1e6) return Matrix::Identity(n, n);
  }
}

class RowChunk {
 public:
  static constexpr int kRows = 16;

  RowChunk(const GptqOptions& options, const Eigen::MatrixXf& u, const std::vector<int32_t>& order,
           const std::vector<float>& importance, GroupedCodes& out)
      : options_(options), u_(u), order_(order), importance_(importance), out_(out) {
    const size_t n = order.size() * kRows;
    w_.resize(n);
    errors_.resize(n);
    group_.resize(order.size());
    weights_.resize(order.size());
  }

  void run(const float* values, int first_row, int n_rows) {
    const int cols = out_.cols;
    n_rows_ = n_rows;
    first_row_ = first_row;
    std::fill(w_.begin(), w_.end(), 0.0f);
    for (int r = 0; r < n_rows; ++r) {
      for (int j = 0; j < cols; ++j)
        w_[at(j) + static_cast<size_t>(r)] = values[static_cast<size_t>(r) * static_cast<size_t>(cols) +
                                                    static_cast<size_t>(order_[static_cast<size_t>(j)])];
    }
    if (options_.act_order == ActOrder::kStatic) fit_all(values);
    const int group = out_.coding.group_of(cols);
    // Blocks end where groups do, so that a group's scale is chosen with all earlier errors made up for.
    const int block = group < options_.block ? options_.block / group * group : options_.block;
    for (int begin = 0, end = 0; begin < cols; begin = end) {
      end = std::min(begin + block, cols);
      if (group > block) end = std::min(end, (begin / group + 1) * group);
      for (int j = begin; j < end; ++j) {
        if (options_.act_order != ActOrder::kStatic && j % group == 0) fit_group_at(j, group);
        round(j, end);
      }
      for (int k = end; k < cols; ++k) {
        for (int j = begin; j < end; ++j) subtract(j, k);
      }
    }
  }

 private:
  static size_t at(int j) { return static_cast<size_t>(j) * kRows; }
  GroupScale& scale(int r, int group) {
    return out_.scales[static_cast<size_t>(first_row_ + r) * static_cast<size_t>(out_.n_groups()) +
                       static_cast<size_t>(group)];
  }

  // Groups as they lie, from the weights as they were.
  void fit_all(const float* values) {
    const int cols = out_.cols, group = out_.coding.group_of(cols);
    for (int r = 0; r < n_rows_; ++r) {
      for (int first = 0; first < cols; first += group) {
        scale(r, first / group) =
            fit_group(out_.coding, values + static_cast<size_t>(r) * static_cast<size_t>(cols) + first,
                      importance_.data() + first, group, true);
      }
    }
  }

  // The group of inputs that begins at place j of the order, from the weights as they are by now.
  void fit_group_at(int j, int group) {
    for (int i = 0; i < group; ++i)
      weights_[static_cast<size_t>(i)] = importance_[static_cast<size_t>(order_[static_cast<size_t>(j + i)])];
    for (int r = 0; r < n_rows_; ++r) {
      for (int i = 0; i < group; ++i) group_[static_cast<size_t>(i)] = w_[at(j + i) + static_cast<size_t>(r)];
      scale(r, j / group) = fit_group(out_.coding, group_.data(), weights_.data(), group, true);
    }
  }

  void round(int j, int end) {
    const int input = order_[static_cast<size_t>(j)];
    const float inverse = 1.0f / u_(j, j);
    for (int r = 0; r < n_rows_; ++r) {
      const float value = w_[at(j) + static_cast<size_t>(r)];
      const GroupScale& s = scale(r, out_.group(input));
      const uint8_t code = nearest_code(out_.coding, s, value);
      out_.codes[static_cast<size_t>(first_row_ + r) * static_cast<size_t>(out_.cols) +
                 static_cast<size_t>(input)] = code;
      errors_[at(j) + static_cast<size_t>(r)] = (value - decode_level(out_.coding, s, code)) * inverse;
    }
    for (int k = j + 1; k < end; ++k) subtract(j, k);
  }

  // w_k -= error_j * u_jk, all rows at once.
  void subtract(int j, int k) {
    const float factor = u_(j, k);
    float* w = w_.data() + at(k);
    const float* e = errors_.data() + at(j);
    for (int r = 0; r < kRows; ++r) w[r] -= e[r] * factor;
  }

  const GptqOptions& options_;
  const Eigen::MatrixXf& u_;
  const std::vector<int32_t>& order_;
  const std::vector<float>& importance_;  // the Hessian's diagonal
  GroupedCodes& out_;
  std::vector<float> w_, errors_;  // [cols][kRows], inputs in order
  std::vector<float> group_, weights_;
  int n_rows_ = 0, first_row_ = 0;
};

// Takes each row's rounding to nearest where its output error is smaller.
void keep_better_rows(ThreadPool& pool, const std::vector<float>& values, const Eigen::MatrixXf& hessian,
                      const std::vector<int32_t>& order, GptqResult& result) {
  GroupedCodes& codes = result.codes;
  const int rows = codes.rows, cols = codes.cols, group = codes.coding.group_of(cols);
  GroupedCodes rounded = codes;
  pool.for_ranges(rows, 1, [&](int64_t begin, int64_t end, int) {
    std::vector<float> x(static_cast<size_t>(group));
    for (int64_t r = begin; r < end; ++r) {
      const float* row = values.data() + r * cols;
      for (int g = 0; g < rounded.n_groups(); ++g) {
        const auto input = [&](int i) {
          return rounded.group_of_input.empty() ? g * group + i : order[static_cast<size_t>(g * group + i)];
        };
        for (int i = 0; i < group; ++i) x[static_cast<size_t>(i)] = row[input(i)];
        GroupScale& scale = rounded.scales[static_cast<size_t>(r * rounded.n_groups() + g)];
        scale = fit_group(rounded.coding, x.data(), nullptr, group, false);
        for (int i = 0; i < group; ++i)
          rounded.codes[static_cast<size_t>(r * cols + input(i))] =
              nearest_code(rounded.coding, scale, x[static_cast<size_t>(i)]);
      }
    }
  });
  const auto errors_of = [&](const GroupedCodes& c) {
    RowMatrix difference(rows, cols);
    pool.for_ranges(rows, 1, [&](int64_t begin, int64_t end, int) {
      for (int64_t r = begin; r < end; ++r) {
        c.dequantize_row(static_cast<int>(r), difference.data() + r * cols);
        for (int j = 0; j < cols; ++j) difference(r, j) -= values[static_cast<size_t>(r * cols + j)];
      }
    });
    return output_errors(pool, difference, hessian);
  };
  const std::vector<double> chosen = errors_of(codes), nearest = errors_of(rounded);
  for (int r = 0; r < rows; ++r) {
    const auto i = static_cast<size_t>(r);
    result.rounded_error += nearest[i];
    result.error += std::min(chosen[i], nearest[i]);
    if (chosen[i] <= nearest[i]) continue;
    ++result.n_rounded_rows;
    const auto copy_row = [&](auto& to, const auto& from, size_t width) {
      std::copy_n(from.begin() + static_cast<ptrdiff_t>(i * width), width,
                  to.begin() + static_cast<ptrdiff_t>(i * width));
    };
    copy_row(codes.codes, rounded.codes, static_cast<size_t>(cols));
    copy_row(codes.scales, rounded.scales, static_cast<size_t>(codes.n_groups()));
  }
}

}  // namespace

std::vector<double> output_errors(ThreadPool& pool, const RowMatrix& difference,
                                  const Eigen::MatrixXf& hessian) {
  std::vector<double> errors(static_cast<size_t>(difference.rows()));
  pool.for_ranges(difference.rows(), 16, [&](int64_t begin, int64_t end, int) {
    constexpr int64_t kChunk = 64;
    for (int64_t first = begin; first < end; first += kChunk) {
      const int64_t n = std::min(kChunk, end - first);
      const auto part = difference.middleRows(first, n);
      const RowMatrix product = part * hessian;
      const Eigen::VectorXf sums = product.cwiseProduct(part).rowwise().sum();
      for (int64_t r = 0; r < n; ++r) errors[static_cast<size_t>(first + r)] = std::max(0.0f, sums[r]);
    }
  });
  return errors;
}

GptqResult gptq(ThreadPool& pool, const GptqOptions& options, const std::vector<float>& values, int rows,
                int cols, const Eigen::MatrixXf& hessian) {
  GptqResult result;
  GroupedCodes& codes = result.codes;
  codes.rows = rows;
  codes.cols = cols;
  codes.coding = options.coding;
  codes.codes.resize(values.size());
  codes.scales.resize(static_cast<size_t>(rows) * static_cast<size_t>(codes.n_groups()));
  const std::vector<int32_t> order = order_of(options.act_order, hessian);
  if (options.act_order == ActOrder::kGroup) {
    codes.group_of_input.resize(order.size());
    for (size_t place = 0; place < order.size(); ++place)
      codes.group_of_input[static_cast<size_t>(order[place])] =
          static_cast<int32_t>(place) / options.coding.group_of(cols);
  }
  const Eigen::MatrixXf u = inverse_factor(hessian, order, options.damping).cast<float>();
  std::vector<float> importance(static_cast<size_t>(cols));
  double mean = 0;
  for (int j = 0; j < cols; ++j) mean += hessian(j, j) / cols;
  for (int j = 0; j < cols; ++j)
    importance[static_cast<size_t>(j)] = static_cast<float>(hessian(j, j) + options.damping * mean + 1e-30);
  pool.for_ranges(rows, RowChunk::kRows, [&](int64_t begin, int64_t end, int) {
    RowChunk chunk(options, u, order, importance, codes);
    for (int64_t first = begin; first < end; first += RowChunk::kRows) {
      const int n = static_cast<int>(std::min<int64_t>(RowChunk::kRows, end - first));
      chunk.run(values.data() + first * cols, static_cast<int>(first), n);
    }
  });
  keep_better_rows(pool, values, hessian, order, result);
  return result;
}

}  // namespace penstock
