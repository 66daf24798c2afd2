// What a grammar is compiled to: the tables the matcher runs. Immutable, shared by all threads.
//
// A symbol stands for a set of texts: a JSON value (Goal), a rule written as instructions, or a counted repetition.
// Objects and arrays are graphs whose edges are values, so that order, presence and counts need no unrolled rules.
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

// A lexeme with a bound on the number of its characters.
struct Leaf {
  std::shared_ptr<const Lexeme> lexeme;
  CountWindow window;
};

struct IndexRange {
  uint32_t begin = 0, end = 0;
  bool empty() const { return begin == end; }
  uint32_t size() const { return end - begin; }
};

// A value that may follow, and the state of the graph behind it.
struct ValueEdge {
  uint32_t goal;
  uint32_t target;
};

// An object behind its opening brace: first the slots, keys in the order they must have; behind them the other keys, in
// any order. Or, with any_order, slots and other keys as they come.
struct ObjectGraph {
  struct State {
    uint32_t slot = kNone;       // the key that may come next; kNone: the part behind the slots
    uint32_t skipped = kNone;    // the state when that key is left out; kNone: it must not be
    uint32_t values = kNone;     // the list of edges of the slot's value; kNone: the key must not come
    IndexRange labels;           // behind the slots: the lists of edges, one for each label of other keys
    uint32_t last_slot = kNone;  // the last slot that leaving out leads to
    uint32_t rest = kNone;       // the state behind the slots that leaving out leads to
    uint32_t most_slots = 0;     // how many keys of slots can still come
    bool accepts = false;        // the object may end here, or after leaving out what follows
    IndexRange
        slot_lists;  // with any_order, instead of slot, skipped and values: the list of edges of each slot
    // With any_order and a bound on the number of members: the slots on whose presence nothing depends here, and in
    // `finishes` the numbers of members with which the others can come to an end, ascending.
    uint32_t n_free = 0;
    IndexRange finishes;
  };
  std::vector<State> states;
  std::vector<ValueEdge> edges;
  std::vector<IndexRange> edge_lists;
  uint32_t start = 0;
  CountWindow members;
  CompletionLengths lengths;  // in members; only where `members` is not trivial
  // Keys of slots in canonical spelling with the closing quotation mark, tagged 1 + slot. Null: there are no slots.
  std::shared_ptr<const Lexeme> slot_keys;
  // Other keys behind the opening quotation mark, one spelling for each, tagged 1 + label. Null: there are none.
  std::shared_ptr<const Lexeme> other_keys;
  // Those of other_keys that are taken by slots or forbidden, spelled likewise. Null: there are none.
  std::shared_ptr<const Lexeme> reserved_keys;
  uint32_t n_reserved = 0;
  bool many_keys = false;  // other_keys has more than kManyWords, which no text exhausts

  bool any_order = false;               // then frames count the required slots that have come
  std::vector<std::string> slot_texts;  // as in slot_keys
  std::vector<bool> required;           // with any_order: of each slot
  uint32_t n_required = 0;
  std::vector<uint32_t> finishes;
};

// A kind of item of an array of unique items.
struct UniqueLeaf {
  uint32_t array, leaf, target;
  bool quoted;  // the leaf begins behind a quotation mark
};

// An array behind its opening bracket.
struct ArrayGraph {
  struct State {
    IndexRange edges;
    IndexRange unique_leaves;  // of unique arrays instead of the edges, which are only counted then
    bool accepts = false;
  };
  std::vector<State> states;
  std::vector<ValueEdge> edges;
  uint32_t start = 0;
  CountWindow items;
  CompletionLengths lengths;  // only where `items` is not trivial
  bool unique = false;        // no two items alike; their goals are scalars in canonical spelling
};

// A set of JSON values.
struct Goal {
  std::vector<uint32_t> strings;  // leaves, behind the opening quotation mark
  std::vector<uint32_t> scalars;  // leaves of numbers, true, false and null, from their first byte
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
  uint32_t min = 0, max = kNone;  // kNone: any number
};

struct Symbol {
  enum class Kind : uint8_t { kGoal, kRule, kRepetition };
  Kind kind = Kind::kRule;
  uint32_t index = 0;  // of the goal, the first instruction, the repetition
};

struct Program {
  std::vector<Leaf> leaves;
  std::vector<Goal> goals;
  std::vector<ObjectGraph> objects;
  std::vector<ArrayGraph> arrays;
  std::vector<UniqueLeaf> unique_leaves;
  std::vector<Symbol> symbols;
  std::vector<Instruction> code;
  std::vector<bool>
      may_return;  // of instructions: whether a return can follow without any text, see find_returns()
  std::vector<uint32_t> targets;
  std::vector<Repetition> repetitions;
  std::shared_ptr<const Lexeme> space;  // what may stand between the tokens of JSON
  uint32_t root = 0;                    // a symbol
};

// Fills in may_return. REQUIRES: all else of the rules is there.
void find_returns(Program& program);

// Bytes, about.
size_t memory_of(const Program& program);

// Its kinds of values, lexemes and rules with their sizes, a line for each.
std::string summary_of(const Program& program);

}  // namespace penstock::grammar
