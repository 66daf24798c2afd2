// The compiled form of a grammar: the tables that the matcher runs. Immutable, shared by all
// threads.
//
// A symbol stands for a set of texts: a JSON value (Goal), a rule written as instructions, or a
// counted repetition. Objects and arrays are graphs whose edges are values, so that order, presence
// and counts need no unrolled rules.
#pragma once
#include <bitset>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "grammar/lexer/lexeme.h"
#include "penstock/types.h"

namespace penstock::grammar {

inline constexpr uint32_t kNone = UINT32_MAX;

// A lexeme with bounds on the number of its characters.
struct Leaf {
  std::shared_ptr<const Lexeme> lexeme;
  CountWindow window;
};

struct IndexRange {
  uint32_t begin = 0, end = 0;
  bool empty() const { return begin == end; }
  uint32_t size() const { return end - begin; }
};

// An edge of an object or array graph: the goal of the value and the state after it.
struct ValueEdge {
  uint32_t goal;
  uint32_t target;
};

// The members of an object after its opening brace: first the slots, which are known keys in a
// fixed order; after them other keys in any order. With any_order: slots and other keys in any
// order.
struct ObjectGraph {
  struct State {
    // slot whose key may come next; kNone: the state is after the slots
    uint32_t slot = kNone;
    // state if that key is omitted; kNone: the key is required
    uint32_t skipped = kNone;
    // list of edges of the slot's value; kNone: the key is forbidden
    uint32_t values = kNone;
    // after the slots: lists of edges, one for each label of other keys
    IndexRange labels;
    uint32_t last_slot = kNone;  // last slot that omitting keys leads to
    // state after the slots that omitting keys leads to
    uint32_t rest = kNone;
    // maximum number of slot keys that can still come
    uint32_t most_slots = 0;
    // the object may end here, or after omitting the following keys
    bool accepts = false;
    // With any_order, instead of slot, skipped and values: list of edges of each slot.
    IndexRange slot_lists;
    // With any_order and bounds on the number of members. n_free: number of slots whose presence
    // does not matter here; finishes: range in ObjectGraph::finishes of the numbers of members with
    // which the others can end, ascending.
    uint32_t n_free = 0;
    IndexRange finishes;
    // other keys that must still come; kNone: they cannot
    uint32_t n_others = 0;
    // bit for each required member without a fixed name (Atom::Kind::kExists) that is missing
    uint32_t needs = 0;
  };
  std::vector<State> states;
  std::vector<ValueEdge> edges;
  std::vector<IndexRange> edge_lists;
  uint32_t start = 0;
  CountWindow members;
  // lengths in members; only if `members` is not trivial
  CompletionLengths lengths;
  // Slot keys in canonical spelling with the closing quotation mark, tagged 1 + slot; null: there
  // are no slots.
  std::shared_ptr<const Lexeme> slot_keys;
  // Other keys after the opening quotation mark, in canonical spelling, tagged 1 + label; null:
  // there are none.
  std::shared_ptr<const Lexeme> other_keys;
  // Keys of other_keys that are slots or forbidden, in the same spelling; null: there are none.
  std::shared_ptr<const Lexeme> reserved_keys;
  uint32_t n_reserved = 0;
  // other_keys has more than kManyWords keys, which no text exhausts
  bool many_keys = false;
  // Number of keys of each label, keys of slots excluded; kNone: more than kManyWords. Empty: there
  // is always an unused key for a required member without a fixed name.
  std::vector<uint32_t> label_keys;

  // slots come in any order; frames count the required slots that have come
  bool any_order = false;
  std::vector<std::string> slot_texts;  // keys of the slots, spelled as in slot_keys
  // with any_order: whether each slot is required
  std::vector<bool> required;
  uint32_t n_required = 0;
  std::vector<uint32_t> finishes;
};

// A type of item in an array of unique items.
struct UniqueLeaf {
  uint32_t array, leaf, target;
  bool quoted;  // the leaf begins after a quotation mark
};

// The items of an array after its opening bracket.
struct ArrayGraph {
  struct State {
    IndexRange edges;
    // unique arrays: used instead of the edges, which then serve only for counting
    IndexRange unique_leaves;
    bool accepts = false;
  };
  std::vector<State> states;
  std::vector<ValueEdge> edges;
  uint32_t start = 0;
  CountWindow items;
  // lengths in items; only if `items` is not trivial
  CompletionLengths lengths;
  // no two items are equal; the goals of items are scalars in canonical spelling
  bool unique = false;
};

// A set of JSON values.
struct Goal {
  // leaves of strings, after the opening quotation mark
  std::vector<uint32_t> strings;
  // leaves of numbers, true, false and null, from their first byte
  std::vector<uint32_t> scalars;
  std::vector<uint32_t> objects, arrays;
  std::bitset<256> first_bytes;
};

struct Instruction {
  enum class Op : uint8_t {
    kMatch,  // leaf a, then b
    kCall,   // symbol a, then b
    kSplit,  // all of targets[a, b)
    kToken,  // token a, then b
    kReturn,
  };
  Op op = Op::kReturn;
  uint32_t a = 0, b = 0;
};

struct Repetition {
  uint32_t body = 0;              // a symbol
  uint32_t min = 0, max = kNone;  // kNone: no upper bound
};

struct Symbol {
  enum class Kind : uint8_t { kGoal, kRule, kRepetition };
  Kind kind = Kind::kRule;
  // index of the goal, of the first instruction or of the repetition
  uint32_t index = 0;
};

struct Program {
  std::vector<Leaf> leaves;
  std::vector<Goal> goals;
  std::vector<ObjectGraph> objects;
  std::vector<ArrayGraph> arrays;
  std::vector<UniqueLeaf> unique_leaves;
  std::vector<Symbol> symbols;
  std::vector<Instruction> code;
  // By instruction: whether it can reach a return without consuming text, see find_returns().
  std::vector<bool> may_return;
  std::vector<uint32_t> targets;
  std::vector<Repetition> repetitions;
  std::shared_ptr<const Lexeme> space;  // white space between the tokens of JSON
  // white space stands only behind commas and colons
  bool space_behind_marks = false;
  uint32_t root = 0;  // a symbol
};

// Computes Program::may_return. REQUIRES: symbols, code, targets and repetitions are complete.
void find_returns(Program& program);

// Returns the approximate memory in bytes.
size_t memory_of(const Program& program);

// Returns a summary: goals, lexemes and rules with their sizes, one per line.
std::string summary_of(const Program& program);

}  // namespace penstock::grammar
