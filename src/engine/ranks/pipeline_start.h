// How the run of a pipeline begins, once its ranks have formed groups: each tells rank 0 what it has, which plans the cache for all.
#pragma once
#include <cstdint>
#include <vector>

#include "engine/ranks/shared_model.h"
#include "parallel/communicator.h"

namespace penstock {

// What a rank has loaded.
struct LoadedShare {
  uint64_t fingerprint = 0;  // of the file and the configuration
  int64_t weight_bytes = 0;
};

// --- Another rank, in this order
Status tell_share(Communicator& ranks, const LoadedShare& own);
// n_blocks = rank 0's.
Status hear_blocks(Communicator& ranks, std::vector<int>& n_blocks);
Status tell_sizes(Communicator& ranks, const ShareSizes& own);

// --- Rank 0, in this order
// Of all ranks; own: this one's. Error, on all ranks: which rank has another file.
Result<std::vector<LoadedShare>> hear_shares(Communicator& ranks, const LoadedShare& own);
Status tell_blocks(Communicator& ranks, std::span<const int> n_blocks);
Result<std::vector<ShareSizes>> hear_sizes(Communicator& ranks, const ShareSizes& own);

}  // namespace penstock
