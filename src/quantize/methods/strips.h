// Matrices in strips (kernels/strip_kernels.h) and the linear algebra of quantizers: Gram matrices,
// Cholesky factors, quadratic forms.
#pragma once
#include <Eigen/Core>
#include <algorithm>
#include <memory>
#include <new>
#include <span>
#include <vector>

#include "base/thread_pool.h"
#include "kernels/strip_kernels.h"

namespace penstock {

// A matrix in strips, initially zero. cols are rounded up to whole strips, so that calls need no
// special cases at edges.
template <class T>
class StripMatrix {
 public:
  static constexpr int kWidth = static_cast<int>(128 / sizeof(T));

  StripMatrix() = default;
  StripMatrix(int rows, int cols)
      : rows_(rows), n_strips_((cols + kWidth - 1) / kWidth), data_(allocate(size())) {
    std::fill_n(data_.get(), size(), T{});
  }
  int rows() const { return rows_; }
  int n_strips() const { return n_strips_; }
  bool empty() const { return data_ == nullptr; }
  T* at(int row, int col) { return data_.get() + offset(row, col); }
  const T* at(int row, int col) const { return data_.get() + offset(row, col); }
  T& operator()(int row, int col) { return *at(row, col); }
  T operator()(int row, int col) const { return *at(row, col); }

 private:
  struct Free {
    void operator()(T* p) const { ::operator delete[](p, std::align_val_t(64)); }
  };
  using Data = std::unique_ptr<T[], Free>;
  static Data allocate(size_t n) {
    return Data(static_cast<T*>(::operator new[](n * sizeof(T), std::align_val_t(64))));
  }
  size_t size() const {
    return static_cast<size_t>(rows_) * static_cast<size_t>(n_strips_) *
           static_cast<size_t>(kWidth);
  }
  size_t offset(int row, int col) const {
    return (static_cast<size_t>(col / kWidth) * static_cast<size_t>(rows_) +
            static_cast<size_t>(row)) *
               kWidth +
           static_cast<size_t>(col % kWidth);
  }

  int rows_ = 0, n_strips_ = 0;
  Data data_;
};

// Returns the kernels of PENSTOCK_ISA, or the best of this machine.
const StripKernels& strip_kernels();

// gram += x^T x, for the upper triangle and the rest of its tiles. gram: [cols of x rounded up to
// strips, same].
void add_gram(ThreadPool& pool, const StripMatrix<float>& x, int n_rows, StripMatrix<float>& gram);

// a = R^T R in place, from the upper triangle; the lower one becomes undefined. a: [n, n], n a
// multiple of 16. Returns false if a is not positive definite.
bool cholesky(ThreadPool& pool, StripMatrix<double>& a);

// Computes d^T H d for 32 vectors d at once, which are the lanes of a strip.
class QuadraticForm {
 public:
  static constexpr int kLanes = kStripFloats;

  // Takes rows and columns [first, first + n) of a symmetric matrix.
  QuadraticForm(const Eigen::MatrixXf& hessian, int first, int n);
  // d: [padded(), 32], zero from row n on; sums: [32].
  void evaluate(const float* d, float* sums) const;
  int padded() const { return padded_; }

 private:
  int padded_ = 0;
  StripMatrix<float> h_;
};

}  // namespace penstock
