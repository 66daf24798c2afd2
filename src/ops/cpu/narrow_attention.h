// Attention over a cache of 4-bit codes (KvFormat::kI4): its units are widened to INT8, some of one
// head at a time, which the kernels of INT8 attend to with rotated queries.
#pragma once
#include "kernels/attention_kernels.h"

namespace penstock {

// Floats of scratch memory for any tile, 0 for other formats.
int64_t narrow_scratch_floats(const KvUnitLayout& layout);

// As AttentionKernels::attend; the state's values are rotated (KvUnitLayout::rotated_values).
// scratch: [narrow_scratch_floats()], 64-byte aligned, beside that of the tile.
void attend_narrow(const AttentionKernels& kernels, const AttentionTile& tile, float* scratch,
                   const AttentionState& state);

}  // namespace penstock
