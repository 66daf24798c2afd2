#include "engine/replicas/prefix_router.h"

#include <algorithm>
#include <tuple>

namespace penstock {
namespace {

constexpr size_t kMostBlocks = 65536;  // known blocks per engine, about 10 MB

}  // namespace

PrefixRouter::PrefixRouter(int n_engines, int block_size, size_t n_blocks)
    : block_size_(block_size),
      most_blocks_(std::min(n_blocks, kMostBlocks)),
      cached_(static_cast<size_t>(n_engines)) {}

PrefixRouter::Prefix PrefixRouter::prefix_of(std::string_view salt,
                                             std::span<const TokenId> tokens) const {
  Prefix prefix;
  BlockHash hash = root_hash(salt);
  const auto block = static_cast<size_t>(block_size_);
  for (size_t at = 0; at + block <= tokens.size() && prefix.size() < most_blocks_; at += block)
    prefix.push_back(hash = chain_hash(hash, tokens.subspan(at, block)));
  return prefix;
}

size_t PrefixRouter::Cached::n_known(const Prefix& prefix) const {
  const auto known = [&](const BlockHash& hash) { return of_hash.contains(hash.low); };
  return static_cast<size_t>(std::ranges::find_if_not(prefix, known) - prefix.begin());
}

void PrefixRouter::Cached::touch(const BlockHash& hash, size_t most) {
  if (const auto found = of_hash.find(hash.low); found != of_hash.end()) {
    by_use.splice(by_use.begin(), by_use, found->second);
    return;
  }
  if (of_hash.size() >= most) {
    of_hash.erase(by_use.back().low);
    by_use.pop_back();
  }
  by_use.push_front(hash);
  of_hash.emplace(hash.low, by_use.begin());
}

std::vector<PrefixRouter::Place> PrefixRouter::places(const Prefix& prefix, int64_t n_tokens,
                                                      std::span<const Load> loads) const {
  const std::lock_guard lock(mutex_);
  std::vector<Place> places;
  for (size_t engine = 0; engine < cached_.size(); ++engine) {
    // At least the last token must be computed.
    const auto n_known = static_cast<int64_t>(cached_[engine].n_known(prefix)) * block_size_;
    places.push_back({static_cast<int>(engine), std::max<int64_t>(n_tokens - n_known, 1)});
  }
  std::ranges::sort(places, {}, [&](const Place& place) {
    const auto engine = static_cast<size_t>(place.engine);
    return std::tuple(loads[engine].tokens() + place.tokens, cached_[engine].n_sent, engine);
  });
  return places;
}

// Blocks are touched from last to first: the start of a prompt is most likely to be shared.
void PrefixRouter::sent(int engine, const Prefix& prefix) {
  const std::lock_guard lock(mutex_);
  Cached& cached = cached_[static_cast<size_t>(engine)];
  ++cached.n_sent;
  for (auto hash = prefix.rbegin(); hash != prefix.rend(); ++hash)
    cached.touch(*hash, most_blocks_);
}

void PrefixRouter::forget() {
  const std::lock_guard lock(mutex_);
  for (Cached& cached : cached_) cached.of_hash.clear(), cached.by_use.clear();
}

}  // namespace penstock
