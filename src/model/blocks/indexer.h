// Sizes of indexers, which select the tokens that sparse attention reads.
#pragma once
#include <algorithm>

#include "ops/ops.h"

namespace penstock {

// An indexer's keys are a layer of the cache of their own. The first dimensions of its queries and
// keys are rotated, as many as those of attention.
struct IndexerConfig {
  // Tokens that are selected for a query; 0 = there is no indexer.
  int top_k = 0;
  int n_heads = 0;
  int head_dim = 0;
  // Adjacent dimensions are rotated together; false: the halves are.
  bool interleaved = false;
  // Tokens that share a key and are selected together (SelectParams::pool); top_k is a multiple.
  int pool = 1;
  // The key of such a block is a mean of its tokens' keys that is weighted by gates (blocks of
  // latent attention, Ops::pool_keys).
  bool gated = false;
  bool operator==(const IndexerConfig&) const = default;

  // Number of values of a layer's state: the open block.
  int64_t state_values() const { return (pool - int64_t{1}) * head_dim * (gated ? 2 : 1); }

  // Returns the parameters of a selection from this cache. No more tokens are selected than a
  // sequence can have there.
  SelectParams select_params(const KvCache& cache, int layer) const {
    const CacheSpec& spec = cache.spec();
    const int group = spec.layers[static_cast<size_t>(layer)].group;
    int64_t longest = int64_t{cache.n_blocks(group)} * spec.block_size;
    if (spec.longest > 0) longest = std::min<int64_t>(longest, spec.longest);
    const int64_t whole = (longest + pool - 1) / pool * pool;
    return {layer, n_heads, static_cast<int>(std::min<int64_t>(top_k, whole)), pool};
  }
};

}  // namespace penstock
