// What a step is to do, as the scheduler says it.
#pragma once
#include <vector>

#include "engine/schedule/sequence.h"
#include "sampling/draft_tree.h"

namespace penstock {

struct ScheduledItem {
  Sequence* sequence = nullptr;
  int first = 0;         // index of the first token computed in this step
  int count = 0;         // with its draft
  bool last = false;     // closes the gap: its last row's logits choose the next token
  int n_draft = 0;       // of count: guessed tokens after the sequence's own, which are to be checked
  bool is_void = false;  // it was computed from a token that has not come
  const DraftTree* draft = nullptr;  // [n_draft] nodes; the scheduler only makes room for them
};

struct BlockCopy {  // K and V of a whole block, before the step's own tokens are stored
  int group = 0;
  BlockId from{}, to{};
};

// K and V of a whole block, to or from the swap space.
struct SwapMove {
  Sequence* sequence = nullptr;
  int group = 0;
  BlockId block{};
  int slot = 0;
};

// To carry out in this order: swaps_out, copies, swaps_in, items.
struct Plan {
  std::vector<ScheduledItem> items;
  std::vector<BlockCopy> copies;
  std::vector<SwapMove> swaps_out, swaps_in;
  std::vector<Sequence*> admitted, preempted;
  int n_tokens = 0;

  void clear() {
    items.clear(), copies.clear(), swaps_out.clear(), swaps_in.clear(), admitted.clear(), preempted.clear();
    n_tokens = 0;
  }
  // The sequence does not run in this step after all.
  void drop(const Sequence& sequence) {
    std::erase_if(items, [&](const ScheduledItem& item) {
      if (item.sequence == &sequence) n_tokens -= item.count;
      return item.sequence == &sequence;
    });
  }
};

}  // namespace penstock
