// The constraints of schemas on values of one type, as formulas over atoms.
//
// Negations are pushed into the atoms, so that formulas are monotone: conjunctions and disjunctions
// of atoms. Equal formulas have equal ids.
#pragma once
#include <deque>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "base/text_hash.h"
#include "grammar/parts/budget.h"
#include "grammar/parts/intern_table.h"
#include "grammar/schema/schema.h"

namespace penstock::grammar {

enum class FormulaId : uint32_t {};

// Hash and equality of JSON values: 1 equals 1.0, and members may come in any order.
struct ValueHash {
  size_t operator()(const JsonValue* value) const;
};
struct SameValue {
  bool operator()(const JsonValue* a, const JsonValue* b) const { return *a == *b; }
};
template <class T>
using ValueMap = std::unordered_map<const JsonValue*, T, ValueHash, SameValue>;
using ValueSet = std::unordered_set<const JsonValue*, ValueHash, SameValue>;

// A set of object keys.
struct KeySet {
  enum class Kind : uint8_t { kLiteral, kMatching, kOthers };
  Kind kind = Kind::kLiteral;
  bool is_literal() const { return kind == Kind::kLiteral; }
  std::string literal;                  // kLiteral
  ExprId pattern = ExprPool::kNothing;  // kMatching
  std::vector<std::string> not_keys;    // kOthers: all keys except these
  // kOthers: and except keys that match one of these
  std::vector<ExprId> not_matching;
  bool operator==(const KeySet&) const = default;
};

struct Atom {
  enum class Kind : uint8_t {
    kNumber,  // the number is in numbers[index]
    kText,    // the string is in texts[index]
    kValues,  // the value is one of values[index]
    // the item at `index`, if there is one, satisfies `schema`
    kItem,
    kRest,  // every item from `index` on satisfies `schema`
    // the number of items from `index` on that satisfy `schema` is within the window
    kContains,
    kItemCount,  // the number of items is within the window
    kUnique,     // no two items are alike
    // every member with a key in keys[index] satisfies `schema`
    kMembers,
    // some member with a key in keys[index] satisfies `schema`
    kExists,
    kMemberCount,  // the number of members is within the window
    // Always true. Records that the `properties` of schema `index` apply, which determines the
    // order of members and which members closed objects have.
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
  // the constraint is stricter than the schema, so that it cannot be negated
  bool narrowed = false;
};

struct NumberConstraint {
  NumberPiece piece;
  bool narrowed = false;
};

class FormulaPool {
 public:
  enum class Kind : uint8_t { kFalse, kTrue, kAtom, kAnd, kOr };
  static constexpr FormulaId kFalse{0}, kTrue{1};

  // When the budget is exhausted, the pool's results are meaningless.
  explicit FormulaPool(Budget& budget);
  FormulaId atom(const Atom& atom);
  FormulaId number(NumberPiece piece, bool narrowed = false);
  FormulaId text(const TextConstraint& text);
  FormulaId values(std::vector<const JsonValue*> list);  // kFalse for an empty list
  FormulaId members(const KeySet& keys, SignedSchema schema) {
    return atom({Atom::Kind::kMembers, key_set(keys), schema});
  }
  FormulaId exists(const KeySet& keys, SignedSchema schema) {
    return atom({Atom::Kind::kExists, key_set(keys), schema});
  }
  FormulaId all_of(std::vector<FormulaId> parts) { return nary(Kind::kAnd, std::move(parts)); }
  FormulaId any_of(std::vector<FormulaId> parts);

  Kind kind(FormulaId id) const { return nodes_[raw(id)].kind; }
  std::span<const FormulaId> parts(FormulaId id) const;  // REQUIRES: kAnd or kOr
  uint32_t atom_index(FormulaId id) const { return nodes_[raw(id)].begin; }
  const Atom& atom(FormulaId id) const { return atoms_[atom_index(id)]; }
  const Atom& atom_at(uint32_t index) const { return atoms_[index]; }

  const KeySet& keys(uint32_t i) const { return keys_[i]; }  // the reference stays valid
  // Whether the key is one of not_keys of keys(i).
  bool excludes(uint32_t i, std::string_view key) const { return excluded_[i].contains(key); }
  const TextConstraint& text_at(uint32_t i) const { return texts_[i]; }
  const NumberConstraint& number_at(uint32_t i) const { return numbers_[i]; }
  const std::vector<const JsonValue*>& values_at(uint32_t i) const { return values_[i]; }
  // Whether values_at(i) contains a value equal to `value`.
  bool lists(uint32_t i, const JsonValue& value) const { return value_sets_[i].contains(&value); }
  size_t size() const { return nodes_.size(); }

 private:
  struct Node {
    Kind kind;
    // kAnd, kOr: range of lists_; kAtom: index of the atom
    uint32_t begin = 0, size = 0;
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
  std::vector<ViewSet> excluded_;  // by key set: its not_keys
  std::vector<TextConstraint> texts_;
  std::vector<NumberConstraint> numbers_;
  std::vector<std::vector<const JsonValue*>> values_;
  std::vector<ValueSet> value_sets_;  // by list of values: the same values as a set
  InternTable node_index_, atom_index_, key_index_, number_index_, text_index_;
};

}  // namespace penstock::grammar
