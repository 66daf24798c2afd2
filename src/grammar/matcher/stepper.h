// Advances a set of items by one byte: the semantics of a Program.
#pragma once
#include <span>
#include <utility>
#include <vector>

#include "grammar/matcher/item_merge.h"
#include "grammar/matcher/item_set.h"
#include "grammar/matcher/object_rules.h"
#include "grammar/matcher/stack.h"

namespace penstock::grammar {

// A configuration: items [begin, end) of a list, and whether the text may end.
struct Config {
  uint32_t begin = 0, end = 0;
  bool complete = false;
  bool dead() const { return begin == end && !complete; }
};

// Whether the item waits in white space, of which Item::state is the state.
bool waits_in_space(const Item& item);

// Adds the first bytes that an item may accept: a superset.
void add_first_bytes(const Program& program, const Stack& stack, const Item& item,
                     std::bitset<256>& bytes);

// Every item of a step is added once and every node ends once: a step's work is bounded by the
// number of items and callers, however many ways lead to them.
//
// Appends to the stack and to the items; the owner truncates both. Once the stack's work has run
// out, all results are dead.
class Stepper {
 public:
  Stepper(const Program& program, Stack& stack, std::vector<Item>& items)
      : program_(program), stack_(stack), items_(items), merge_(program, stack, items) {}

  // Returns the configuration before the first byte. REQUIRES: stack and items are empty.
  Config start();
  // Returns the configuration after one more byte. REQUIRES: the stack's text ends with that byte.
  Config step(const Config& from, uint8_t byte);
  // Returns the configuration after a special token.
  Config step_token(const Config& from, TokenId token);
  // Returns the configuration after the lexeme of a scanning item ends here with this tag, without
  // a byte of text. If the lexeme's text must not be repeated, only the part read so far is
  // recorded.
  Config ended(const Item& item, uint32_t tag);
  // As ended() above, for several items of kScan and kLeaf at once; `beside`: other items at the
  // same position.
  Config ended(std::span<const Item> scans, std::span<const Item> beside);
  // Returns the union of two configurations.
  Config joined(const Config& a, const Config& b);
  // Returns, and resets, whether a step since the last call looked at lists of used texts.
  bool looked_at_used() { return std::exchange(looked_at_used_, false); }

 private:
  void begin();
  Config result();
  bool may_go_on() { return stack_.work().spend(1); }
  void add(const Item& item) {
    if (seen_.insert(item).second) items_.push_back(item);
  }
  void end_node(uint32_t node);
  // Returns the node of a call; all callers of the same call share it.
  uint32_t node_for(uint32_t key, uint32_t position, const Item& resume, bool& is_new);
  uint32_t frame_for(const Frame& frame);
  uint32_t frame_like(uint32_t old, const Frame& frame) {
    return stack_.frame(old) == frame ? old : frame_for(frame);
  }

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
  // The state of white space behind a comma or a colon, and elsewhere; kNone: none may stand there.
  uint32_t space_start() const { return program_.space->start(); }
  uint32_t gap_start() const { return program_.space_behind_marks ? kNone : space_start(); }
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
  Stack& stack_;
  std::vector<Item>& items_;
  StepSet<Item> seen_;
  StepSet<CalledNode> called_;
  StepSet<NumberedFrame> frames_;
  ItemMerge merge_;
  // Items to be expanded immediately, each with the node whose end it follows.
  std::vector<std::pair<Item, uint32_t>> todo_;
  uint32_t first_item_ = 0, first_node_ = 0;
  // position in the text of the items that are being added
  uint32_t position_ = 0;
  bool complete_ = false, looked_at_used_ = false;
};

}  // namespace penstock::grammar
