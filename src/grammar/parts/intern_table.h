// A hash table for interning: finds an equal element of a list that only grows, so that equal
// elements have equal indices.
#pragma once
#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/text_hash.h"

namespace penstock::grammar {

// Drawn by the process, so that nobody can look for numbers whose hashes are equal.
inline const uint64_t kMixKey = number_hash(0);

// Mixes a value into a hash. Not symmetric, and not zero for small values: some hashes are compared
// instead of the values that they were made of.
inline uint64_t mix(uint64_t hash, uint64_t value) {
  hash = (hash * 0x9E3779B97F4A7C15 + value + kMixKey);
  hash = (hash ^ (hash >> 32)) * 0xD6E8FEB86659FD93;
  return hash ^ (hash >> 29);
}

// Open addressing over indices into the owner's list; the owner keeps the elements and their
// hashes.
class InternTable {
 public:
  static constexpr uint32_t kAbsent = UINT32_MAX;

  // Returns the index of an equal element, or kAbsent. equal(index): whether the element at the
  // index is the one sought.
  template <class Equal>
  uint32_t find(uint64_t hash, Equal&& equal) const {
    if (slots_.empty()) return kAbsent;
    for (size_t i = hash & mask(); slots_[i].index != kAbsent; i = (i + 1) & mask()) {
      if (slots_[i].hash == hash && equal(slots_[i].index)) return slots_[i].index;
    }
    return kAbsent;
  }
  // REQUIRES: find() returned kAbsent.
  void insert(uint64_t hash, uint32_t index) {
    if ((size_ + 1) * 2 > slots_.size()) grow();
    place({hash, index});
    ++size_;
  }
  size_t size() const { return size_; }
  void clear() {
    slots_.assign(slots_.size(), Slot{});
    size_ = 0;
  }

 private:
  struct Slot {
    uint64_t hash = 0;
    uint32_t index = kAbsent;
  };
  size_t mask() const { return slots_.size() - 1; }
  void place(const Slot& slot) {
    size_t i = slot.hash & mask();
    while (slots_[i].index != kAbsent) i = (i + 1) & mask();
    slots_[i] = slot;
  }
  void grow() {
    std::vector<Slot> old(slots_.empty() ? 16 : slots_.size() * 2);
    old.swap(slots_);
    for (const Slot& slot : old) {
      if (slot.index != kAbsent) place(slot);
    }
  }

  std::vector<Slot> slots_;  // size: a power of two
  size_t size_ = 0;
};

}  // namespace penstock::grammar
