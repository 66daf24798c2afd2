// Hash sets for the duration of one step, cleared in constant time.
#pragma once
#include <utility>
#include <vector>

#include "grammar/matcher/stack.h"

namespace penstock::grammar {

inline uint64_t hash_of(const Item& item) {
  return mix(mix(item.point, item.state), mix(item.data, item.node) + item.count) + item.start;
}

// A node, found by what was called (key) and the position of the call.
struct CalledNode {
  uint32_t key, position, node;
  bool operator==(const CalledNode& other) const {
    return key == other.key && position == other.position;
  }
};
inline uint64_t hash_of(const CalledNode& called) { return mix(called.key, called.position); }

struct NumberedFrame {
  Frame frame;
  uint32_t index;
  bool operator==(const NumberedFrame& other) const { return frame == other.frame; }
};
inline uint64_t hash_of(const NumberedFrame& f) {
  return mix(mix(f.frame.state, f.frame.count), f.frame.used);
}

// Position of an item in the grammar, without its count and frame: items of equal kinds may be
// merged.
struct ItemKind {
  uint32_t point, state, start;
  bool operator==(const ItemKind&) const = default;
};
inline uint64_t hash_of(const ItemKind& kind) {
  return mix(mix(kind.point, kind.state), kind.start);
}

// Two nodes with the known or assumed relation "small is within large" (item_merge.h).
struct NodePair {
  uint32_t small, large;
  uint32_t index = 0;
  bool operator==(const NodePair& other) const {
    return small == other.small && large == other.large;
  }
};
inline uint64_t hash_of(const NodePair& pair) { return mix(pair.small, pair.large); }

// A set of elements with operator== and hash_of().
template <class T>
class StepSet {
 public:
  void clear() {
    size_ = 0;
    if (++epoch_ == 0) {
      slots_.assign(slots_.size(), Slot{});
      epoch_ = 1;
    }
  }
  // Returns the element in the set and whether it was inserted now.
  std::pair<const T&, bool> insert(const T& element) {
    if ((size_ + 1) * 2 > slots_.size()) grow();
    Slot& slot = slot_of(element);
    if (slot.epoch == epoch_) return {slot.element, false};
    slot = {element, epoch_};
    ++size_;
    return {slot.element, true};
  }
  // Returns the equal element of the set, or null.
  const T* find(const T& element) {
    if (slots_.empty()) return nullptr;
    const Slot& slot = slot_of(element);
    return slot.epoch == epoch_ ? &slot.element : nullptr;
  }

 private:
  struct Slot {
    T element{};
    uint32_t epoch = 0;
  };
  Slot& slot_of(const T& element) {
    size_t i = hash_of(element) & (slots_.size() - 1);
    while (slots_[i].epoch == epoch_ && !(slots_[i].element == element))
      i = (i + 1) & (slots_.size() - 1);
    return slots_[i];
  }
  void grow() {
    std::vector<Slot> old(slots_.empty() ? 64 : slots_.size() * 2);
    old.swap(slots_);
    for (const Slot& slot : old) {
      if (slot.epoch == epoch_) slot_of(slot.element) = slot;
    }
  }
  std::vector<Slot> slots_;  // size: a power of two
  size_t size_ = 0;
  uint32_t epoch_ = 1;
};

}  // namespace penstock::grammar
