#include "kernels/vector_kernels.h"

#include "kernels/avx2/simd.h"
// clang-format off: order matters
#include "kernels/generic/simd_math.inl"
#include "kernels/generic/vector.inl"
// clang-format on

namespace penstock {

constinit const VectorKernels kAvx2VectorKernels = {
    rms_norm, layer_norm, add_scaled, scale_softcap, activate, activate_mul, rope, round_int8, softmax};

}  // namespace penstock
