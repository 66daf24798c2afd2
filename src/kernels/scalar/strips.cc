#include "kernels/scalar/tables.h"
#include "kernels/strip_kernels.h"

namespace penstock {
namespace {

template <class T, int kWidth>
void add(int64_t n, const T* a, const T* b, T* c, T sign) {
  for (int i = 0; i < kStripRows; ++i) {
    T sums[kWidth] = {};
    for (int64_t k = 0; k < n; ++k) {
      const T factor = a[k * kWidth + i];
      for (int j = 0; j < kWidth; ++j) sums[j] += factor * b[k * kWidth + j];
    }
    for (int j = 0; j < kWidth; ++j) c[i * kWidth + j] += sign * sums[j];
  }
}

}  // namespace

constinit const StripKernels kScalarStripKernels = {
    [](int64_t n, const float* a, const float* b, float* c) {
      add<float, kStripFloats>(n, a, b, c, 1.0f);
    },
    [](int64_t n, const double* a, const double* b, double* c) {
      add<double, kStripDoubles>(n, a, b, c, -1.0);
    }};

}  // namespace penstock
