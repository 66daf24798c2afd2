// Compiles schemas to goals of a program: a goal is the set of values that satisfy a conjunction of
// schemas.
#pragma once
#include <map>
#include <optional>

#include "grammar/schema/clauses.h"
#include "grammar/schema/goal_drafts.h"
#include "grammar/schema/leaves.h"

namespace penstock::grammar {

inline constexpr size_t kMaxDraftStates = 100'000;  // limit for one array or object

// The state of one compilation, shared by the functions that draft arrays and objects. Not
// thread-safe.
class GoalMaker {
 public:
  GoalMaker(SchemaReader& schemas, ExprPool& exprs, const JsonStyle& style, LexemeTable& lexemes,
            Budget& budget, Program& program)
      : schemas_(schemas),
        exprs_(exprs),
        any_member_order_(style.any_member_order),
        budget_(budget),
        program_(program),
        expansion_(schemas, exprs, budget),
        clauses_(expansion_, budget),
        leaves_(expansion_, style, lexemes, budget, program) {}

  // Makes the goal of schema 0 and returns its index in the program. Errors: kInvalid (no value
  // satisfies the schema), kUnsupported, kTooLarge.
  Compiled<uint32_t> run();

  // Returns the index of the draft goal for the values that satisfy all schemas, creating it if
  // there is none; kNone: obviously no value does.
  uint32_t goal_of(Conjunction conjunction, ValueSpelling spelling);
  uint32_t goal_of_value(const JsonValue& value) {
    return goal_of({SignedSchema(schemas_.constant(value))}, ValueSpelling::kAny);
  }

  Expansion& expansion() { return expansion_; }
  ClauseFinder& clauses() { return clauses_; }
  SchemaReader& schemas() { return schemas_; }
  ExprPool& exprs() { return exprs_; }
  Budget& budget() { return budget_; }

 private:
  struct Key {
    Conjunction conjunction;
    ValueSpelling spelling;
    auto operator<=>(const Key&) const = default;
  };
  SignedSchema resolved(SignedSchema schema) const;
  Compiled<void> make(const Key& key, uint32_t goal);
  Compiled<void> add_type(const Key& key, ValueType type, GoalDraft& draft);
  Compiled<void> add_composite(FormulaId formula, ValueType type, GoalDraft& draft);
  Compiled<void> add_value(const JsonValue& value, GoalDraft& draft);
  Compiled<void> add_objects(const Clause& clause, GoalDraft& draft);
  Compiled<void> add_told_objects(const Clause& clause, GoalDraft& draft);
  void add_listed_object(const JsonValue& value, GoalDraft& draft);
  void add_object(ObjectDraft object, GoalDraft& draft);
  tl::unexpected<Refusal> at(tl::unexpected<Refusal> failed, const Key& key) const;

  SchemaReader& schemas_;
  ExprPool& exprs_;
  const bool any_member_order_;
  Budget& budget_;
  Program& program_;
  Expansion expansion_;
  ClauseFinder clauses_;
  LeafMaker leaves_;
  Drafts drafts_;
  std::map<Key, uint32_t> goals_;
  std::vector<std::map<Key, uint32_t>::const_iterator> todo_;
};

// Returns a graph of the arrays that satisfy the clause. Errors: kUnsupported, kTooLarge.
Compiled<ArrayDraft> draft_array(GoalMaker& goals, const Clause& clause);
using Keys = std::vector<std::string>;
// Returns the orders in which the keys named by the clause may come; at least one. Keys of one
// `properties` keep their order; with a few such lists, any of them may be first.
std::vector<Keys> key_orders(GoalMaker& goals, const Clause& clause);
// Returns the orders of a few lists of keys. REQUIRES: no list has a key twice.
std::vector<Keys> orders_of(const std::vector<Keys>& lists);
// Returns clauses whose union is the clause, in which each required member either has a name, or a
// key from a large set that excludes the keys named by the clause. nullopt: there are too many
// clauses. Errors: kTooLarge.
Compiled<std::optional<std::vector<Clause>>> told_existences(GoalMaker& goals,
                                                             const Clause& clause);
// Returns a graph of the objects that satisfy the clause, with members in any order; nullopt: there
// is no such graph. keys: all keys that the clause names. Errors: kUnsupported, kTooLarge.
Compiled<std::optional<ObjectDraft>> draft_object_any_order(GoalMaker& goals, const Clause& clause,
                                                            const Keys& keys);
// Returns a graph of the objects that satisfy the clause, with keys in this order. Errors:
// kUnsupported, kTooLarge.
Compiled<ObjectDraft> draft_object(GoalMaker& goals, const Clause& clause, const Keys& order);

}  // namespace penstock::grammar
