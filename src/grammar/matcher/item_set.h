// The items seen in one step, forgotten at once.
#pragma once
#include "grammar/matcher/stack.h"

namespace penstock::grammar {

class ItemSet {
 public:
  void clear() {
    size_ = 0;
    if (++epoch_ == 0) {
      slots_.assign(slots_.size(), Slot{});
      epoch_ = 1;
    }
  }
  // Whether it is new.
  bool insert(const Item& item) {
    if ((size_ + 1) * 2 > slots_.size()) grow();
    Slot& slot = find(item);
    if (slot.epoch == epoch_) return false;
    slot = {item, epoch_};
    ++size_;
    return true;
  }

 private:
  struct Slot {
    Item item{};
    uint32_t epoch = 0;
  };
  Slot& find(const Item& item) {
    const uint64_t hash = mix(mix(item.point, item.state), mix(item.data, item.node) + item.count);
    size_t i = hash & (slots_.size() - 1);
    while (slots_[i].epoch == epoch_ && slots_[i].item != item) i = (i + 1) & (slots_.size() - 1);
    return slots_[i];
  }
  void grow() {
    std::vector<Slot> old(slots_.empty() ? 64 : slots_.size() * 2);
    old.swap(slots_);
    for (const Slot& slot : old) {
      if (slot.epoch == epoch_) find(slot.item) = slot;
    }
  }
  std::vector<Slot> slots_;  // a power of two
  size_t size_ = 0;
  uint32_t epoch_ = 1;
};

}  // namespace penstock::grammar
