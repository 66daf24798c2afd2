#pragma once

namespace penstock {

extern const struct AttentionKernels kAvx512Bf16AttentionKernels;
extern const struct TileKernels kAvx512Bf16TileKernels;
extern const struct ProbeKernels kAvx512Bf16ProbeKernels;

}  // namespace penstock
