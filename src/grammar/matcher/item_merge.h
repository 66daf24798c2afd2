// Leaves out items that add nothing: all that may follow them may follow another one of the same kind.
//
// Ambiguous grammars come to the same place on many ways, each with a stack of its own. A node is within another if each of its callers has
// one of the other, or of a node that may end behind the other at once, that goes on alike and whose own node is within again (the
// largest simulation): then what follows its end may follow the other's. Of two that are alike the older stays, so that it is the same one
// step after step.
#pragma once
#include <span>
#include <vector>

#include "grammar/matcher/item_set.h"

namespace penstock::grammar {

class ItemMerge {
 public:
  ItemMerge(const Program& program, const Stack& stack, std::vector<Item>& items)
      : program_(program), stack_(stack), items_(items) {}
  // Of the items from `first` on, which stand at the same place. Work is bounded by their number: what is not found out within it stays.
  // REQUIRES: their step is over, so that their nodes get no more callers.
  void run(uint32_t first);

 private:
  struct Pair {
    uint32_t small, large;
    bool holds;
  };
  bool may_merge(uint32_t first) const;
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
  std::vector<bool> dropped_;  // by item, from the first on
  StepSet<NodePair> known_;
  std::vector<Pair> pairs_;
  uint64_t left_ = 0;  // comparisons of callers in this step
};

}  // namespace penstock::grammar
