// Expands a schema into one formula for each type of value.
#pragma once
#include <array>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string_view>

#include "grammar/parts/budget.h"
#include "grammar/schema/formula.h"
#include "grammar/schema/reader.h"

namespace penstock::grammar {

// The members and items that the other keywords of a schema have evaluated, which
// unevaluatedProperties and unevaluatedItems therefore skip.
struct Evaluated {
  bool all = false;
  std::set<std::string> keys;
  std::vector<ExprId> patterns;
  size_t prefix = 0;
  std::vector<SchemaId> contained;
  void add(const Evaluated& other);
};

// Constraints that a formula of objects sets on the member with one key. values: all values that are
// allowed, and maybe others, if `listed`.
struct ToldMember {
  std::vector<const JsonValue*> values;
  bool listed = false, required = false;
};
using ToldMembers = std::map<std::string_view, ToldMember>;

struct ToldObject {
  ToldMembers members;
  std::vector<uint32_t> forbidden;  // key sets of the pool that no member may be in
};

class Expansion {
 public:
  Expansion(SchemaReader& schemas, ExprPool& exprs, Budget& budget)
      : schemas_(schemas), exprs_(exprs), budget_(budget), pool_(budget) {}

  // Returns the formula of the schema's values of this type; kFalse after a failure.
  FormulaId expand(SignedSchema schema, ValueType type);
  FormulaId negate(FormulaId formula);
  FormulaPool& pool() { return pool_; }
  SchemaReader& schemas() { return schemas_; }
  ExprPool& exprs() { return exprs_; }
  Budget& budget() { return budget_; }
  bool failed() const { return failed_; }
  const Refusal& refusal() const { return refusal_; }
  void fail(RefusalKind kind, std::string where, std::string message, std::string keyword);

 private:
  // One way to fulfil a schema, with what it evaluates.
  struct Way {
    FormulaId formula;
    Evaluated evaluated;
  };
  // A member that tells formulas of objects apart because they list different values for it. No
  // value of the member is allowed by formulas of two different groups.
  struct TellingMember {
    std::string key;
    std::vector<bool> required;  // by formula
    std::vector<size_t> group;   // by formula
    size_t n_groups = 0;
    bool apart = true;  // no two formulas list the same value
  };

  FormulaId build(SchemaId id, ValueType type);
  FormulaId own(const Schema& schema, SchemaId id, ValueType type);
  FormulaId applicators(const Schema& schema, ValueType type);
  FormulaId one_of(const std::vector<SchemaId>& list, ValueType type);
  std::optional<TellingMember> telling_member(const std::vector<ToldObject>& told);
  std::optional<FormulaId> one_of_told_apart(const std::vector<FormulaId>& each,
                                             const TellingMember& telling);
  FormulaId one_of_any(const std::vector<FormulaId>& each,
                       const std::function<bool(size_t, size_t)>& apart, ValueType type);
  std::optional<std::vector<const JsonValue*>> exact_values(FormulaId formula, ValueType type);
  FormulaId values_of(const Schema& schema, ValueType type);
  FormulaId numbers(const Schema& schema);
  FormulaId strings(const Schema& schema);
  FormulaId arrays(const Schema& schema);
  FormulaId objects(const Schema& schema, SchemaId id);
  FormulaId expand_all(const std::vector<SchemaId>& list, ValueType type);

  std::vector<Way> ways(SchemaId id, ValueType type);
  std::vector<Way> ways_within(const Schema& schema, SchemaId id, ValueType type);
  void combine(std::vector<Way>& ways, const std::vector<Way>& more);
  std::vector<Way> ways_any_of(const std::vector<SchemaId>& list, ValueType type);
  std::vector<Way> ways_one_of(const std::vector<SchemaId>& list, ValueType type);
  FormulaId unevaluated(const Schema& schema, const Evaluated& evaluated, ValueType type);

  FormulaId negate_atom(const Atom& atom);
  FormulaId outside(Atom atom);
  FormulaId not_values(const std::vector<const JsonValue*>& list);
  FormulaId unlike(const JsonValue& value);

  static constexpr FormulaId kUnknown{UINT32_MAX}, kBusy{UINT32_MAX - 1};
  SchemaReader& schemas_;
  ExprPool& exprs_;
  Budget& budget_;
  FormulaPool pool_;
  std::vector<std::array<FormulaId, kNumValueTypes>> known_;  // by schema and type
  std::map<FormulaId, FormulaId> negations_;
  int depth_ = 0;
  bool failed_ = false;
  Refusal refusal_;
};

}  // namespace penstock::grammar
