// Hashes the state that the continuations of a text depend on: equal hashes allow the same tokens.
#pragma once
#include "grammar/matcher/mask_cache.h"
#include "grammar/matcher/stack.h"
#include "grammar/matcher/stepper.h"

namespace penstock::grammar {

// Caches the hashes of the stack's nodes. The owner calls cut() whenever it cuts the stack.
class StateHasher {
 public:
  StateHasher(const Program& program, const Stack& stack) : program_(program), stack_(stack) {}
  // REQUIRES: the config's step is finished.
  StateHash of(std::span<const Item> items, bool complete);
  void reserve(size_t n_nodes) { nodes_.reserve(n_nodes); }
  void cut(uint32_t n_nodes) {
    if (nodes_.size() > n_nodes) nodes_.resize(n_nodes);
  }

 private:
  void hash_nodes();
  StateHash of_item(const Item& item, uint32_t group) const;
  StateHash of_node(uint32_t node, uint32_t group) const;
  uint64_t of_frame(const Item& item) const;
  uint64_t of_used(uint32_t list) const { return list == kNone ? 0 : stack_.used(list).hash; }
  uint64_t of_count(const Item& item) const;

  const Program& program_;
  const Stack& stack_;
  std::vector<StateHash> nodes_;  // hashes of the first nodes of the stack
};

}  // namespace penstock::grammar
