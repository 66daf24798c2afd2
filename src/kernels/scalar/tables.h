#pragma once

namespace penstock {

extern const struct GemmKernels kScalarGemmKernels;
extern const struct VectorKernels kScalarVectorKernels;
extern const struct AttentionKernels kScalarAttentionKernels;
extern const struct StripKernels kScalarStripKernels;
extern const struct ScanKernels kScalarScanKernels;
extern const struct RecurrenceKernels kScalarRecurrenceKernels;
extern const struct ProbeKernels kScalarProbeKernels;

}  // namespace penstock
