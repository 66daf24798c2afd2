// Routes requests among several engines: to the one whose cache has the start of the prompt, unless
// another has so much less load that computing the prompt anew is sooner done there.
//
// The engines' caches are not inspected. Each is assumed to hold the prefixes that were sent to it
// last, up to the number of blocks of its cache. Any thread.
#pragma once
#include <cstdint>
#include <list>
#include <mutex>
#include <span>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "draft/block_allocator.h"

namespace penstock {

class PrefixRouter {
 public:
  // Load of an engine; an open sequence counts as kTokensPerSequence tokens.
  static constexpr int64_t kTokensPerSequence = 64;
  struct Load {
    // prompt tokens to compute for requests without a first token yet
    int64_t prompt_tokens = 0;
    int64_t sequences = 0;  // sequences that have not ended
    int64_t tokens() const { return prompt_tokens + kTokensPerSequence * sequences; }
  };
  // Hashes of the full blocks of a prompt.
  using Prefix = std::vector<BlockHash>;

  // n_blocks: blocks of each engine's cache.
  PrefixRouter(int n_engines, int block_size, size_t n_blocks);

  Prefix prefix_of(std::string_view salt, std::span<const TokenId> tokens) const;

  struct Place {
    int engine;
    // prompt tokens that are not in the engine's cache
    int64_t tokens;
  };
  // Returns all engines, best first: in ascending order of load plus prompt tokens to compute;
  // among equals the engine that was sent the fewest requests first. loads: [n_engines].
  std::vector<Place> places(const Prefix& prefix, int64_t n_tokens,
                            std::span<const Load> loads) const;
  // Notes that a request was sent to the engine, whose cache will then have the prefix.
  void sent(int engine, const Prefix& prefix);
  // Notes that the engines' caches were emptied.
  void forget();

 private:
  // Blocks that an engine's cache is assumed to hold.
  struct Cached {
    std::list<BlockHash> by_use;  // most recently used first
    // Keys are BlockHash::low: a collision only makes a route worse.
    std::unordered_map<uint64_t, std::list<BlockHash>::iterator> of_hash;
    uint64_t n_sent = 0;

    size_t n_known(const Prefix& prefix) const;
    void touch(const BlockHash& hash, size_t most);
  };

  const int block_size_;
  const size_t most_blocks_;
  mutable std::mutex mutex_;
  std::vector<Cached> cached_;
};

}  // namespace penstock
