#include "kernels/avx2/tables.h"
#include "kernels/generic/simd_concepts.h"
#include "kernels/strip_kernels.h"

#include <immintrin.h>

namespace penstock {
namespace {

struct FloatVector {
  using F = __m256;
  static constexpr int kLanes = 8;
  static F zero() { return _mm256_setzero_ps(); }
  static F set1(float x) { return _mm256_set1_ps(x); }
  static F load(const float* p) { return _mm256_loadu_ps(p); }
  static void store(float* p, F x) { _mm256_storeu_ps(p, x); }
  static F add(F a, F b) { return _mm256_add_ps(a, b); }
  static F sub(F a, F b) { return _mm256_sub_ps(a, b); }
  static F fma(F a, F b, F c) { return _mm256_fmadd_ps(a, b, c); }
};

struct DoubleVector {
  using F = __m256d;
  static constexpr int kLanes = 4;
  static F zero() { return _mm256_setzero_pd(); }
  static F set1(double x) { return _mm256_set1_pd(x); }
  static F load(const double* p) { return _mm256_loadu_pd(p); }
  static void store(double* p, F x) { _mm256_storeu_pd(p, x); }
  static F add(F a, F b) { return _mm256_add_pd(a, b); }
  static F sub(F a, F b) { return _mm256_sub_pd(a, b); }
  static F fma(F a, F b, F c) { return _mm256_fmadd_pd(a, b, c); }
};

constexpr int kTileRows = 4, kTileVectors = 2;

}  // namespace
}  // namespace penstock

#include "kernels/generic/strips.inl"

namespace penstock {

constinit const StripKernels kAvx2StripKernels = {
    strip_product<FloatVector, float, kStripFloats, false>,
    strip_product<DoubleVector, double, kStripDoubles, true>};

}  // namespace penstock
