// Sizes of indexers, which select the tokens that sparse attention reads.
#pragma once
#include <algorithm>

#include "ops/ops.h"

namespace penstock {

// An indexer's keys are a layer of the cache of their own. As many dimensions of its queries and
// keys are rotated as of attention's, the first or the last ones.
struct IndexerConfig {
  // Tokens that are selected for a query; 0 = there is no indexer.
  int top_k = 0;
  int n_heads = 0;
  int head_dim = 0;
  // Adjacent dimensions are rotated together; false: the halves are.
  bool interleaved = false;
  bool rotates_last = false;
  // Of the layer norm of keys (blocks of latent attention).
  float norm_eps = 1e-6f;
  // Tokens that share a key and are selected together (SelectParams::pool); top_k is a multiple.
  int pool = 1;
  // The key of such a block is a mean of its tokens' keys that is weighted by gates (blocks of
  // latent attention, Ops::pool_keys).
  bool gated = false;
  // Queries are projections of the layer norm of the layer's input, and grow with the position
  // (Ops::scale_heads_by_position); false: of the latent of attention's queries (blocks of latent
  // attention).
  bool from_input = false;
  // > 0: each KV head selects for itself, whole blocks of so many tokens, the n_local last ones among
  // them (SelectParams::block); top_k is a multiple, and pool is 1.
  int block = 0;
  int n_local = 0;
  // Blocks are selected as entries (SelectParams::entries).
  bool entries = false;
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
    const int unit = std::max(pool, block);
    const int64_t whole = (longest + unit - 1) / unit * unit;
    // the last blocks are among those selected
    const int64_t most = std::max<int64_t>(whole, int64_t{n_local} * block);
    SelectParams params{layer, n_heads, static_cast<int>(std::min<int64_t>(top_k, most)),
                        pool,  block,   n_local};
    params.entries = entries;
    return params;
  }
};

}  // namespace penstock
