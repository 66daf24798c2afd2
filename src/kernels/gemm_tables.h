// The matrix-product tables of the instruction sets, each defined in <isa>/gemm.cc.
#pragma once
#include "kernels/gemm_kernels.h"

namespace penstock {

extern const GemmKernels kScalarGemmKernels;
extern const GemmKernels kAvx2GemmKernels;
extern const GemmKernels kAvxVnniGemmKernels;
extern const GemmKernels kAvx512GemmKernels;
extern const GemmKernels kNeonGemmKernels;
extern const GemmKernels kNeonDotGemmKernels;
extern const TileKernels kAmxTileKernels;

}  // namespace penstock
