#pragma once

namespace penstock {

extern const struct GemmKernels kAvxVnniGemmKernels;
extern const struct ProbeKernels kAvxVnniProbeKernels;

}  // namespace penstock
