// Matrix products with AVX-512 VNNI.
#include <immintrin.h>

#include <bit>

#include "kernels/avx512/plans.h"
#include "kernels/avx512/tables.h"
#include "kernels/gemm_kernels.h"
#include "kernels/generic/simd_concepts.h"
#include "kernels/panel_layout.h"

namespace penstock {
namespace {

#include "kernels/avx512/gemm_simd.h"
#include "kernels/generic/float_gemm.inl"

#include "kernels/generic/int8_gemm.inl"

#include "kernels/generic/gemm_table.inl"

}  // namespace

constinit const GemmKernels kAvx512GemmKernels =
    make_gemm_kernels<Avx512, avx512::kPlans>("avx512", static_cast<panel::All*>(nullptr));

}  // namespace penstock
