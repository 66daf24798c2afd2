// Several stores as one: the nearest is asked first. Every block is written to all of them; one
// that fails does not keep the others from it.
#pragma once
#include <chrono>
#include <memory>
#include <vector>

#include "engine/store/block_store.h"

namespace penstock {

// Threads: as the stores themselves.
class BlockTiers final : public BlockStore {
 public:
  // stores: the nearest first. REQUIRES: one or more, all with equal images.
  explicit BlockTiers(std::vector<std::shared_ptr<BlockStore>> stores);

  const BlockImages& images() const override { return tiers_[0].store->images(); }
  bool contains(const BlockKey& key) const override;
  bool touch(const BlockKey& key) const override;
  bool contains_far(const BlockKey& key) const override {
    return tiers_.back().store->contains(key);
  }
  Status read(const BlockKey& key, std::span<const TokenId> tokens,
              BlockImage& image) const override;
  void expect(const BlockKey& key) const override;
  bool is_at_hand(const BlockKey& key) const override { return tiers_[0].store->is_at_hand(key); }
  bool is_far(const BlockKey& key) const override { return !tiers_[0].store->contains(key); }
  // Errors: the first one, when all stores have failed. A store that failed is passed over for kRest.
  Status write(const BlockKey& key, const BlockImage& image) override;

 private:
  static constexpr std::chrono::seconds kRest{10};
  struct Tier {
    std::shared_ptr<BlockStore> store;
    std::chrono::steady_clock::time_point rests_until;  // writer's thread only
  };
  std::vector<Tier> tiers_;
};

}  // namespace penstock
