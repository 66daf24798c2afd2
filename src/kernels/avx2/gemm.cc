// Matrix products with AVX2 and FMA.
#include <immintrin.h>

#include "kernels/avx2/plans.h"
#include "kernels/avx2/tables.h"
#include "kernels/gemm_kernels.h"
#include "kernels/generic/simd_concepts.h"
#include "kernels/panel_layout.h"

namespace penstock {
namespace {

#include "kernels/avx2/gemm_simd.h"
#include "kernels/generic/float_gemm.inl"

#include "kernels/generic/int8_gemm.inl"

#include "kernels/generic/gemm_table.inl"

}  // namespace

constinit const GemmKernels kAvx2GemmKernels =
    make_gemm_kernels<Avx2, avx2::kPlans>("avx2", static_cast<panel::All*>(nullptr));

}  // namespace penstock
