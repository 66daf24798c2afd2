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

// Where the token at `position` lives: block * block_size + offset in the block. REQUIRES: its block is there.
inline int32_t slot_of(const GroupBlocks& kv, int position, int block_size) {
  const int offset = position - kv.first_block * block_size;
  return static_cast<int32_t>(kv.blocks[offset / block_size]) * block_size + offset % block_size;
}

}  // namespace penstock
