// Which of several engines a request goes to: the one that has the beginning of its prompt in its cache, unless another has so
// much less to do that the prompt is sooner computed there anew.
//
// Engines are not asked what they have, they are busy: it is taken to be what was sent to each last, as many blocks as its cache
// has. Any thread.
#pragma once
#include <cstdint>
#include <list>
#include <mutex>
#include <span>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "cache/block_allocator.h"

namespace penstock {

class PrefixRouter {
 public:
  // What an engine has to do, in tokens that it would compute meanwhile.
  static constexpr int64_t kTokensPerSequence = 64;
  struct Load {
    int64_t prompt_tokens = 0;  // of requests that have no token yet, without those in its cache
    int64_t sequences = 0;      // that have not ended
    int64_t tokens() const { return prompt_tokens + kTokensPerSequence * sequences; }
  };
  // The full blocks of a prompt.
  using Prefix = std::vector<BlockHash>;

  // n_blocks: of each engine's cache.
  PrefixRouter(int n_engines, int block_size, size_t n_blocks);

  Prefix prefix_of(std::string_view salt, std::span<const TokenId> tokens) const;

  struct Place {
    int engine;
    int64_t tokens;  // of the prompt that it has not in its cache
  };
  // All engines, best first: where load and tokens to compute are least together; of equal ones, the one to which fewest were sent.
  // loads: of each engine.
  std::vector<Place> places(const Prefix& prefix, int64_t n_tokens, std::span<const Load> loads) const;
  // A request was sent, and its prompt will be in that engine's cache.
  void sent(int engine, const Prefix& prefix);
  // The engines' caches are emptied.
  void forget();

 private:
  // Blocks of an engine's cache, those that were used last in front.
  struct Cached {
    std::list<BlockHash> by_use;
    std::unordered_map<uint64_t, std::list<BlockHash>::iterator>
        of_hash;  // by BlockHash::low: a mistake costs time only
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
