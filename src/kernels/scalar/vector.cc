#include "kernels/scalar/tables.h"
#include "kernels/vector_kernels.h"

#include "kernels/scalar/simd.h"

#include "kernels/generic/vector.inl"

namespace penstock {

constinit const VectorKernels kScalarVectorKernels = {rms_norm,      layer_norm, add_scaled,
                                                      scale_softcap, activate,   activate_mul,
                                                      rope,          round_int8, softmax};

}  // namespace penstock
