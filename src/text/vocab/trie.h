// A trie that maps byte strings to values.
#pragma once
#include <array>
#include <cstdint>
#include <string_view>
#include <vector>

#include "text/vocab/flat_map.h"

namespace penstock {

class Trie {
 public:
  Trie() : values_(1, -1) { root_.fill(0); }

  // Inserts text, or replaces its value. Empty strings are ignored. REQUIRES: value >= 0.
  void insert(std::string_view text, int32_t value) {
    if (text.empty()) return;
    uint32_t node = 0;
    for (const char c : text) node = child_or_new(node, static_cast<unsigned char>(c));
    values_[node] = value;
  }
  bool empty() const { return values_.size() == 1; }

  // Calls f(length, value) for every string of the trie that is a prefix of text, shortest first.
  template <class F>
  void prefixes(std::string_view text, F&& f) const {
    uint32_t node = 0;
    for (size_t i = 0; i < text.size(); ++i) {
      node = child(node, static_cast<unsigned char>(text[i]));
      if (node == 0) return;
      if (values_[node] >= 0) f(i + 1, values_[node]);
    }
  }
  // The longest string of the trie that is a prefix of text; length 0 = none.
  struct Found {
    size_t length = 0;
    int32_t value = -1;
  };
  Found longest(std::string_view text) const {
    Found found;
    prefixes(text, [&](size_t length, int32_t value) { found = {length, value}; });
    return found;
  }
  bool may_start(char first) const { return root_[static_cast<unsigned char>(first)] != 0; }

 private:
  uint32_t child(uint32_t node, unsigned char byte) const {
    if (node == 0) return root_[byte];
    const uint32_t* found = edges_.find(static_cast<uint64_t>(node) << 8 | byte);
    return found == nullptr ? 0 : *found;
  }
  uint32_t child_or_new(uint32_t node, unsigned char byte) {
    uint32_t found = child(node, byte);
    if (found != 0) return found;
    found = static_cast<uint32_t>(values_.size());
    values_.push_back(-1);
    if (node == 0) {
      root_[byte] = found;
    } else {
      edges_.insert(static_cast<uint64_t>(node) << 8 | byte, found);
    }
    return found;
  }

  // value of each node; -1 = no string ends there
  std::vector<int32_t> values_;
  std::array<uint32_t, 256> root_;
  FlatMap<uint32_t> edges_;  // node << 8 | byte -> node
};

}  // namespace penstock
