#include "kernels/generic/simd_concepts.h"
#include "kernels/neon/tables.h"
#include "kernels/strip_kernels.h"

#include <arm_neon.h>

namespace penstock {
namespace {

struct FloatVector {
  using F = float32x4_t;
  static constexpr int kLanes = 4;
  static F zero() { return vdupq_n_f32(0); }
  static F set1(float x) { return vdupq_n_f32(x); }
  static F load(const float* p) { return vld1q_f32(p); }
  static void store(float* p, F x) { vst1q_f32(p, x); }
  static F add(F a, F b) { return vaddq_f32(a, b); }
  static F sub(F a, F b) { return vsubq_f32(a, b); }
  static F fma(F a, F b, F c) { return vfmaq_f32(c, a, b); }
};

struct DoubleVector {
  using F = float64x2_t;
  static constexpr int kLanes = 2;
  static F zero() { return vdupq_n_f64(0); }
  static F set1(double x) { return vdupq_n_f64(x); }
  static F load(const double* p) { return vld1q_f64(p); }
  static void store(double* p, F x) { vst1q_f64(p, x); }
  static F add(F a, F b) { return vaddq_f64(a, b); }
  static F sub(F a, F b) { return vsubq_f64(a, b); }
  static F fma(F a, F b, F c) { return vfmaq_f64(c, a, b); }
};

constexpr int kTileRows = 4, kTileVectors = 4;

}  // namespace
}  // namespace penstock

#include "kernels/generic/strips.inl"

namespace penstock {

constinit const StripKernels kNeonStripKernels = {
    strip_product<FloatVector, float, kStripFloats, false>,
    strip_product<DoubleVector, double, kStripDoubles, true>};

}  // namespace penstock
