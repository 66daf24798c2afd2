// Rewrites formulas of arrays and objects as alternatives (clauses), each a conjunction of atoms.
#pragma once
#include <map>
#include <set>

#include "grammar/schema/expansion.h"

namespace penstock::grammar {

// The intersection of schemas, sorted and without duplicates.
using Conjunction = std::vector<SignedSchema>;
void normalize(Conjunction& conjunction);

struct Clause {
  std::vector<uint32_t> atoms;  // ascending
  // objects only: formulas that constrain nothing but which keys are present
  std::vector<FormulaId> presence;
};

class ClauseFinder {
 public:
  ClauseFinder(Expansion& expansion, Budget& budget)
      : expansion_(expansion), pool_(expansion.pool()), budget_(budget) {}

  // Returns clauses whose union is the formula; they may overlap. Clauses that are obviously empty
  // are left out. nullopt: there are too many. REQUIRES: the formula has no kValues atoms.
  std::optional<std::vector<Clause>> find(FormulaId formula);
  // Forbids in each clause the members that its schemas leave open although they name members
  // (Schema::names_members). Clauses that become empty are dropped, unless all would be: then none
  // is changed. REQUIRES: clauses of objects.
  void close(std::vector<Clause>& clauses);

  // Returns the window of the number of items (kItemCount) or members (kMemberCount) that the
  // clause allows.
  CountWindow counted(const Clause& clause, Atom::Kind kind) const;
  // Whether the intersection is empty, as far as that is visible without looking into members and
  // items.
  bool obviously_empty(const Conjunction& conjunction);
  // Whether a member that the clause requires by name satisfies the kExists atom.
  bool surely_exists(const Clause& clause, const Atom& atom);

 private:
  enum class Verdict : uint8_t { kUnknown, kYes, kNo };
  struct State {
    Clause clause;
    std::vector<FormulaId> choices;
  };
  void set_limits(FormulaId formula);
  void search(State state);
  bool assume(State& state, FormulaId formula);
  bool assume_atom(Clause& clause, uint32_t atom);
  bool simplify(State& state);
  Verdict judge(const Clause& clause, FormulaId formula);
  Verdict judge_atom(const Clause& clause, uint32_t index);
  Verdict judge_member(const Clause& clause, const Atom& atom);
  Verdict judge_item(const Clause& clause, const Atom& atom);
  bool only_presence(FormulaId formula) const;
  bool names_members(const Atom& atom) const;
  bool names_no_more(const Clause& clause, const Clause& than) const;
  std::optional<Clause> closed(Clause clause);
  bool requires_key(const Atom& atom) const;
  void add_required(FormulaId formula, std::set<std::string>& keys) const;
  bool has_complement(SignedSchema schema);
  bool has_complement(FormulaId formula) const;

  bool required(const Clause& clause, const std::string& key) const;
  Conjunction at_key(const Clause& clause, const std::string& key);
  Conjunction at_item(const Clause& clause, uint32_t index) const;
  bool some_required_key_is_empty(const Clause& clause, uint32_t keys);
  bool implied(Conjunction known, SignedSchema schema);
  bool empty_with(Conjunction known, SignedSchema schema);
  bool empty_for(const Conjunction& conjunction, ValueType type);
  std::optional<bool> no_listed_value(FormulaId formula);
  bool has_pieces(FormulaId formula, ValueType type);

  Expansion& expansion_;
  FormulaPool& pool_;
  Budget& budget_;
  std::vector<Clause> found_;
  bool too_many_ = false;
  size_t steps_ = 0, most_steps_ = 0, most_found_ = 0;
  std::map<Conjunction, bool> known_empty_;
};

}  // namespace penstock::grammar
