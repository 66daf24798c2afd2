// Two stores as one: a near one, which is asked first, and a far one. Every block is written to
// both; one of them that fails does not keep the other from it.
#pragma once
#include <array>
#include <chrono>
#include <memory>

#include "engine/store/block_store.h"

namespace penstock {

// Threads: as the stores themselves.
class BlockTiers final : public BlockStore {
 public:
  // REQUIRES: both have equal images.
  BlockTiers(std::shared_ptr<BlockStore> near, std::shared_ptr<BlockStore> far);

  const BlockImages& images() const override { return tiers_[0].store->images(); }
  bool contains(const BlockKey& key) const override;
  bool touch(const BlockKey& key) const override;
  bool contains_far(const BlockKey& key) const override { return tiers_[1].store->contains(key); }
  Status read(const BlockKey& key, std::span<const TokenId> tokens,
              BlockImage& image) const override;
  void expect(const BlockKey& key) const override { tiers_[0].store->expect(key); }
  bool is_far(const BlockKey& key) const override { return !tiers_[0].store->contains(key); }
  // Errors: those of the near one, when both have failed. A store that failed is passed over for kRest.
  Status write(const BlockKey& key, const BlockImage& image) override;

 private:
  static constexpr std::chrono::seconds kRest{10};
  struct Tier {
    std::shared_ptr<BlockStore> store;
    std::chrono::steady_clock::time_point rests_until;  // writer's thread only
  };
  std::array<Tier, 2> tiers_;
};

}  // namespace penstock
