#include "engine/schedule/swap_space.h"

#include <algorithm>

#include "base/check.h"

namespace penstock {

SwapSpace::SwapSpace(SequenceBlocks& blocks, std::span<const int> n_slots, int max_seqs)
    : blocks_(blocks), n_slots_(n_slots.begin(), n_slots.end()) {
  for (const int n : n_slots_) {
    std::vector<int>& slots = free_slots_.emplace_back(n);
    for (int i = 0; i < n; ++i) slots[i] = n - 1 - i;
  }
  coming_.reserve(max_seqs + 1);
}

void SwapSpace::begin_plan() {
  for (Sequence* sequence : coming_) give_back(*sequence);
  coming_.clear();
}

void SwapSpace::swap_out(Sequence& sequence, Plan& plan) {
  if (std::erase(coming_, &sequence) > 0) {  // its content is still in the swap space
    std::erase_if(plan.swaps_in, [&](const SwapMove& move) { return move.sequence == &sequence; });
    return;
  }
  if (n_slots_.empty() || sequence.n_computed == 0) return;
  const auto end = [&](int g) { return blocks_.blocks_for(g, sequence.n_computed); };
  for (int g = 0; g < blocks_.n_groups(); ++g) {
    if (static_cast<size_t>(end(g) - sequence.kv[g].first_block) > free_slots_[g].size()) return;
  }
  sequence.swapped.resize(blocks_.n_groups());
  sequence.n_swapped = sequence.n_computed;
  for (int g = 0; g < blocks_.n_groups(); ++g) {
    const GroupBlocks& kv = sequence.kv[g];
    SwappedBlocks& swapped = sequence.swapped[g];
    swapped.first_block = kv.first_block;
    for (int i = 0; i < end(g) - kv.first_block; ++i) {
      BlockId block = kv.blocks[i];
      // Follows planned copies back to their sources; a block may be the target of several.
      for (auto copy = plan.copies.rbegin(); copy != plan.copies.rend(); ++copy) {
        if (copy->group == g && copy->to == block) block = copy->from;
      }
      swapped.slots.push_back(free_slots_[g].back());
      free_slots_[g].pop_back();
      plan.swaps_out.push_back({&sequence, g, block, swapped.slots.back()});
    }
  }
}

void SwapSpace::acquire_indexed(Sequence& sequence, bool from_index) {
  const int block_size = blocks_.block_size();
  const int n_full = from_index ? std::min(sequence.n_swapped / block_size,
                                           static_cast<int>(sequence.hashes.size()))
                                : 0;
  for (int g = 0; g < blocks_.n_groups(); ++g) {
    GroupBlocks& kv = sequence.kv[g];
    kv.first_block = sequence.swapped[g].first_block;
    for (int i = kv.first_block; i < n_full && !blocks_.holds_states(g); ++i) {
      const auto tokens = std::span<const TokenId>(sequence.tokens)
                              .subspan(static_cast<size_t>(i) * block_size, block_size);
      const std::optional<BlockId> block = blocks_.allocator(g).acquire(sequence.hashes[i], tokens);
      if (!block) break;
      kv.blocks.push_back(*block);
    }
  }
  sequence.n_computed = sequence.n_swapped;
}

bool SwapSpace::has_room(const Sequence& sequence) const {
  for (int g = 0; g < blocks_.n_groups(); ++g) {
    const auto missing = static_cast<int64_t>(sequence.swapped[g].slots.size()) -
                         static_cast<int64_t>(sequence.kv[g].blocks.size());
    if (missing > blocks_.allocator(g).n_available()) return false;
  }
  return true;
}

void SwapSpace::swap_in(Sequence& sequence, Plan& plan) {
  for (int g = 0; g < blocks_.n_groups(); ++g) {
    GroupBlocks& kv = sequence.kv[g];
    const SwappedBlocks& swapped = sequence.swapped[g];
    for (size_t i = kv.blocks.size(); i < swapped.slots.size(); ++i) {
      const std::optional<BlockId> block = blocks_.allocator(g).allocate();
      PENSTOCK_CHECK(block.has_value());
      kv.blocks.push_back(*block);
      plan.swaps_in.push_back({&sequence, g, *block, swapped.slots[i]});
    }
  }
  coming_.push_back(&sequence);
}

void SwapSpace::forget(Sequence& sequence) {
  std::erase(coming_, &sequence);
  give_back(sequence);
}

void SwapSpace::give_back(Sequence& sequence) {
  if (sequence.n_swapped == 0) return;
  sequence.n_swapped = 0;
  for (int g = 0; g < blocks_.n_groups(); ++g) {
    SwappedBlocks& swapped = sequence.swapped[g];
    free_slots_[g].insert(free_slots_[g].end(), swapped.slots.begin(), swapped.slots.end());
    swapped.slots.clear();
  }
}

void SwapSpace::abandon(const Plan& plan) {
  for (const SwapMove& move : plan.swaps_out) give_back(*move.sequence);
  begin_plan();
}

void SwapSpace::check_invariants(std::span<const Sequence* const> sequences) const {
  for (size_t g = 0; g < free_slots_.size(); ++g) {
    size_t n_taken = 0;
    for (const Sequence* sequence : sequences)
      if (sequence->n_swapped > 0) n_taken += sequence->swapped[g].slots.size();
    PENSTOCK_CHECK(n_taken + free_slots_[g].size() == static_cast<size_t>(n_slots_[g]));
  }
}

}  // namespace penstock
