// What schemas say about values of one type, as formulas over constraints.
//
// Negations are pushed into the constraints, so that formulas are monotone: conjunctions and
// disjunctions of atoms. Equal formulas have equal ids.
#pragma once
#include <deque>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "grammar/parts/budget.h"
#include "grammar/parts/intern_table.h"
#include "grammar/schema/schema.h"

namespace penstock::grammar {

enum class FormulaId : uint32_t {};

// Values by what they are: equal ones (1 and 1.0, members in any order) are one.
struct ValueHash {
  size_t operator()(const JsonValue* value) const;
};
struct SameValue {
  bool operator()(const JsonValue* a, const JsonValue* b) const { return *a == *b; }
};
template <class T>
using ValueMap = std::unordered_map<const JsonValue*, T, ValueHash, SameValue>;
using ValueSet = std::unordered_set<const JsonValue*, ValueHash, SameValue>;

// Keys of an object.
struct KeySet {
  enum class Kind : uint8_t { kLiteral, kMatching, kOthers };
  Kind kind = Kind::kLiteral;
  bool is_literal() const { return kind == Kind::kLiteral; }
  std::string literal;                  // kLiteral
  ExprId pattern = ExprPool::kNothing;  // kMatching
  std::vector<std::string> not_keys;    // kOthers: all but these
  std::vector<ExprId> not_matching;     // ... and those that match one of these
  bool operator==(const KeySet&) const = default;
};

struct Atom {
  enum class Kind : uint8_t {
    kNumber,       // in numbers[index]
    kText,         // in texts[index]
    kValues,       // one of values[index]
    kItem,         // the item at index, if there is one, is a `schema`
    kRest,         // so are all from index on
    kContains,     // of those from index on, a number within the window are
    kItemCount,    // the number of items is within the window
    kUnique,       // no two items are alike
    kMembers,      // the members with a key in keys[index] are a `schema`
    kExists,       // there is a member with a key in keys[index] that is a `schema`
    kMemberCount,  // the number of members is within the window
    // always true: the properties of schema `index` are in force, for their order and for which
    // members closed objects have
    kProperties,
  };
  Kind kind;
  uint32_t index = 0;
  SignedSchema schema{};
  CountWindow window{};
  bool operator==(const Atom&) const = default;
};

struct TextConstraint {
  ExprId expr = ExprPool::kEverything;
  CountWindow length;
  bool narrowed = false;  // the complement is not known
};

struct NumberConstraint {
  NumberPiece piece;
  bool narrowed = false;
};

class FormulaPool {
 public:
  enum class Kind : uint8_t { kFalse, kTrue, kAtom, kAnd, kOr };
  static constexpr FormulaId kFalse{0}, kTrue{1};

  // A pool whose budget is exhausted gives formulas without a meaning.
  explicit FormulaPool(Budget& budget);
  FormulaId atom(const Atom& atom);
  FormulaId number(NumberPiece piece, bool narrowed = false);
  FormulaId text(const TextConstraint& text);
  FormulaId values(std::vector<const JsonValue*> list);  // kFalse when it is empty
  FormulaId members(const KeySet& keys, SignedSchema schema) {
    return atom({Atom::Kind::kMembers, key_set(keys), schema});
  }
  FormulaId exists(const KeySet& keys, SignedSchema schema) {
    return atom({Atom::Kind::kExists, key_set(keys), schema});
  }
  FormulaId all_of(std::vector<FormulaId> parts) { return nary(Kind::kAnd, std::move(parts)); }
  FormulaId any_of(std::vector<FormulaId> parts);

  Kind kind(FormulaId id) const { return nodes_[raw(id)].kind; }
  std::span<const FormulaId> parts(FormulaId id) const;  // of kAnd and kOr
  uint32_t atom_index(FormulaId id) const { return nodes_[raw(id)].begin; }
  const Atom& atom(FormulaId id) const { return atoms_[atom_index(id)]; }
  const Atom& atom_at(uint32_t index) const { return atoms_[index]; }

  const KeySet& keys(uint32_t i) const { return keys_[i]; }  // stays where it is
  // Whether the key is one of not_keys of keys(i).
  bool excludes(uint32_t i, std::string_view key) const { return excluded_[i].contains(key); }
  const TextConstraint& text_at(uint32_t i) const { return texts_[i]; }
  const NumberConstraint& number_at(uint32_t i) const { return numbers_[i]; }
  const std::vector<const JsonValue*>& values_at(uint32_t i) const { return values_[i]; }
  // Whether a value equal to it is one of those.
  bool lists(uint32_t i, const JsonValue& value) const { return value_sets_[i].contains(&value); }
  size_t size() const { return nodes_.size(); }

 private:
  struct Node {
    Kind kind;
    uint32_t begin = 0, size = 0;  // of lists_; kAtom: index of the atom
  };
  static uint32_t raw(FormulaId id) { return static_cast<uint32_t>(id); }
  FormulaId intern(Kind kind, std::span<const FormulaId> list, uint32_t atom = 0);
  FormulaId nary(Kind kind, std::vector<FormulaId> parts);
  uint32_t key_set(const KeySet& keys);

  Budget& budget_;
  std::vector<Node> nodes_;
  std::vector<FormulaId> lists_;
  std::vector<Atom> atoms_;
  std::deque<KeySet> keys_;
  std::vector<std::unordered_set<std::string_view>> excluded_;  // of each of keys_
  std::vector<TextConstraint> texts_;
  std::vector<NumberConstraint> numbers_;
  std::vector<std::vector<const JsonValue*>> values_;
  std::vector<ValueSet> value_sets_;  // of each of values_
  InternTable node_index_, atom_index_, key_index_, number_index_, text_index_;
};

}  // namespace penstock::grammar
