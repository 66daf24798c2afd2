// How far the blocks of a sequence's chain are there, in memory and in a store.
#pragma once
#include <functional>
#include <vector>

#include "engine/store/block_image.h"
#include "penstock/types.h"

namespace penstock {

// The chain of a sequence, and what the memory has of it.
struct ChainQuery {
  std::vector<TokenId> tokens;    // [>= hashes.size() * block_size]
  std::vector<BlockHash> hashes;  // of the blocks that may be used
  // [n_groups][hashes.size()] whether the block is in memory
  std::vector<std::vector<bool>> in_memory;
  // leading blocks from which the sequence can go on by what is in memory alone
  int n_found = 0;
  // [n_groups] tokens that are needed behind a prefix: 0 = all, kStateWindow = the last block only
  std::vector<int> windows;
  // seconds that computing takes for each token; 0: not known
  double token_seconds = 0;
  // seconds that blocks are waited for which another engine computes and writes to the store
  // (block_loader.h); 0: nobody does
  double wait_seconds = 0;
};

// A block of a chain that is not in memory.
struct WantedBlock {
  BlockKey key;
  int index;  // in the chain
};

// Returns how many leading blocks of the chain are there, of all groups that are needed to go on
// behind them; query.n_found if those in memory reach as far. `wanted` gets those of them that are
// not in memory, in order. is_stored: asks the store, once at most for each block.
int look_up_chain(const ChainQuery& query, int block_size,
                  const std::function<bool(const BlockKey&)>& is_stored,
                  std::vector<WantedBlock>& wanted);

}  // namespace penstock
