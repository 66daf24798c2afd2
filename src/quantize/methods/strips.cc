#include "quantize/methods/strips.h"

#include <cmath>

#include "kernels/kernel_table.h"

namespace penstock {

const StripKernels& strip_kernels() {
  static const StripKernels& kernels = [&]() -> const StripKernels& {
    const auto table = select_kernels();
    return *(table ? (*table)->strips : available_kernels().front().strips);
  }();
  return kernels;
}

void add_gram(ThreadPool& pool, const StripMatrix<float>& x, int n_rows, StripMatrix<float>& gram) {
  constexpr int kDepth = 256;  // rows of x at a time: strips stay in the caches of the core
  const StripKernels& kernels = strip_kernels();
  const int n = gram.n_strips();
  const auto strip = [&](int j) {
    for (int k = 0; k < n_rows; k += kDepth) {
      const int depth = std::min(kDepth, n_rows - k);
      for (int i = 0; i < (j + 1) * kStripFloats; i += kStripRows)
        kernels.add_f32(depth, x.at(k, i), x.at(k, j * kStripFloats), gram.at(i, j * kStripFloats));
    }
  };
  // Strip j and its mirror image are one task, so that all tasks have the same work.
  pool.for_ranges((n + 1) / 2, 1, [&](int64_t begin, int64_t end, int) {
    for (int j = static_cast<int>(begin); j < end; ++j) {
      strip(j);
      if (n - 1 - j != j) strip(n - 1 - j);
    }
  });
}

namespace {

constexpr int kFactorRows = 64;  // rows of the factor that are completed together

// Factors the triangle of rows and columns [first, first + n). Returns false if not positive
// definite.
bool factor_diagonal(StripMatrix<double>& a, int first, int n) {
  for (int i = first; i < first + n; ++i) {
    const double pivot = a(i, i);
    if (!(pivot > 0) || !std::isfinite(pivot)) return false;
    const double inverse = 1.0 / std::sqrt(pivot);
    for (int j = i; j < first + n; ++j) a(i, j) *= inverse;
    for (int k = i + 1; k < first + n; ++k) {
      const double factor = a(i, k);
      for (int j = k; j < first + n; ++j) a(k, j) -= factor * a(i, j);
    }
  }
  return true;
}

// Solves (triangle)^T x = b for rows [first, first + n) of one strip, in place.
void solve_strip(const StripKernels& kernels, StripMatrix<double>& a, int first, int n, int col) {
  for (int p = first; p < first + n; p += kStripRows) {
    kernels.subtract_f64(p - first, a.at(first, p), a.at(first, col), a.at(p, col));
    for (int i = p; i < p + kStripRows; ++i) {
      double* row = a.at(i, col);
      for (int k = p; k < i; ++k) {
        const double factor = a(k, i);
        const double* other = a.at(k, col);
        for (int j = 0; j < kStripDoubles; ++j) row[j] -= factor * other[j];
      }
      const double inverse = 1.0 / a(i, i);
      for (int j = 0; j < kStripDoubles; ++j) row[j] *= inverse;
    }
  }
}

}  // namespace

bool cholesky(ThreadPool& pool, StripMatrix<double>& a) {
  const StripKernels& kernels = strip_kernels();
  const int n = a.rows(), n_strips = n / kStripDoubles;
  for (int first = 0; first < n; first += kFactorRows) {
    const int rows = std::min(kFactorRows, n - first), left = first / kStripDoubles;
    pool.for_ranges(n_strips - left, 1, [&](int64_t begin, int64_t end, int) {
      for (int64_t s = left + begin; s < left + end; ++s) {
        const int col = static_cast<int>(s) * kStripDoubles;
        for (int i = first; i < first + rows; i += kStripRows)
          kernels.subtract_f64(first, a.at(0, i), a.at(0, col), a.at(i, col));
      }
    });
    if (!factor_diagonal(a, first, rows)) return false;
    const int right = (first + rows) / kStripDoubles;
    pool.for_ranges(n_strips - right, 1, [&](int64_t begin, int64_t end, int) {
      for (int64_t s = right + begin; s < right + end; ++s)
        solve_strip(kernels, a, first, rows, static_cast<int>(s) * kStripDoubles);
    });
  }
  return true;
}

QuadraticForm::QuadraticForm(const Eigen::MatrixXf& hessian, int first, int n)
    : padded_((n + kStripRows - 1) / kStripRows * kStripRows), h_(padded_, padded_) {
  // Elements above the diagonal tiles count twice, and those below are skipped: half the products.
  for (int j = 0; j < n; ++j) {
    const int tile = j / kStripRows * kStripRows;
    for (int i = 0; i < std::min(n, tile + kStripRows); ++i)
      h_(i, j) = hessian(first + i, first + j) * (i < tile ? 2.0f : 1.0f);
  }
}

void QuadraticForm::evaluate(const float* d, float* sums) const {
  const StripKernels& kernels = strip_kernels();
  std::fill_n(sums, kLanes, 0.0f);
  for (int j = 0; j < padded_; j += kStripRows) {
    float product[kStripRows * kLanes] = {};
    kernels.add_f32(j + kStripRows, h_.at(0, j), d, product);
    for (int i = 0; i < kStripRows; ++i) {
      for (int r = 0; r < kLanes; ++r) sums[r] += product[i * kLanes + r] * d[(j + i) * kLanes + r];
    }
  }
}

}  // namespace penstock
