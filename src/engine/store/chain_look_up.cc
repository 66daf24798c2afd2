#include "engine/store/chain_look_up.h"

#include <algorithm>

#include "ops/cache_spec.h"

namespace penstock {
namespace {

// Presence of a chain's blocks in memory or in the store. The store is asked once for each block.
class Presence {
 public:
  using Ask = std::function<bool(const BlockKey&)>;
  Presence(const ChainQuery& query, Ask ask)
      : query_(query),
        ask_(std::move(ask)),
        stored_(query.in_memory.size(), std::vector<signed char>(query.hashes.size(), -1)) {}
  bool in_memory(int group, int i) const { return query_.in_memory[group][i]; }
  bool operator()(int group, int i) {
    if (in_memory(group, i)) return true;
    signed char& stored = stored_[group][i];
    if (stored < 0) stored = ask_({group, query_.hashes[i]}) ? 1 : 0;
    return stored > 0;
  }

 private:
  const ChainQuery& query_;
  const Ask ask_;
  std::vector<std::vector<signed char>> stored_;  // -1: not asked yet
};

// Returns the first block of the group that is needed to go on after n_blocks.
int first_needed(int window, int n_blocks, int block_size) {
  if (window == kStateWindow) return n_blocks - 1;
  return window > 0 ? std::max(0, n_blocks * block_size - window + 1) / block_size : 0;
}

}  // namespace

int look_up_chain(const ChainQuery& query, int block_size,
                  const std::function<bool(const BlockKey&)>& is_stored,
                  std::vector<WantedBlock>& wanted) {
  const int n_blocks = static_cast<int>(query.hashes.size()),
            n_groups = static_cast<int>(query.windows.size());
  Presence there(query, is_stored);
  int n = 0;
  while (n < n_blocks && there(0, n)) ++n;
  const auto whole = [&](int n) {
    for (int g = n_groups - 1; g > 0; --g) {
      for (int i = first_needed(query.windows[g], n, block_size); i < n; ++i) {
        if (!there(g, i)) return false;
      }
    }
    return true;
  };
  while (n > query.n_found && !whole(n)) --n;
  wanted.clear();
  for (int g = 0; g < n_groups && n > query.n_found; ++g) {
    for (int i = first_needed(query.windows[g], n, block_size); i < n; ++i) {
      if (!there.in_memory(g, i)) wanted.push_back({{g, query.hashes[i]}, i});
    }
  }
  return n;
}

}  // namespace penstock
