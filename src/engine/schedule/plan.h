// The scheduler's plan of a step.
#pragma once
#include <vector>

#include "engine/schedule/sequence.h"
#include "sampling/draft_tree.h"

namespace penstock {

struct ScheduledItem {
  Sequence* sequence = nullptr;
  // index of the first token computed in this step
  int first = 0;
  // number of tokens computed in this step, with its draft
  int count = 0;
  // closes the gap: the logits of its last row choose the next token
  bool last = false;
  // draft tokens to verify: the last n_draft of count
  int n_draft = 0;
  // computed from a stand-in token whose draw did not come: the results are dropped
  bool is_void = false;
  // [n_draft] nodes; the scheduler only makes room for them
  const DraftTree* draft = nullptr;
};

// A copy of K and V of a whole block, made before the step's own tokens are stored.
struct BlockCopy {
  int group = 0;
  BlockId from{}, to{};
};

// Carried out in this order: copies, items.
struct Plan {
  std::vector<ScheduledItem> items;
  std::vector<BlockCopy> copies;
  std::vector<Sequence*> admitted, preempted;
  // waiting ones whose cached blocks others have taken since a store was asked for the rest
  std::vector<Sequence*> lost;
  int n_tokens = 0;

  void clear() {
    items.clear(), copies.clear(), admitted.clear(), preempted.clear(), lost.clear();
    n_tokens = 0;
  }
  int tokens_of(const Sequence& sequence) const {
    int n = 0;
    for (const ScheduledItem& item : items) n += item.sequence == &sequence ? item.count : 0;
    return n;
  }
  // Takes the sequence's items out of the step.
  void drop(const Sequence& sequence) {
    std::erase_if(items, [&](const ScheduledItem& item) {
      if (item.sequence == &sequence) n_tokens -= item.count;
      return item.sequence == &sequence;
    });
  }
};

}  // namespace penstock
