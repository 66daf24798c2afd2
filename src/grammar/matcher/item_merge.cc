#include "grammar/matcher/item_merge.h"

#include <algorithm>
#include <tuple>

namespace penstock::grammar {
namespace {

constexpr uint32_t kFew = 8;            // items, compared pairwise
constexpr uint64_t kAnyway = 1024;      // comparisons of callers per step
constexpr uint64_t kPerItem = 64;       // additional comparisons per item
constexpr size_t kMostPairs = 32;       // that one pair of nodes may depend on
constexpr uint64_t kPerOperation = 16;  // comparisons
constexpr size_t kMostReached = 8;      // nodes that may end directly after a node
constexpr size_t kMostTried = 4;        // candidates per new item

auto kind_of(const Item& item) { return std::tie(item.point, item.state, item.start); }

bool has_frame(const Item& item) {
  switch (item.kind()) {
    case Point::kScan:
    case Point::kToken:
    case Point::kLeaf:
    case Point::kValue:
    case Point::kPlay:
    case Point::kRepeat: return false;
    default: return true;
  }
}

}  // namespace

void ItemMerge::run(uint32_t first) {
  if (!may_merge(first)) return;
  const auto n = static_cast<uint32_t>(items_.size());
  const uint64_t most = left_ = kAnyway + kPerItem * (n - first);
  known_.clear();
  pairs_.clear();
  dropped_.assign(n - first, false);
  order_.clear();
  for (uint32_t i = first; i < n; ++i) order_.push_back(i);
  const auto key = [&](uint32_t i) {
    return std::tuple_cat(kind_of(items_[i]), std::tie(items_[i].node));
  };
  std::sort(order_.begin(), order_.end(), [&](uint32_t a, uint32_t b) { return key(a) < key(b); });
  for (auto begin = order_.cbegin(); begin != order_.cend();) {
    const auto end = std::find_if(begin, order_.cend(), [&](uint32_t i) {
      return kind_of(items_[i]) != kind_of(items_[*begin]);
    });
    merge_group(std::span(begin, end), first);
    begin = end;
  }
  uint32_t at = first;
  for (uint32_t i = first; i < n; ++i) {
    if (!dropped_[i - first]) items_[at++] = items_[i];
  }
  items_.resize(at);
  stack_.work().spend(1 + (most - left_) / kPerOperation);
}

// Nodes are in ascending order, so that older ones are kept.
void ItemMerge::merge_group(std::span<const uint32_t> group, uint32_t first) {
  kept_.clear();
  for (const uint32_t i : group) {
    const Item& item = items_[i];
    size_t n_tried = 0;
    for (size_t k = kept_.size(); k-- > 0 && !dropped_[i - first] && n_tried < kMostTried;
         ++n_tried) {
      const Item& other = items_[kept_[k]];
      if (covers(other, item) && within(item.node, other.node)) {
        dropped_[i - first] = true;
      } else if (covers(item, other) && within(other.node, item.node)) {
        dropped_[kept_[k] - first] = true;
        kept_.erase(kept_.begin() + static_cast<ptrdiff_t>(k));
      }
    }
    if (!dropped_[i - first]) kept_.push_back(i);
  }
}

// Whether two items are of the same kind.
bool ItemMerge::may_merge(uint32_t first) {
  const auto n = static_cast<uint32_t>(items_.size());
  if (n - first > kFew) {
    kinds_.clear();
    for (uint32_t i = first; i < n; ++i) {
      const Item& item = items_[i];
      if (!kinds_.insert({item.point, item.state, item.start}).second) return true;
    }
    return false;
  }
  for (uint32_t i = first; i < n; ++i) {
    for (uint32_t j = i + 1; j < n; ++j) {
      if (items_[i].point == items_[j].point && items_[i].state == items_[j].state) return true;
    }
  }
  return false;
}

// Whether `small` allows only continuations that `large` allows, up to the ends of their nodes.
bool ItemMerge::covers(const Item& large, const Item& small) const {
  if (kind_of(large) != kind_of(small)) return false;
  if (large.count != small.count && !covers_count(large, small)) return false;
  return large.data == small.data ||
         (has_frame(large) && stack_.frame(large.data) == stack_.frame(small.data));
}

// When the minimum is reached, a smaller count allows more.
bool ItemMerge::covers_count(const Item& large, const Item& small) const {
  uint64_t min = 0;
  switch (large.kind()) {
    case Point::kScan: min = program_.leaves[program_.code[large.index()].a].window.min; break;
    case Point::kLeaf: min = program_.leaves[large.index()].window.min; break;
    case Point::kRepeat: min = program_.repetitions[large.index()].min; break;
    default: return false;
  }
  return large.count >= min && large.count <= small.count;
}

// Whether the node of the caller may end directly after the call.
bool ItemMerge::may_end(const Item& caller) const {
  switch (caller.kind()) {
    case Point::kPlay: return caller.node != kNone && program_.may_return[caller.index()];
    case Point::kRepeat: return caller.count >= program_.repetitions[caller.index()].min;
    default: return false;
  }
}

// Whether everything that may follow the end of `small` may follow the end of `large`; false if
// this is not proved.
bool ItemMerge::within(uint32_t small, uint32_t large) {
  if (small == large) return true;
  if (small == kNone || large == kNone) return false;
  if (const NodePair* const known = known_.find({small, large})) return pairs_[known->index].holds;
  if (left_ == 0) return false;
  const size_t first = pairs_.size();
  assume(small, large);
  bool changed = true;
  for (size_t i = first; i < pairs_.size() && changed; ++i) {
    explore(i);
    changed = left_ > 0 && pairs_.size() - first <= kMostPairs;
  }
  const bool all = changed;
  while (changed && left_ > 0) {
    changed = false;
    for (size_t i = first; i < pairs_.size(); ++i) {
      if (!pairs_[i].holds || supported(pairs_[i])) continue;
      pairs_[i].holds = false;
      changed = true;
    }
  }
  if (!all || left_ == 0) {
    for (size_t i = first; i < pairs_.size(); ++i) pairs_[i].holds = false;
  }
  return pairs_[first].holds;
}

void ItemMerge::assume(uint32_t small, uint32_t large) {
  if (small == large || small == kNone || large == kNone) return;
  if (known_.insert({small, large, static_cast<uint32_t>(pairs_.size())}).second)
    pairs_.push_back({small, large, true});
}

// Collects in reached_ the node and those that may end directly after it.
void ItemMerge::reach(uint32_t node) {
  reached_.assign(1, node);
  for (size_t i = 0; i < reached_.size(); ++i) {
    for (uint32_t c = stack_.node(reached_[i]).callers; c != kNone && compare();
         c = stack_.caller(c).next) {
      const Item& caller = stack_.caller(c).resume;
      if (reached_.size() == kMostReached || !may_end(caller)) continue;
      if (std::find(reached_.begin(), reached_.end(), caller.node) == reached_.end())
        reached_.push_back(caller.node);
    }
  }
}

// Whether a caller of one of the reached nodes resumes like this one and satisfies `fits`.
template <class Fits>
bool ItemMerge::any_like(const Item& caller, Fits&& fits) {
  for (const uint32_t node : reached_) {
    for (uint32_t c = stack_.node(node).callers; c != kNone && compare();
         c = stack_.caller(c).next) {
      const Item& other = stack_.caller(c).resume;
      if (covers(other, caller) && fits(other.node)) return true;
    }
  }
  return false;
}

// Adds the pairs on which this pair depends, assuming that they hold.
void ItemMerge::explore(size_t pair) {
  const uint32_t small = pairs_[pair].small;
  reach(pairs_[pair].large);
  if (std::find(reached_.begin(), reached_.end(), small) != reached_.end()) return;
  for (uint32_t c = stack_.node(small).callers; c != kNone; c = stack_.caller(c).next) {
    const Item& caller = stack_.caller(c).resume;
    if (any_like(caller, [&](uint32_t node) { return node == caller.node; })) continue;
    any_like(caller, [&](uint32_t node) {
      assume(caller.node, node);
      return false;
    });
  }
}

bool ItemMerge::holds(uint32_t small, uint32_t large) {
  if (small == large) return true;
  const NodePair* const known = known_.find({small, large});
  return known != nullptr && pairs_[known->index].holds;
}

// Whether each caller of the small node has a counterpart among the callers of the large node or of
// nodes that may end after it.
bool ItemMerge::supported(const Pair& pair) {
  reach(pair.large);
  if (std::find(reached_.begin(), reached_.end(), pair.small) != reached_.end()) return true;
  for (uint32_t c = stack_.node(pair.small).callers; c != kNone; c = stack_.caller(c).next) {
    const Item& caller = stack_.caller(c).resume;
    if (!any_like(caller, [&](uint32_t node) { return holds(caller.node, node); })) return false;
  }
  return true;
}

}  // namespace penstock::grammar
