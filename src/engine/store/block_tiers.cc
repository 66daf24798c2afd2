#include "engine/store/block_tiers.h"

#include <spdlog/spdlog.h>

#include <optional>
#include <utility>

#include "base/log.h"

namespace penstock {

BlockTiers::BlockTiers(std::shared_ptr<BlockStore> near, std::shared_ptr<BlockStore> far)
    : tiers_{Tier{std::move(near), {}}, Tier{std::move(far), {}}} {}

bool BlockTiers::contains(const BlockKey& key) const {
  return tiers_[0].store->contains(key) || tiers_[1].store->contains(key);
}

bool BlockTiers::touch(const BlockKey& key) const {
  const bool near = tiers_[0].store->touch(key);
  return tiers_[1].store->touch(key) || near;
}

Status BlockTiers::read(const BlockKey& key, std::span<const TokenId> tokens,
                        BlockImage& image) const {
  if (tiers_[0].store->read(key, tokens, image)) return {};
  return tiers_[1].store->read(key, tokens, image);
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
    log().warn("kv store: one of two does not keep blocks for the next {} seconds: {}",
               kRest.count(), written.error().message);
    if (!first) first = written.error();
  }
  if (kept) return {};
  if (first) return tl::unexpected(*first);
  return make_error(ErrorCode::kIo, "neither store keeps blocks at present");
}

}  // namespace penstock
