// Schemas as goals of a program: for each conjunction of schemas, what its values of each type look
// like.
#pragma once
#include <map>
#include <optional>

#include "grammar/schema/clauses.h"
#include "grammar/schema/goal_drafts.h"
#include "grammar/schema/leaves.h"

namespace penstock::grammar {

inline constexpr size_t kMaxDraftStates = 100'000;  // of one array or object

// Shared by those who draft arrays and objects.
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

  // Makes the goal of schema 0, and returns its number. Errors: kInvalid (nothing fulfils it),
  // kUnsupported, kTooLarge.
  Compiled<uint32_t> run();

  // The number of the goal of values that all schemas have; kNone where that is obviously none.
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

// A graph for the arrays of a clause. Errors: kUnsupported, kTooLarge.
Compiled<ArrayDraft> draft_array(GoalMaker& goals, const Clause& clause);
using Keys = std::vector<std::string>;
// The orders in which the keys that a clause names may come, one at least. Keys of one `properties`
// keep their order; where there are a few such lists, each may be the first.
std::vector<Keys> key_orders(GoalMaker& goals, const Clause& clause);
// The orders of a few lists of keys, none of which have a key twice.
std::vector<Keys> orders_of(const std::vector<Keys>& lists);
// Alternatives that together are the clause. In each, a member that must exist has a name, or its
// key is none of those that the clause names, of which there are many. nullopt: there are too many
// alternatives. Errors: kTooLarge.
Compiled<std::optional<std::vector<Clause>>> told_existences(GoalMaker& goals,
                                                             const Clause& clause);
// A graph for the objects of a clause whose members come in any order; nullopt where there is none.
// keys: all that the clause names. Errors: kUnsupported, kTooLarge.
Compiled<std::optional<ObjectDraft>> draft_object_any_order(GoalMaker& goals, const Clause& clause,
                                                            const Keys& keys);
// A graph for the objects of a clause whose keys come in the order. Errors: kUnsupported,
// kTooLarge.
Compiled<ObjectDraft> draft_object(GoalMaker& goals, const Clause& clause, const Keys& order);

}  // namespace penstock::grammar
