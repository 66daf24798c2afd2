#pragma once

namespace penstock {

extern const struct TileKernels kAmxTileKernels;
extern const struct AttentionKernels kAmxAttentionKernels;
extern const struct ProbeKernels kAmxProbeKernels;

}  // namespace penstock
