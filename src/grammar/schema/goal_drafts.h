// Drafts of goals: the graphs of JSON values while it is unknown which of them can be completed.
#pragma once
#include <string>
#include <vector>

#include "grammar/lexer/spelling.h"
#include "grammar/program/program.h"
#include "grammar/regex/expr.h"

namespace penstock::grammar {

struct ArrayDraft {
  struct State {
    std::vector<ValueEdge> edges;
    bool accepts = false;
  };
  std::vector<State> states;  // the first one is the start
  CountWindow items;
  // no two items are equal; the items' goals have one spelling for each value
  bool unique = false;
};

struct ObjectDraft {
  struct State {
    uint32_t slot = kNone, skipped = kNone;  // as in ObjectGraph::State
    std::vector<ValueEdge> values;           // edges of the slot's value
    // after the slots: edges by label of the other keys
    std::vector<std::vector<ValueEdge>> labels;
    bool accepts = false;  // after the slots: the object may end here
    // with any_order: the object may end here if all existences are satisfied
    bool ends = false;
    // with any_order, instead of slot, skipped and values: edges by slot
    std::vector<std::vector<ValueEdge>> any;
    // after the slots, and with any_order: bit i is set if existence i is satisfied
    uint32_t satisfied = 0;
    // with any_order and bounds on `members`: slots whose presence still matters
    std::vector<uint32_t> undecided;
  };
  // the first one is the start; State::skipped is always a later state
  std::vector<State> states;
  std::vector<std::string> slots;
  // Returns the slots' keys as they are spelled after the opening quotation mark, including the
  // closing one.
  std::vector<std::string> slot_texts() const {
    std::vector<std::string> texts;
    for (const std::string& key : slots) texts.push_back(canonical_json(key) + '"');
    return texts;
  }
  CountWindow members;
  std::vector<ExprId> patterns;  // patterns that classify other keys into labels
  // by label: which patterns its keys match
  std::vector<std::vector<bool>> labels;
  bool any_order = false;
  std::vector<bool> required;  // with any_order: whether each slot is required
  // number of existences: required members without a fixed name
  uint32_t n_existences = 0;
  // Returns a bit for each of them that the state lacks.
  uint32_t needs(uint32_t state) const {
    return ((1U << n_existences) - 1) & ~states[state].satisfied;
  }
};

struct GoalDraft {
  std::vector<uint32_t> strings, scalars;  // indices of leaves
  std::vector<uint32_t> objects, arrays;   // indices of drafts
};

struct Drafts {
  std::vector<GoalDraft> goals;
  std::vector<ObjectDraft> objects;
  std::vector<ArrayDraft> arrays;
};

// Adds the goals that can be completed to the program. Returns the index of goal 0 in the program;
// kNone: it cannot be completed. Errors: kTooLarge.
Compiled<uint32_t> finish_goals(const Drafts& drafts, ExprPool& exprs, Budget& budget,
                                Program& program);

}  // namespace penstock::grammar
