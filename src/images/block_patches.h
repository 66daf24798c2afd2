// Sizes of Qwen's and GLM's pictures and videos: multiples of a factor within limits of area.
#pragma once
#include "base/result.h"

namespace penstock {

struct AreaRule {
  int factor = 28;             // sides become multiples of it
  double least = 0, most = 0;  // pixels of all frames
  bool enlarges = false;       // sides that are shorter than the factor
  double n_frames = 1;         // of the video
  double n_counted = 1;        // of these, in the comparison with the limits
};
struct BlockSize {
  int height = 0, width = 0;
};

// Returns the size nearest to a picture's. Errors: kInvalidArgument (a ratio of sides above 200, a side
// that would become 0).
Result<BlockSize> fit_area(int width, int height, const AreaRule& rule);

}  // namespace penstock
