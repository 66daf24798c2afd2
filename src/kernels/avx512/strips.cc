#include "kernels/avx512/tables.h"
#include "kernels/generic/simd_concepts.h"
#include "kernels/strip_kernels.h"

#include <immintrin.h>

namespace penstock {
namespace {

struct FloatVector {
  using F = __m512;
  static constexpr int kLanes = 16;
  static F zero() { return _mm512_setzero_ps(); }
  static F set1(float x) { return _mm512_set1_ps(x); }
  static F load(const float* p) { return _mm512_loadu_ps(p); }
  static void store(float* p, F x) { _mm512_storeu_ps(p, x); }
  static F add(F a, F b) { return _mm512_add_ps(a, b); }
  static F sub(F a, F b) { return _mm512_sub_ps(a, b); }
  static F fma(F a, F b, F c) { return _mm512_fmadd_ps(a, b, c); }
};

struct DoubleVector {
  using F = __m512d;
  static constexpr int kLanes = 8;
  static F zero() { return _mm512_setzero_pd(); }
  static F set1(double x) { return _mm512_set1_pd(x); }
  static F load(const double* p) { return _mm512_loadu_pd(p); }
  static void store(double* p, F x) { _mm512_storeu_pd(p, x); }
  static F add(F a, F b) { return _mm512_add_pd(a, b); }
  static F sub(F a, F b) { return _mm512_sub_pd(a, b); }
  static F fma(F a, F b, F c) { return _mm512_fmadd_pd(a, b, c); }
};

constexpr int kTileRows = 8, kTileVectors = 2;

}  // namespace
}  // namespace penstock

#include "kernels/generic/strips.inl"

namespace penstock {

constinit const StripKernels kAvx512StripKernels = {
    strip_product<FloatVector, float, kStripFloats, false>,
    strip_product<DoubleVector, double, kStripDoubles, true>};

}  // namespace penstock
