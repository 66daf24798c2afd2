// Matrix products with NEON, for all 64-bit ARM processors.
#include <arm_neon.h>

#include "kernels/gemm_kernels.h"
#include "kernels/generic/simd_concepts.h"
#include "kernels/neon/plans.h"
#include "kernels/neon/tables.h"
#include "kernels/panel_layout.h"

namespace penstock {
namespace {

#include "kernels/neon/gemm_simd.h"

#include "kernels/generic/float_gemm.inl"

#include "kernels/generic/int8_gemm.inl"

#include "kernels/generic/gemm_table.inl"

}  // namespace

constinit const GemmKernels kNeonGemmKernels =
    make_gemm_kernels<Neon, neon::kPlans>("neon", static_cast<panel::All*>(nullptr));

}  // namespace penstock
