// Two open-addressing hash tables without removal: from 64-bit keys to values, and from byte
// strings to token ids.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/text_hash.h"

namespace penstock {

// REQUIRES: keys differ from ~0.
template <class Value>
class FlatMap {
 public:
  void reserve(size_t n) {
    size_t capacity = 16;
    while (capacity < n * 2) capacity *= 2;
    if (capacity > slots_.size()) rehash(capacity);
  }
  // Returns the value stored under key, after inserting `value` if there was none.
  Value& insert(uint64_t key, const Value& value) {
    if (slots_.empty() || (size_ + 1) * 2 > slots_.size())
      rehash(slots_.empty() ? 16 : slots_.size() * 2);
    size_t i = start(key);
    while (slots_[i].key != kEmpty && slots_[i].key != key) i = (i + 1) & mask_;
    if (slots_[i].key == kEmpty) {
      slots_[i] = {key, value};
      ++size_;
    }
    return slots_[i].value;
  }
  const Value* find(uint64_t key) const {
    if (slots_.empty()) return nullptr;
    for (size_t i = start(key);; i = (i + 1) & mask_) {
      if (slots_[i].key == key) return &slots_[i].value;
      if (slots_[i].key == kEmpty) return nullptr;
    }
  }
  size_t size() const { return size_; }
  template <class F>
  void for_each(F&& f) const {
    for (const Slot& slot : slots_) {
      if (slot.key != kEmpty) f(slot.key, slot.value);
    }
  }

 private:
  static constexpr uint64_t kEmpty = ~uint64_t{0};
  struct Slot {
    uint64_t key = kEmpty;
    Value value{};
  };
  size_t start(uint64_t key) const {
    key *= 0x9E3779B97F4A7C15u;
    return (key ^ key >> 32) & mask_;
  }
  void rehash(size_t capacity) {
    std::vector<Slot> old(capacity);
    old.swap(slots_);
    mask_ = capacity - 1;
    for (const Slot& slot : old) {
      if (slot.key == kEmpty) continue;
      size_t i = start(slot.key);
      while (slots_[i].key != kEmpty) i = (i + 1) & mask_;
      slots_[i] = slot;
    }
  }

  std::vector<Slot> slots_;
  size_t mask_ = 0, size_ = 0;
};

// A map from byte strings to int32 values, which owns copies of its keys. Views of keys are
// invalidated by insert().
class StringIndex {
 public:
  // Inserts key, or replaces its value. Returns the index of the entry.
  uint32_t insert(std::string_view key, int32_t value) {
    if (slots_.empty() || (entries_.size() + 1) * 2 > slots_.size()) rehash();
    const size_t hash = text_hash(key);
    size_t i = hash & mask_;
    for (; slots_[i] != 0; i = (i + 1) & mask_) {
      Entry& entry = entries_[slots_[i] - 1];
      if (entry.hash == static_cast<uint32_t>(hash) && view(entry) == key) {
        entry.value = value;
        return slots_[i] - 1;
      }
    }
    entries_.push_back(
        {arena_.size(), static_cast<uint32_t>(key.size()), static_cast<uint32_t>(hash), value});
    arena_ += key;
    slots_[i] = static_cast<uint32_t>(entries_.size());
    return slots_[i] - 1;
  }
  // Returns the value of key, or -1 when it is absent.
  int32_t find(std::string_view key) const {
    if (slots_.empty()) return -1;
    const size_t hash = text_hash(key);
    for (size_t i = hash & mask_; slots_[i] != 0; i = (i + 1) & mask_) {
      const Entry& entry = entries_[slots_[i] - 1];
      if (entry.hash == static_cast<uint32_t>(hash) && view(entry) == key) return entry.value;
    }
    return -1;
  }
  std::string_view key(uint32_t entry) const { return view(entries_[entry]); }
  size_t size() const { return entries_.size(); }
  // Calls f(key, value) for each entry in order of insertion.
  template <class F>
  void for_each(F&& f) const {
    for (const Entry& entry : entries_) f(view(entry), entry.value);
  }

 private:
  struct Entry {
    uint64_t offset;
    uint32_t length, hash;
    int32_t value;
  };
  std::string_view view(const Entry& entry) const {
    return std::string_view(arena_).substr(entry.offset, entry.length);
  }
  void rehash() {
    const size_t capacity = slots_.empty() ? 64 : slots_.size() * 2;
    slots_.assign(capacity, 0);
    mask_ = capacity - 1;
    for (uint32_t n = 0; n < entries_.size(); ++n) {
      // The stored half of the hash is enough below 2^32 slots.
      size_t i = entries_[n].hash & mask_;
      while (slots_[i] != 0) i = (i + 1) & mask_;
      slots_[i] = n + 1;
    }
  }

  std::vector<uint32_t> slots_;  // index of the entry + 1; 0 = free
  std::vector<Entry> entries_;
  std::string arena_;
  size_t mask_ = 0;
};

}  // namespace penstock
