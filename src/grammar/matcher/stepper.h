// Advances a set of items by one byte: the whole meaning of a Program.
#pragma once
#include <span>
#include <utility>
#include <vector>

#include "grammar/matcher/item_merge.h"
#include "grammar/matcher/item_set.h"
#include "grammar/matcher/object_rules.h"
#include "grammar/matcher/stack.h"

namespace penstock::grammar {

// Items [begin, end) of a list, and whether the text may end.
struct Config {
  uint32_t begin = 0, end = 0;
  bool complete = false;
  bool dead() const { return begin == end && !complete; }
};

// Adds the bytes an item may take. May be more than it takes, never less.
void add_first_bytes(const Program& program, const Stack& stack, const Item& item, std::bitset<256>& bytes);

// What one step has come to so far. Every item is taken once, every node ends once: a step's work is bounded by the items
// and callers that there are, however many ways lead to them.
class StepAgenda {
 protected:
  StepAgenda(const Program& program, Stack& stack, std::vector<Item>& items)
      : stack_(stack), items_(items), merge_(program, stack, items) {}
  void begin();
  Config result();
  // What stands at both.
  Config joined(const Config& a, const Config& b);
  bool may_go_on() { return stack_.work().spend(1); }
  void add(const Item& item) {
    if (seen_.insert(item).second) items_.push_back(item);
  }
  void end_node(uint32_t node);
  // The node of a call; callers of one call share it.
  uint32_t node_for(uint32_t key, uint32_t position, const Item& resume, bool& is_new);
  uint32_t frame_for(const Frame& frame);
  uint32_t frame_like(uint32_t old, const Frame& frame) {
    return stack_.frame(old) == frame ? old : frame_for(frame);
  }

  Stack& stack_;
  std::vector<Item>& items_;
  StepSet<Item> seen_;
  StepSet<CalledNode> called_;
  StepSet<NumberedFrame> frames_;
  ItemMerge merge_;
  // Items that follow at once, and the node whose end they follow.
  std::vector<std::pair<Item, uint32_t>> todo_;
  uint32_t first_item_ = 0, first_node_ = 0;
  uint32_t position_ = 0;  // of what is being added
  bool complete_ = false, looked_at_used_ = false;
};

// Appends to the stack and to the items; both are cut back by their owner. Where the stack's work has run out, nothing
// follows.
class Stepper : private StepAgenda {
 public:
  Stepper(const Program& program, Stack& stack, std::vector<Item>& items)
      : StepAgenda(program, stack, items), program_(program) {}

  // Before the first byte. REQUIRES: stack and items are empty.
  Config start();
  // Behind one more byte, which the stack's text then ends with.
  Config step(const Config& from, uint8_t byte);
  // Behind a special token instead of a byte.
  Config step_token(const Config& from, TokenId token);
  // What follows at once when the lexeme of a scanning item ends here with this tag; the text stays. Where the lexeme's
  // text must not come again, only its part so far is remembered.
  Config ended(const Item& item, uint32_t tag);
  // Likewise of several items of kScan and kLeaf at once, and `beside` them what else stands there.
  Config ended(std::span<const Item> scans, std::span<const Item> beside);
  using StepAgenda::joined;
  // Whether a step since the last call looked at texts that must not come again.
  bool looked_at_used() { return std::exchange(looked_at_used_, false); }

 private:
  Config finish();
  void settle();
  void end_lexeme(const Item& item);
  void play(const Item& item);
  void repeat(const Item& item);
  void resume(const Item& item, uint32_t ended_node);
  void call(uint32_t symbol, const Item& resume);
  void call_goal(uint32_t goal, const Item& resume);

  void advance(const Item& item, uint8_t byte);
  void scan(Item item, const Leaf& leaf, uint8_t byte);
  void value(const Item& item, uint8_t byte);
  void begin_value(uint32_t goal, uint32_t node, uint8_t byte);
  void begin_leaf(uint32_t leaf, uint32_t node);
  void leaf(Item item, uint8_t byte);

  bool space(const Item& item, uint8_t byte);
  bool after_space(const Item& item) const;
  uint32_t space_start() const { return program_.space->start(); }
  void object_next(const Item& item, uint8_t byte);
  void begin_key(const Item& item);
  void slot_key(Item item, uint8_t byte);
  void other_key(Item item, uint8_t byte);
  void end_counted_key(const Item& item, uint32_t values);
  void colon(const Item& item, uint8_t byte);
  void array_open(const Item& item, uint8_t byte);
  void array_next(const Item& item, uint8_t byte);
  void begin_items(const Item& item);
  void unique_item(const Item& item, uint8_t byte);
  void unique_leaf(Item item, uint8_t byte);
  void end_unique(const Item& item);

  ObjectRules object_rules(const Item& item) const {
    return {program_.objects[item.index()], stack_.frame(item.data), stack_};
  }
  ArrayRules array_rules(const Item& item) const {
    return {program_.arrays[item.index()], stack_.frame(item.data), stack_, program_};
  }

  const Program& program_;
};

}  // namespace penstock::grammar
