// Matrix products with the int8 dot products of ARMv8.2, which most processors since 2018 have.
#include <arm_neon.h>

#include "kernels/gemm_kernels.h"
#include "kernels/generic/simd_concepts.h"
#include "kernels/neon/plans.h"
#include "kernels/neondot/tables.h"
#include "kernels/panel_layout.h"

namespace penstock {
namespace {

#include "kernels/neon/gemm_simd.h"

struct NeonDot : Neon {
  template <int Bias, int MaxCode, int N, bool OneChain>
  [[gnu::always_inline]] static Ints dot(const Bytes* w, const int8_t* x,
                                         const int32_t& negative_sum) {
    static_assert(N % 4 == 0);
    Ints sum = correction<Bias, MaxCode>(negative_sum);
#pragma GCC unroll 2
    for (int j = 0; j < N; j += 4) {
      const int8x16_t values = vld1q_s8(x + 4 * j);
      sum = vdotq_laneq_s32(sum, as_signed<MaxCode>(w[j]), values, 0);
      sum = vdotq_laneq_s32(sum, as_signed<MaxCode>(w[j + 1]), values, 1);
      sum = vdotq_laneq_s32(sum, as_signed<MaxCode>(w[j + 2]), values, 2);
      sum = vdotq_laneq_s32(sum, as_signed<MaxCode>(w[j + 3]), values, 3);
    }
    return sum;
  }
};

static_assert(GemmSimd<NeonDot>);

#include "kernels/generic/float_gemm.inl"

#include "kernels/generic/int8_gemm.inl"

#include "kernels/generic/gemm_table.inl"

}  // namespace

constinit const GemmKernels kNeonDotGemmKernels =
    make_gemm_kernels<NeonDot, neon::kPlans>("neondot", static_cast<panel::All*>(nullptr));

}  // namespace penstock
