// Removes redundant items: an item is redundant if each of its continuations is also a continuation
// of another item of the same kind.
#pragma once
#include <span>
#include <vector>

#include "grammar/matcher/item_set.h"

namespace penstock::grammar {

class ItemMerge {
 public:
  ItemMerge(const Program& program, const Stack& stack, std::vector<Item>& items)
      : program_(program), stack_(stack), items_(items) {}
  // Removes redundant ones of the items from `first` on, which are at the same position of the
  // text. Work is bounded by their number: items that are not proved redundant within it stay.
  // REQUIRES: their step is finished, so that their nodes get no more callers.
  void run(uint32_t first);

 private:
  struct Pair {
    uint32_t small, large;
    bool holds;
  };
  bool may_merge(uint32_t first);
  void merge_group(std::span<const uint32_t> group, uint32_t first);
  bool covers(const Item& large, const Item& small) const;
  bool covers_count(const Item& large, const Item& small) const;
  bool may_end(const Item& caller) const;
  bool within(uint32_t small, uint32_t large);
  void explore(size_t pair);
  void assume(uint32_t small, uint32_t large);
  bool supported(const Pair& pair);
  void reach(uint32_t node);
  template <class Fits>
  bool any_like(const Item& caller, Fits&& fits);
  bool holds(uint32_t small, uint32_t large);
  bool compare() { return left_ > 0 && left_-- > 0; }

  const Program& program_;
  const Stack& stack_;
  std::vector<Item>& items_;
  std::vector<uint32_t> order_, kept_, reached_;
  std::vector<bool> dropped_;  // by item, starting with the first
  StepSet<ItemKind> kinds_;
  StepSet<NodePair> known_;
  std::vector<Pair> pairs_;
  // comparisons of callers that this step may still make
  uint64_t left_ = 0;
};

}  // namespace penstock::grammar
