// Block table of one sequence in one cache group.
#pragma once
#include <vector>

#include "penstock/types.h"

namespace penstock {

// blocks[0] holds the tokens from first_block * block_size on; in a sliding-window group earlier
// blocks were released.
struct GroupBlocks {
  std::vector<BlockId> blocks;
  int first_block = 0;
};

// Returns the slot of the token at `position`: block * block_size + offset in the block. REQUIRES:
// its block is in the table.
inline int32_t slot_of(const GroupBlocks& kv, int position, int block_size) {
  const int offset = position - kv.first_block * block_size;
  return static_cast<int32_t>(kv.blocks[offset / block_size]) * block_size + offset % block_size;
}

}  // namespace penstock
