#include "grammar/schema/clauses.h"

#include <algorithm>
#include <unordered_set>

#include "grammar/schema/membership.h"
#include "grammar/schema/scalars.h"

namespace penstock::grammar {
namespace {

using AtomKind = Atom::Kind;
constexpr size_t kMaxSteps = 20'000, kStepsPerPart = 8;
constexpr size_t kMaxListed = 4096, kPerListed = 4;  // alternatives

bool subset(const std::vector<uint32_t>& a, const std::vector<uint32_t>& b) {
  return std::includes(b.begin(), b.end(), a.begin(), a.end());
}

// Returns a Bloom signature: the signature of a subset has no other bits.
uint64_t signature(const std::vector<uint32_t>& atoms) {
  uint64_t bits = 0;
  for (const uint32_t atom : atoms) bits |= uint64_t{1} << (atom * 0x9E3779B9U >> 26);
  return bits;
}

}  // namespace

void normalize(Conjunction& conjunction) {
  std::sort(conjunction.begin(), conjunction.end());
  conjunction.erase(std::unique(conjunction.begin(), conjunction.end()), conjunction.end());
}

std::optional<std::vector<Clause>> ClauseFinder::find(FormulaId formula) {
  found_.clear();
  too_many_ = false;
  steps_ = 0;
  set_limits(formula);
  State state;
  if (assume(state, formula)) search(std::move(state));
  if (too_many_) return std::nullopt;
  // Drops clauses that another clause includes.
  std::vector<Clause> kept;
  std::vector<uint64_t> signatures;
  for (const Clause& clause : found_) signatures.push_back(signature(clause.atoms));
  for (size_t i = 0; i < found_.size(); ++i) {
    const auto covers = [&](size_t j) {
      if ((signatures[j] & ~signatures[i]) != 0) return false;
      const Clause &a = found_[j], &b = found_[i];
      too_many_ |= !budget_.spend(1 + a.atoms.size() / 8);
      return j != i && a.presence.empty() && subset(a.atoms, b.atoms) && names_no_more(b, a) &&
             (a.atoms != b.atoms || !b.presence.empty() || j < i);
    };
    bool covered = false;
    too_many_ |= !budget_.spend(1 + found_.size() / 8);
    for (size_t j = 0; j < found_.size() && !covered && !too_many_; ++j) covered = covers(j);
    if (too_many_) return std::nullopt;
    if (!covered) kept.push_back(found_[i]);
  }
  return kept;
}

// Sets limits in proportion to listed values, which alone must not cause a refusal.
void ClauseFinder::set_limits(FormulaId formula) {
  std::vector<FormulaId> open{formula};
  std::unordered_set<FormulaId> seen{formula};
  size_t size = 1, widest = 0;
  while (!open.empty() && budget_.spend(1)) {
    const FormulaId at = open.back();
    open.pop_back();
    const FormulaPool::Kind kind = pool_.kind(at);
    if (kind != FormulaPool::Kind::kAnd && kind != FormulaPool::Kind::kOr) continue;
    const auto parts = pool_.parts(at);
    size += parts.size();
    if (kind == FormulaPool::Kind::kOr) widest = std::max(widest, parts.size());
    for (const FormulaId part : parts) {
      if (seen.insert(part).second) open.push_back(part);
    }
  }
  most_found_ =
      std::max(budget_.limits().max_alternatives, std::min(kPerListed * widest, kMaxListed));
  most_steps_ = kMaxSteps + kStepsPerPart * size;
}

void ClauseFinder::search(State state) {
  if (too_many_ || !simplify(state)) return;
  const auto choice = std::find_if(state.choices.begin(), state.choices.end(),
                                   [&](FormulaId f) { return !only_presence(f); });
  if (choice == state.choices.end()) {
    state.clause.presence = std::move(state.choices);
    found_.push_back(std::move(state.clause));
    too_many_ |= found_.size() > most_found_;
    return;
  }
  auto fewest = choice;
  for (auto it = choice; it != state.choices.end(); ++it) {
    if (!only_presence(*it) && pool_.parts(*it).size() < pool_.parts(*fewest).size()) fewest = it;
  }
  const std::vector<FormulaId> parts(pool_.parts(*fewest).begin(), pool_.parts(*fewest).end());
  state.choices.erase(fewest);
  for (const FormulaId part : parts) {
    too_many_ |= !budget_.spend(state.clause.atoms.size() + state.choices.size());
    if (too_many_) return;
    State branch = state;
    if (assume(branch, part)) search(std::move(branch));
  }
}

// Adds a formula to the state; false: contradiction, or too_many_.
bool ClauseFinder::assume(State& state, FormulaId formula) {
  too_many_ |= ++steps_ > most_steps_ || !budget_.spend(1);
  if (too_many_) return false;
  switch (pool_.kind(formula)) {
    case FormulaPool::Kind::kFalse: return false;
    case FormulaPool::Kind::kTrue: return true;
    case FormulaPool::Kind::kAtom: return assume_atom(state.clause, pool_.atom_index(formula));
    case FormulaPool::Kind::kOr: state.choices.push_back(formula); return true;
    case FormulaPool::Kind::kAnd: break;
  }
  const std::vector<FormulaId> parts(pool_.parts(formula).begin(), pool_.parts(formula).end());
  return std::all_of(parts.begin(), parts.end(),
                     [&](FormulaId part) { return assume(state, part); });
}

bool ClauseFinder::assume_atom(Clause& clause, uint32_t index) {
  auto& atoms = clause.atoms;
  const auto at = std::lower_bound(atoms.begin(), atoms.end(), index);
  if (at != atoms.end() && *at == index) return true;
  if (judge_atom(clause, index) == Verdict::kNo) return false;
  atoms.insert(std::lower_bound(atoms.begin(), atoms.end(), index), index);
  return true;
}

// Removes decided choices and impossible alternatives until nothing changes; false: contradiction, or
// too_many_.
bool ClauseFinder::simplify(State& state) {
  for (bool changed = true; changed && !too_many_;) {
    changed = false;
    std::vector<FormulaId> choices = std::move(state.choices);
    state.choices.clear();
    for (const FormulaId choice : choices) {
      std::vector<FormulaId> open;
      bool made = false;
      const std::vector<FormulaId> parts(pool_.parts(choice).begin(),
                                         pool_.parts(choice).end());  // a copy: the pool grows
      for (const FormulaId part : parts) {
        const Verdict verdict = judge(state.clause, part);
        made |= verdict == Verdict::kYes;
        if (verdict == Verdict::kUnknown) open.push_back(part);
      }
      too_many_ |= ++steps_ > most_steps_ || !budget_.spend(1 + parts.size());
      if (too_many_) return false;
      if (made) continue;
      if (open.empty()) return false;
      const FormulaId left = pool_.any_of(std::move(open));
      if (pool_.kind(left) == FormulaPool::Kind::kOr) {
        changed |= left != choice;
        state.choices.push_back(left);
        continue;
      }
      changed = true;
      if (!assume(state, left)) return false;
    }
    std::sort(state.choices.begin(), state.choices.end());
    state.choices.erase(std::unique(state.choices.begin(), state.choices.end()),
                        state.choices.end());
  }
  return true;
}

ClauseFinder::Verdict ClauseFinder::judge(const Clause& clause, FormulaId formula) {
  switch (pool_.kind(formula)) {
    case FormulaPool::Kind::kFalse: return Verdict::kNo;
    case FormulaPool::Kind::kTrue: return Verdict::kYes;
    case FormulaPool::Kind::kAtom: return judge_atom(clause, pool_.atom_index(formula));
    default: break;
  }
  const bool all = pool_.kind(formula) == FormulaPool::Kind::kAnd;
  const Verdict decides = all ? Verdict::kNo : Verdict::kYes;
  const std::vector<FormulaId> parts(pool_.parts(formula).begin(), pool_.parts(formula).end());
  too_many_ |= !budget_.spend(parts.size());
  bool unknown = false;
  for (const FormulaId part : parts) {
    const Verdict verdict = judge(clause, part);
    if (too_many_) return Verdict::kUnknown;
    if (verdict == decides) return decides;
    unknown |= verdict == Verdict::kUnknown;
  }
  return unknown ? Verdict::kUnknown : all ? Verdict::kYes : Verdict::kNo;
}

ClauseFinder::Verdict ClauseFinder::judge_atom(const Clause& clause, uint32_t index) {
  too_many_ |= !budget_.spend(1 + clause.atoms.size());
  if (too_many_) return Verdict::kUnknown;
  if (std::binary_search(clause.atoms.begin(), clause.atoms.end(), index)) return Verdict::kYes;
  const Atom atom = pool_.atom_at(index);
  switch (atom.kind) {
    case AtomKind::kItemCount:
    case AtomKind::kMemberCount: {
      const CountWindow have = counted(clause, atom.kind), both = have & atom.window;
      return both.empty() ? Verdict::kNo : both == have ? Verdict::kYes : Verdict::kUnknown;
    }
    case AtomKind::kMembers:
    case AtomKind::kExists: return judge_member(clause, atom);
    case AtomKind::kItem:
    case AtomKind::kRest:
    case AtomKind::kContains: return judge_item(clause, atom);
    default: return Verdict::kUnknown;
  }
}

ClauseFinder::Verdict ClauseFinder::judge_member(const Clause& clause, const Atom& atom) {
  const KeySet& keys = pool_.keys(atom.index);
  if (!keys.is_literal()) {
    if (atom.kind == AtomKind::kExists)
      return surely_exists(clause, atom) ? Verdict::kYes : Verdict::kUnknown;
    Clause with = clause;  // a required key may have no value left
    const FormulaId itself = pool_.atom(atom);
    const uint32_t index = pool_.atom_index(itself);
    with.atoms.insert(std::lower_bound(with.atoms.begin(), with.atoms.end(), index), index);
    return some_required_key_is_empty(with, atom.index) ? Verdict::kNo : Verdict::kUnknown;
  }
  const Conjunction known = at_key(clause, keys.literal);
  const bool is_there = required(clause, keys.literal);
  const bool cannot = empty_with(known, atom.schema);
  if (atom.kind == AtomKind::kExists) {
    if (cannot || counted(clause, AtomKind::kMemberCount).max == 0) return Verdict::kNo;
    return is_there && implied(known, atom.schema) ? Verdict::kYes : Verdict::kUnknown;
  }
  if (cannot && is_there) return Verdict::kNo;
  return implied(known, atom.schema) ? Verdict::kYes : Verdict::kUnknown;
}

bool ClauseFinder::surely_exists(const Clause& clause, const Atom& atom) {
  return std::ranges::any_of(clause.atoms, [&](uint32_t index) {
    const Atom other = pool_.atom_at(index);  // a copy: the pool grows
    if (other.kind != AtomKind::kExists || !pool_.keys(other.index).is_literal()) return false;
    const std::string& key = pool_.keys(other.index).literal;
    return contains(expansion_, atom.index, key) && implied(at_key(clause, key), atom.schema);
  });
}

bool ClauseFinder::some_required_key_is_empty(const Clause& clause, uint32_t keys) {
  for (const uint32_t index : clause.atoms) {
    const Atom atom = pool_.atom_at(index);  // a copy: the pool grows
    if (atom.kind != AtomKind::kExists || !pool_.keys(atom.index).is_literal()) continue;
    const std::string& key = pool_.keys(atom.index).literal;
    if (contains(expansion_, keys, key) && obviously_empty(at_key(clause, key))) return true;
  }
  return false;
}

ClauseFinder::Verdict ClauseFinder::judge_item(const Clause& clause, const Atom& atom) {
  const CountWindow count = counted(clause, AtomKind::kItemCount);
  if (atom.kind == AtomKind::kItem) {
    if (count.max <= atom.index) return Verdict::kYes;
    const Conjunction known = at_item(clause, atom.index);
    if (count.min > atom.index && empty_with(known, atom.schema)) return Verdict::kNo;
    return implied(known, atom.schema) ? Verdict::kYes : Verdict::kUnknown;
  }
  if (atom.kind == AtomKind::kRest)
    return count.max <= atom.index ? Verdict::kYes : Verdict::kUnknown;
  if (atom.window.min == 0) return Verdict::kUnknown;
  if (count.max <= atom.index) return Verdict::kNo;
  Conjunction everywhere;
  for (const uint32_t index : clause.atoms) {
    const Atom& other = pool_.atom_at(index);
    if (other.kind == AtomKind::kRest && other.index <= atom.index)
      everywhere.push_back(other.schema);
  }
  return empty_with(std::move(everywhere), atom.schema) ? Verdict::kNo : Verdict::kUnknown;
}

bool ClauseFinder::only_presence(FormulaId formula) const {
  if (pool_.kind(formula) == FormulaPool::Kind::kAtom) {
    const Atom& atom = pool_.atom(formula);
    const SchemaReader& schemas = expansion_.schemas();
    if (atom.kind == AtomKind::kExists)
      return pool_.keys(atom.index).is_literal() && atom.schema == SignedSchema(schemas.anything());
    if (atom.kind == AtomKind::kMembers)
      return pool_.keys(atom.index).is_literal() && atom.schema == SignedSchema(schemas.nothing());
    return atom.kind == AtomKind::kProperties && !names_members(atom);
  }
  const auto parts = pool_.parts(formula);
  return std::all_of(parts.begin(), parts.end(),
                     [&](FormulaId part) { return only_presence(part); });
}

bool ClauseFinder::names_members(const Atom& atom) const {
  return atom.kind == AtomKind::kProperties && expansion_.schemas()[atom.index].names_members;
}

// Whether all member-naming schemas of `clause` are in `than`.
bool ClauseFinder::names_no_more(const Clause& clause, const Clause& than) const {
  return std::ranges::all_of(clause.atoms, [&](uint32_t index) {
    return !names_members(pool_.atom_at(index)) || std::ranges::binary_search(than.atoms, index);
  });
}

void ClauseFinder::close(std::vector<Clause>& clauses) {
  std::vector<Clause> result;
  for (const Clause& clause : clauses) {
    if (auto one = closed(clause)) result.push_back(*std::move(one));
  }
  if (!result.empty()) clauses = std::move(result);
}

// nullopt: the clause is obviously empty.
std::optional<Clause> ClauseFinder::closed(Clause clause) {
  KeySet others{.kind = KeySet::Kind::kOthers};
  std::set<std::string> keys;
  bool names = false;
  for (const uint32_t index : clause.atoms) {
    const Atom& atom = pool_.atom_at(index);
    if (names_members(atom)) {
      const Schema& schema = expansion_.schemas()[atom.index];
      if (schema.additional_properties || schema.unevaluated_properties) return clause;
      names = true;
      for (const auto& [key, value] : schema.properties) keys.insert(key);
      for (const auto& [pattern, value] : schema.pattern_properties)
        others.not_matching.push_back(pattern);
    }
    if (requires_key(atom)) keys.insert(pool_.keys(atom.index).literal);
  }
  if (!names) return clause;
  for (const FormulaId formula : clause.presence) add_required(formula, keys);
  const uint64_t least = counted(clause, AtomKind::kMemberCount).min;
  if (least > keys.size() && others.not_matching.empty()) return std::nullopt;
  others.not_keys.assign(keys.begin(), keys.end());
  const FormulaId none = pool_.members(others, SignedSchema(expansion_.schemas().nothing()));
  const bool fits = assume_atom(clause, pool_.atom_index(none));
  return fits ? std::optional(std::move(clause)) : std::nullopt;
}

// Whether the atom requires a member only by its name.
bool ClauseFinder::requires_key(const Atom& atom) const {
  return atom.kind == AtomKind::kExists && pool_.keys(atom.index).is_literal() &&
         atom.schema == SignedSchema(expansion_.schemas().anything());
}

// Adds the keys that any alternative of a formula requires.
void ClauseFinder::add_required(FormulaId formula, std::set<std::string>& keys) const {
  const FormulaPool::Kind kind = pool_.kind(formula);
  if (kind == FormulaPool::Kind::kAtom) {
    const Atom& atom = pool_.atom(formula);
    if (requires_key(atom)) keys.insert(pool_.keys(atom.index).literal);
    return;
  }
  for (const FormulaId part : pool_.parts(formula)) add_required(part, keys);
}

bool ClauseFinder::required(const Clause& clause, const std::string& key) const {
  return std::any_of(clause.atoms.begin(), clause.atoms.end(), [&](uint32_t index) {
    const Atom& atom = pool_.atom_at(index);
    return atom.kind == AtomKind::kExists && pool_.keys(atom.index).is_literal() &&
           pool_.keys(atom.index).literal == key;
  });
}

// Returns the schemas that a member with this key must satisfy if it is present.
Conjunction ClauseFinder::at_key(const Clause& clause, const std::string& key) {
  Conjunction result;
  for (const uint32_t index : clause.atoms) {
    const Atom& atom = pool_.atom_at(index);
    if (atom.kind != AtomKind::kMembers && atom.kind != AtomKind::kExists) continue;
    const KeySet& keys = pool_.keys(atom.index);
    if (atom.kind == AtomKind::kExists && !keys.is_literal()) continue;
    if (contains(expansion_, atom.index, key)) result.push_back(atom.schema);
  }
  return result;
}

Conjunction ClauseFinder::at_item(const Clause& clause, uint32_t item) const {
  Conjunction result;
  for (const uint32_t index : clause.atoms) {
    const Atom& atom = pool_.atom_at(index);
    if ((atom.kind == AtomKind::kItem && atom.index == item) ||
        (atom.kind == AtomKind::kRest && atom.index <= item))
      result.push_back(atom.schema);
  }
  return result;
}

CountWindow ClauseFinder::counted(const Clause& clause, AtomKind kind) const {
  CountWindow window;
  for (const uint32_t index : clause.atoms) {
    const Atom& atom = pool_.atom_at(index);
    if (atom.kind == kind) window = window & atom.window;
    if (kind == AtomKind::kItemCount && atom.kind == AtomKind::kContains)
      window = window & CountWindow{atom.index + atom.window.min, kNoLimit};
  }
  return window;
}

bool ClauseFinder::has_complement(FormulaId formula) const {
  if (pool_.kind(formula) == FormulaPool::Kind::kAtom) {
    const Atom& atom = pool_.atom(formula);
    if (atom.kind == AtomKind::kUnique) return false;
    if (atom.kind == AtomKind::kText) return !pool_.text_at(atom.index).narrowed;
    return atom.kind != AtomKind::kNumber || !pool_.number_at(atom.index).narrowed;
  }
  const auto parts = pool_.parts(formula);
  return std::all_of(parts.begin(), parts.end(),
                     [&](FormulaId part) { return has_complement(part); });
}

bool ClauseFinder::has_complement(SignedSchema schema) {
  if (schema.negated()) return true;
  for (int type = 0; type < kNumValueTypes; ++type) {
    if (!has_complement(expansion_.expand(schema, static_cast<ValueType>(type)))) return false;
  }
  return true;
}

// Whether the known schemas imply the schema.
bool ClauseFinder::implied(Conjunction known, SignedSchema schema) {
  if (std::find(known.begin(), known.end(), schema) != known.end()) return true;
  if (!has_complement(schema)) return false;
  known.push_back(!schema);
  return obviously_empty(known);
}

bool ClauseFinder::empty_with(Conjunction known, SignedSchema schema) {
  known.push_back(schema);
  return obviously_empty(known);
}

bool ClauseFinder::obviously_empty(const Conjunction& unsorted) {
  Conjunction conjunction = unsorted;
  normalize(conjunction);
  for (size_t i = 0; i + 1 < conjunction.size(); ++i) {
    // a schema and its negation
    if (conjunction[i + 1] == !conjunction[i]) return true;
  }
  if (const auto it = known_empty_.find(conjunction); it != known_empty_.end()) return it->second;
  if (!budget_.take_edges(1 + conjunction.size() / 8)) return false;
  bool empty = true;
  for (int type = 0; type < kNumValueTypes && empty; ++type)
    empty = empty_for(conjunction, static_cast<ValueType>(type));
  known_empty_.emplace(std::move(conjunction), empty);
  return empty;
}

bool ClauseFinder::empty_for(const Conjunction& conjunction, ValueType type) {
  std::vector<FormulaId> parts;
  for (const SignedSchema schema : conjunction) parts.push_back(expansion_.expand(schema, type));
  const FormulaId formula = pool_.all_of(std::move(parts));
  if (formula == FormulaPool::kFalse) return true;
  if (type <= ValueType::kTrue) return false;
  if (type == ValueType::kArray || type == ValueType::kObject)
    return no_listed_value(formula).value_or(false);
  const auto alternatives = without_choices_of_values(pool_, formula);
  return alternatives && std::ranges::all_of(*alternatives, [&](FormulaId alternative) {
           const auto none = no_listed_value(alternative);
           return none ? *none : !has_pieces(alternative, type);
         });
}

// Whether no listed value satisfies the formula; nullopt: it lists no values.
std::optional<bool> ClauseFinder::no_listed_value(FormulaId formula) {
  const auto* values = listed_values(pool_, formula);
  if (values == nullptr) return std::nullopt;
  const std::vector<const JsonValue*> list = *values;  // a copy: the pool grows
  return std::ranges::none_of(list,
                              [&](const JsonValue* v) { return holds(expansion_, formula, *v); });
}

// Whether numbers or strings satisfy the formula, as far as can be seen. REQUIRES: it lists no
// values.
bool ClauseFinder::has_pieces(FormulaId formula, ValueType type) {
  if (type == ValueType::kNumber) {
    const auto pieces = number_pieces(pool_, formula);
    return !pieces || !pieces->empty();
  }
  const auto texts = text_pieces(expansion_, formula);
  return !texts || !texts->empty();
}

}  // namespace penstock::grammar
