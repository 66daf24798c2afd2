#pragma once

namespace penstock {

extern const struct GemmKernels kNeonGemmKernels;
extern const struct VectorKernels kNeonVectorKernels;
extern const struct AttentionKernels kNeonAttentionKernels;
extern const struct StripKernels kNeonStripKernels;
extern const struct ScanKernels kNeonScanKernels;
extern const struct RecurrenceKernels kNeonRecurrenceKernels;
extern const struct ProbeKernels kNeonProbeKernels;

}  // namespace penstock
