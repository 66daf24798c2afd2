#pragma once

namespace penstock {

extern const struct GemmKernels kAvx512GemmKernels;
extern const struct VectorKernels kAvx512VectorKernels;
extern const struct AttentionKernels kAvx512AttentionKernels;
extern const struct StripKernels kAvx512StripKernels;
extern const struct ScanKernels kAvx512ScanKernels;
extern const struct RecurrenceKernels kAvx512RecurrenceKernels;
extern const struct ProbeKernels kAvx512ProbeKernels;

}  // namespace penstock
