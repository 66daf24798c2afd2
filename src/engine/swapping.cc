// The scheduler's side of the swap space: which blocks go out, which come back, which slots are taken.
#include <algorithm>

#include "base/check.h"
#include "engine/scheduler.h"

namespace penstock {

// Notes where the K and V of a sequence that loses its blocks are to be kept; nothing when there is no room.
void Scheduler::swap_out(Sequence& sequence, Plan& plan) {
  if (!swaps() || sequence.n_computed == 0) return;
  const int end = blocks_for(sequence.n_computed);
  for (size_t g = 0; g < groups_.size(); ++g) {
    if (static_cast<size_t>(end - sequence.kv[g].first_block) > free_slots_[g].size()) return;
  }
  sequence.swapped.resize(groups_.size());
  sequence.n_swapped = sequence.n_computed;
  for (size_t g = 0; g < groups_.size(); ++g) {
    const GroupBlocks& kv = sequence.kv[g];
    SwappedBlocks& swapped = sequence.swapped[g];
    swapped.first_block = kv.first_block;
    for (int i = 0; i < end - kv.first_block; ++i) {
      BlockId block = kv.blocks[i];
      // Copies that are planned but not yet made; a block may have been the target of several.
      for (auto copy = plan.copies.rbegin(); copy != plan.copies.rend(); ++copy) {
        if (copy->group == static_cast<int>(g) && copy->to == block) block = copy->from;
      }
      swapped.slots.push_back(free_slots_[g].back());
      free_slots_[g].pop_back();
      plan.swaps_out.push_back({&sequence, static_cast<int>(g), block, swapped.slots.back()});
    }
  }
}

// Takes the blocks that are still in the prefix index, up to the first that is not.
void Scheduler::acquire_swapped(Sequence& sequence) {
  const int n_full =
      config_.prefix_caching && sequence.read_cache
          ? std::min(sequence.n_swapped / block_size_, static_cast<int>(sequence.hashes.size()))
          : 0;
  for (size_t g = 0; g < groups_.size(); ++g) {
    GroupBlocks& kv = sequence.kv[g];
    kv.first_block = sequence.swapped[g].first_block;
    for (int i = kv.first_block; i < n_full; ++i) {
      const std::span<const TokenId> tokens{sequence.tokens.data() + static_cast<ptrdiff_t>(i) * block_size_,
                                            static_cast<size_t>(block_size_)};
      const std::optional<BlockId> block = groups_[g].allocator.acquire(sequence.hashes[i], tokens);
      if (!block) break;
      kv.blocks.push_back(*block);
    }
  }
  sequence.n_computed = sequence.n_swapped;
}

bool Scheduler::has_room_for_swapped(const Sequence& sequence) const {
  for (size_t g = 0; g < groups_.size(); ++g) {
    const auto missing = static_cast<int64_t>(sequence.swapped[g].slots.size()) -
                         static_cast<int64_t>(sequence.kv[g].blocks.size());
    if (missing > groups_[g].allocator.n_available()) return false;
  }
  return true;
}

// Blocks for the rest, to be filled before the step. Their slots stay taken until the next plan is made.
void Scheduler::swap_in(Sequence& sequence, Plan& plan) {
  for (size_t g = 0; g < groups_.size(); ++g) {
    GroupBlocks& kv = sequence.kv[g];
    const SwappedBlocks& swapped = sequence.swapped[g];
    for (size_t i = kv.blocks.size(); i < swapped.slots.size(); ++i) {
      const std::optional<BlockId> block = groups_[g].allocator.allocate();
      PENSTOCK_CHECK(block.has_value());
      kv.blocks.push_back(*block);
      plan.swaps_in.push_back({&sequence, static_cast<int>(g), *block, swapped.slots[i]});
    }
  }
  swapped_in_.push_back(&sequence);
}

void Scheduler::forget_swapped(Sequence& sequence) {
  if (sequence.n_swapped == 0) return;
  sequence.n_swapped = 0;
  for (size_t g = 0; g < groups_.size(); ++g) {
    SwappedBlocks& swapped = sequence.swapped[g];
    free_slots_[g].insert(free_slots_[g].end(), swapped.slots.begin(), swapped.slots.end());
    swapped.slots.clear();
  }
}

void Scheduler::lose_swapped(Sequence& sequence, Plan& plan) {
  std::erase(swapped_in_, &sequence);
  forget_swapped(sequence);
  if (sequence.state != SeqState::kRunning) return;
  std::erase(running_, &sequence);
  unschedule(sequence, plan);
  release_blocks(sequence);
  sequence.n_computed = 0;
  enqueue(sequence);
}

}  // namespace penstock
