#pragma once

namespace penstock {

extern const struct GemmKernels kAvx2GemmKernels;
extern const struct VectorKernels kAvx2VectorKernels;
extern const struct AttentionKernels kAvx2AttentionKernels;
extern const struct StripKernels kAvx2StripKernels;
extern const struct ScanKernels kAvx2ScanKernels;
extern const struct RecurrenceKernels kAvx2RecurrenceKernels;
extern const struct ProbeKernels kAvx2ProbeKernels;

}  // namespace penstock
