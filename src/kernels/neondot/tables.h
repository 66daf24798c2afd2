#pragma once

namespace penstock {

extern const struct GemmKernels kNeonDotGemmKernels;
extern const struct ProbeKernels kNeonDotProbeKernels;

}  // namespace penstock
