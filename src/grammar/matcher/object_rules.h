// The rules for the next member of an object, or the next item of an array, that keep it
// completable.
#pragma once
#include <vector>

#include "grammar/matcher/stack.h"

namespace penstock::grammar {

// A view of the state of one object.
class ObjectRules {
 public:
  ObjectRules(const ObjectGraph& graph, const Frame& frame, const Stack& stack)
      : graph_(graph), frame_(frame), stack_(stack) {}

  bool may_close() const;
  bool may_continue() const { return any_slot() || any_other(); }
  bool any_slot() const;
  bool any_other() const;
  // Returns the list of edges of a slot's value; kNone: its key is not allowed now.
  uint32_t slot_values(uint32_t slot) const;
  // Returns the list of edges after another key with this label; kNone: the key is not allowed now.
  uint32_t other_values(uint32_t label) const;
  // Whether a slot key that is allowed now can be completed from `state` of the automaton of
  // slot_keys.
  bool slot_key_alive(uint32_t state) const;
  // Whether `so_far`, the part of another key that was read, can become an unused key that is
  // allowed now.
  bool other_key_alive(uint32_t state, std::string_view so_far) const;
  bool other_key_accepts(uint32_t state, std::string_view key) const;
  // Whether a member whose value is this edge of `list` fits within the bounds.
  bool fits(uint32_t list, const ValueEdge& edge) const;
  // Returns the frame after the member whose value is one of the edges of `list`.
  Frame after(uint32_t list, uint32_t target, uint32_t used) const;

 private:
  bool any_fits(uint32_t list, bool as_slot) const;
  bool leaves_scarce_keys(uint32_t list, uint32_t target) const;
  bool finds_keys(uint32_t state, std::vector<uint32_t>& n_left) const;
  uint32_t label_of(std::string_view key) const;
  uint32_t n_others_used(std::string_view prefix) const;
  bool enough_others(uint64_t need, uint32_t n_used) const;
  // With any_order: the numbers of members so far (all, slots, required slots).
  struct Came {
    uint32_t all, slots, required;
  };
  Came came() const;
  bool finishes(uint32_t state, const Came& came) const;
  bool enough_keys(uint32_t state, uint64_t need, uint32_t n_used) const;
  const ObjectGraph& graph_;
  const Frame& frame_;
  const Stack& stack_;
};

class ArrayRules {
 public:
  ArrayRules(const ArrayGraph& graph, const Frame& frame, const Stack& stack,
             const Program& program)
      : graph_(graph), frame_(frame), stack_(stack), program_(program) {}

  bool may_close() const;
  bool may_continue() const;
  bool fits(const ValueEdge& edge) const;
  Frame after(uint32_t target, uint32_t used) const;
  // Whether the part `so_far` of an item of a unique array can still become an allowed item
  // (item_alive), or is one (item_accepts).
  bool item_alive(const Leaf& leaf, uint32_t state, uint64_t count, std::string_view so_far) const;
  bool item_accepts(const Leaf& leaf, uint32_t state, uint64_t count, std::string_view item) const;

 private:
  bool enough_items(uint32_t goal, uint64_t need) const;
  const ArrayGraph& graph_;
  const Frame& frame_;
  const Stack& stack_;
  const Program& program_;
};

}  // namespace penstock::grammar
