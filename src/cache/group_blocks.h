// Where one sequence's tokens of one cache group live.
#pragma once
#include <vector>

#include "penstock/types.h"

namespace penstock {

// A sliding-window group gives up leading blocks: blocks[0] holds tokens from first_block * block_size on.
struct GroupBlocks {
  std::vector<BlockId> blocks;
  int first_block = 0;
};

}  // namespace penstock
