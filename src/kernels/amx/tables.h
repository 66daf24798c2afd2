// Files of this folder are compiled for AMX and, in builds with tests, a second time for the
// emulated tiles of tests/emulation/amx/.
#pragma once

namespace penstock {

struct AttentionKernels;
struct ProbeKernels;
struct TileKernels;

namespace amx {
extern const TileKernels kTileKernels;
extern const AttentionKernels kAttentionKernels;
extern const ProbeKernels kProbeKernels;
}  // namespace amx

namespace amx_emulated {
extern const TileKernels kTileKernels;
extern const AttentionKernels kAttentionKernels;
}  // namespace amx_emulated

#ifdef PENSTOCK_EMULATED_TILES
namespace tiles_here = amx_emulated;
#else
namespace tiles_here = amx;
#endif

}  // namespace penstock
