#include "engine/store/block_tiers.h"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <optional>
#include <utility>

#include "base/log.h"

namespace penstock {

BlockTiers::BlockTiers(std::vector<std::shared_ptr<BlockStore>> stores) {
  for (auto& store : stores) tiers_.push_back({std::move(store), {}});
}

bool BlockTiers::contains(const BlockKey& key) const {
  return std::ranges::any_of(tiers_, [&](const Tier& tier) { return tier.store->contains(key); });
}

bool BlockTiers::touch(const BlockKey& key) const {
  return std::ranges::count_if(tiers_, [&](const Tier& tier) { return tier.store->touch(key); }) >
         0;
}

void BlockTiers::expect(const BlockKey& key) const {
  if (is_at_hand(key)) return;
  for (const Tier& tier : tiers_) tier.store->expect(key);
}

Status BlockTiers::read(const BlockKey& key, std::span<const TokenId> tokens,
                        BlockImage& image) const {
  Status read;
  for (const Tier& tier : tiers_) {
    read = tier.store->read(key, tokens, image);
    if (read) break;
  }
  return read;
}

Status BlockTiers::write(const BlockKey& key, const BlockImage& image) {
  std::optional<Error> first;
  bool kept = false;
  for (Tier& tier : tiers_) {
    const auto now = std::chrono::steady_clock::now();
    if (now < tier.rests_until) continue;
    const Status written = tier.store->write(key, image);
    kept |= written.has_value();
    if (written) continue;
    tier.rests_until = now + kRest;
    log().warn("kv store: one of its stores does not keep blocks for the next {} seconds: {}",
               kRest.count(), written.error().message);
    if (!first) first = written.error();
  }
  if (kept) return {};
  if (first) return tl::unexpected(*first);
  return make_error(ErrorCode::kIo, "no store keeps blocks at present");
}

}  // namespace penstock
