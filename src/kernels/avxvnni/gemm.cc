// Matrix products with AVX2 and 256-bit VNNI, for recent client processors without AVX-512.
#include <immintrin.h>

#include "kernels/avx2/plans.h"
#include "kernels/avxvnni/tables.h"
#include "kernels/gemm_kernels.h"
#include "kernels/generic/simd_concepts.h"
#include "kernels/panel_layout.h"

namespace penstock {
namespace {

#include "kernels/avx2/gemm_simd.h"

struct AvxVnni : Avx2 {
  template <int Bias, int MaxCode, int N, bool OneChain>
  [[gnu::always_inline]] static Ints dot(const Bytes* w, const int8_t* x,
                                         const int32_t& negative_sum) {
    Ints sum = _mm256_setzero_si256();
    if constexpr (Bias != 0)
      sum = _mm256_mullo_epi32(splat_int(&negative_sum), _mm256_set1_epi32(Bias));
#pragma GCC unroll 8
    for (int j = 0; j < N; ++j) sum = _mm256_dpbusd_avx_epi32(sum, w[j], splat_int(x + 4 * j));
    return sum;
  }
  template <int Bias, int MaxCode>
  [[gnu::always_inline]] static Ints start(const int32_t& negative_sum) {
    if constexpr (Bias == 0) return _mm256_setzero_si256();
    return _mm256_mullo_epi32(splat_int(&negative_sum), _mm256_set1_epi32(Bias));
  }
  template <int MaxCode, int J, int N>
  [[gnu::always_inline]] static void add_products(Ints& sum, Ints&, Bytes w, Ints x) {
    sum = _mm256_dpbusd_avx_epi32(sum, w, x);
  }
};

static_assert(ColumnsFirst<AvxVnni> && CachesRows<AvxVnni>);

#include "kernels/generic/float_gemm.inl"

#include "kernels/generic/int8_gemm.inl"

#include "kernels/generic/gemm_table.inl"

}  // namespace

constinit const GemmKernels kAvxVnniGemmKernels =
    make_gemm_kernels<AvxVnni, avx2::kPlans>("avxvnni", static_cast<panel::All*>(nullptr));

}  // namespace penstock
