// JSON values as graphs, before it is known which of them can be completed.
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
  std::vector<State> states;  // the first is the start
  CountWindow items;
  bool unique = false;  // the goals have one spelling for each value
};

struct ObjectDraft {
  struct State {
    uint32_t slot = kNone, skipped = kNone;  // as in ObjectGraph::State
    std::vector<ValueEdge> values;           // of the slot
    // behind the slots: of each label of other keys
    std::vector<std::vector<ValueEdge>> labels;
    bool accepts = false;  // behind the slots
    // with any_order: accepts, but for members that no name tells
    bool ends = false;
    // with any_order, instead of slot, skipped and values: of each slot
    std::vector<std::vector<ValueEdge>> any;
    // behind the slots, and with any_order: bit per existence
    uint32_t satisfied = 0;
    // with any_order and a bound on `members`: slots on whose presence something depends
    std::vector<uint32_t> undecided;
  };
  // the first is the start; what leaving out leads to stands behind
  std::vector<State> states;
  std::vector<std::string> slots;
  // Keys of the slots as they are written behind their opening quotation marks.
  std::vector<std::string> slot_texts() const {
    std::vector<std::string> texts;
    for (const std::string& key : slots) texts.push_back(canonical_json(key) + '"');
    return texts;
  }
  CountWindow members;
  std::vector<ExprId> patterns;  // which tell other keys apart
  // of each label, which of the patterns its keys match
  std::vector<std::vector<bool>> labels;
  bool any_order = false;
  std::vector<bool> required;  // with any_order: of each slot
  // members that must be there and that no name tells
  uint32_t n_existences = 0;
};

struct GoalDraft {
  std::vector<uint32_t> strings, scalars;  // leaves
  std::vector<uint32_t> objects, arrays;   // drafts
};

struct Drafts {
  std::vector<GoalDraft> goals;
  std::vector<ObjectDraft> objects;
  std::vector<ArrayDraft> arrays;
};

// Puts what can be completed into the program, and returns the number of goal 0 there; kNone where
// that cannot be completed. Errors: kTooLarge.
Compiled<uint32_t> finish_goals(const Drafts& drafts, ExprPool& exprs, Budget& budget,
                                Program& program);

}  // namespace penstock::grammar
