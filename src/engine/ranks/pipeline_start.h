// Start of a pipeline's run, after its ranks have formed groups: each rank tells rank 0 what it has
// loaded, and rank 0 plans the cache for all.
#pragma once
#include <cstdint>
#include <vector>

#include "engine/ranks/shared_model.h"
#include "parallel/communicator.h"

namespace penstock {

// The share of the model that a rank has loaded.
struct LoadedShare {
  // fingerprint of the file and the configuration
  uint64_t fingerprint = 0;
  int64_t weight_bytes = 0;
};

// --- Called by every other rank, in this order
Status tell_share(Communicator& ranks, const LoadedShare& own);
// Receives rank 0's n_blocks.
Status hear_blocks(Communicator& ranks, std::vector<int>& n_blocks);
Status tell_sizes(Communicator& ranks, const ShareSizes& own);

// --- Called by rank 0, in this order
// Returns the shares of all ranks, by rank; own: rank 0's. Error, on all ranks: the message names
// the rank whose fingerprint differs.
Result<std::vector<LoadedShare>> hear_shares(Communicator& ranks, const LoadedShare& own);
Status tell_blocks(Communicator& ranks, std::span<const int> n_blocks);
Result<std::vector<ShareSizes>> hear_sizes(Communicator& ranks, const ShareSizes& own);

}  // namespace penstock
