// oneOf: values that satisfy exactly one of several formulas.
//
// In general, each alternative is combined with the complements of all others. Two cases need fewer
// complements: listed values are counted, and objects are distinguished by a member for which they
// list different values.
#include <algorithm>
#include <map>
#include <numeric>

#include "grammar/schema/expansion.h"
#include "grammar/schema/membership.h"
#include "grammar/schema/scalars.h"

namespace penstock::grammar {
namespace {

using AtomKind = Atom::Kind;
using ListedValues = std::vector<const JsonValue*>;
// of formulas and references searched for lists of values
constexpr int kMaxTellingDepth = 8;

KeySet only_key(const std::string& key) { return {.kind = KeySet::Kind::kLiteral, .literal = key}; }

// Returns a list that contains every value of the schema; null: none is listed.
const ListedValues* listed_by(const SchemaReader& schemas, SchemaId id, int depth = 0) {
  const Schema& schema = schemas[id];
  if (!schema.values.empty()) return &schema.values.front();
  if (depth == kMaxTellingDepth) return nullptr;
  for (const SchemaId part : schema.all_of) {
    if (const ListedValues* const found = listed_by(schemas, part, depth + 1)) return found;
  }
  return nullptr;
}

class MemberTeller {
 public:
  MemberTeller(const FormulaPool& pool, const SchemaReader& schemas, Budget& budget)
      : pool_(pool), schemas_(schemas), budget_(budget) {}

  ToldObject of(FormulaId formula, int depth = 0) const {
    ToldObject told;
    if (depth > kMaxTellingDepth || !budget_.spend(1)) return told;
    switch (pool_.kind(formula)) {
      case FormulaPool::Kind::kAtom: add(pool_.atom(formula), told); break;
      case FormulaPool::Kind::kAnd:
        for (const FormulaId part : pool_.parts(formula)) add_both(of(part, depth + 1), told);
        break;
      case FormulaPool::Kind::kOr: {
        const auto parts = pool_.parts(formula);
        told = of(parts.front(), depth + 1);
        told.forbidden.clear();
        for (const FormulaId part : parts.subspan(1)) {
          if (told.members.empty()) break;
          add_either(of(part, depth + 1).members, told.members);
        }
        break;
      }
      default: break;
    }
    return told;
  }

 private:
  void add(const Atom& atom, ToldObject& told) const {
    if (atom.kind != AtomKind::kMembers && atom.kind != AtomKind::kExists) return;
    if (atom.kind == AtomKind::kMembers && atom.schema == SignedSchema(schemas_.nothing()))
      told.forbidden.push_back(atom.index);
    const KeySet& keys = pool_.keys(atom.index);
    if (!keys.is_literal()) return;
    const ListedValues* const values =
        atom.schema.negated() ? nullptr : listed_by(schemas_, atom.schema.id());
    ToldMember& member = told.members[keys.literal];
    member.required = atom.kind == AtomKind::kExists;
    if (values == nullptr || !budget_.spend(values->size())) return;
    member.listed = true;
    member.values = *values;
  }
  static void add_both(ToldObject more, ToldObject& told) {
    told.forbidden.insert(told.forbidden.end(), more.forbidden.begin(), more.forbidden.end());
    for (auto& [key, member] : more.members) {
      ToldMember& have = told.members[key];
      have.required |= member.required;
      if (!member.listed || (have.listed && have.values.size() <= member.values.size())) continue;
      have.listed = true;
      have.values = std::move(member.values);
    }
  }
  static void add_either(const ToldMembers& more, ToldMembers& told) {
    std::erase_if(told, [&](const auto& each) { return !more.contains(each.first); });
    for (auto& [key, member] : told) {
      const ToldMember& other = more.at(key);
      member.required &= other.required;
      member.listed &= other.listed;
      member.values.insert(member.values.end(), other.values.begin(), other.values.end());
    }
  }

  const FormulaPool& pool_;
  const SchemaReader& schemas_;
  Budget& budget_;
};

// A partition of 0..n-1.
class Partition {
 public:
  explicit Partition(size_t n) : parent_(n) { std::iota(parent_.begin(), parent_.end(), 0); }
  size_t of(size_t i) {
    while (parent_[i] != i) i = parent_[i] = parent_[parent_[i]];
    return i;
  }
  void join(size_t a, size_t b) { parent_[of(a)] = of(b); }

 private:
  std::vector<size_t> parent_;
};

bool lists_scalars(const ToldMembers& members, std::string_view key) {
  const auto it = members.find(key);
  return it != members.end() && it->second.listed &&
         std::ranges::none_of(it->second.values,
                              [](const JsonValue* v) { return v->is_array() || v->is_object(); });
}

// Returns the steps of hashing a value.
uint64_t hash_steps(const JsonValue& value) {
  constexpr size_t kBytesPerStep = 16;
  uint64_t steps = 1 + value.string.size() / kBytesPerStep;
  for (const auto& [key, member] : value.members)
    steps += key.size() / kBytesPerStep + hash_steps(member);
  return steps;
}

uint64_t hash_steps(std::span<const JsonValue* const> values) {
  uint64_t steps = 0;
  for (const JsonValue* value : values) steps += hash_steps(*value);
  return steps;
}

bool share_a_value(const ListedValues& a, const ListedValues& b) {
  return std::ranges::any_of(a, [&](const JsonValue* x) {
    return std::ranges::any_of(b, [&](const JsonValue* y) { return *x == *y; });
  });
}

// Whether no object satisfies both: they list different values of a member, or one requires a
// member that the other forbids.
bool are_apart(Expansion& expansion, const ToldObject& a, const ToldObject& b) {
  const auto forbids = [&](const ToldObject& object, std::string_view key) {
    return expansion.budget().spend(1 + object.forbidden.size()) &&
           std::ranges::any_of(object.forbidden,
                               [&](uint32_t keys) { return contains(expansion, keys, key); });
  };
  const auto told_by = [&](const ToldObject& one, const ToldObject& other) {
    if (!expansion.budget().spend(one.members.size())) return false;
    return std::ranges::any_of(one.members, [&](const auto& told) {
      const auto& [key, member] = told;
      if (!member.required) return false;
      if (forbids(other, key)) return true;
      const auto it = other.members.find(key);
      return member.listed && it != other.members.end() && it->second.listed &&
             expansion.budget().spend(member.values.size() * it->second.values.size()) &&
             !share_a_value(member.values, it->second.values);
    });
  };
  return told_by(a, b) || told_by(b, a);
}

}  // namespace

FormulaId Expansion::one_of(const std::vector<SchemaId>& list, ValueType type) {
  std::vector<FormulaId> each;
  for (const SchemaId id : list) {
    const FormulaId one = expand(SignedSchema(id), type);
    if (one != FormulaPool::kFalse) each.push_back(one);
  }
  if (each.size() < 2) return pool_.any_of(std::move(each));
  if (type != ValueType::kObject)
    return one_of_any(each, [](size_t, size_t) { return false; }, type);
  const MemberTeller teller(pool_, schemas_, budget_);
  std::vector<ToldObject> told;
  for (const FormulaId one : each) told.push_back(teller.of(one));
  const auto telling = telling_member(told);
  if (telling && telling->apart) {
    if (const auto result = one_of_told_apart(each, *telling)) return *result;
  }
  constexpr size_t kFew = 128;  // compared pairwise up to this number
  return one_of_any(
      each,
      [&](size_t i, size_t j) {
        if (telling && telling->group[i] != telling->group[j]) return true;
        return each.size() <= kFew && are_apart(*this, told[i], told[j]);
      },
      type);
}

// Returns the member with listed values in all formulas that forms the most groups; nullopt: none.
std::optional<Expansion::TellingMember> Expansion::telling_member(
    const std::vector<ToldObject>& told) {
  std::optional<TellingMember> best;
  for (const auto& [name, unused] : told.front().members) {
    const std::string_view key = name;
    const auto lists = [&](const ToldObject& object) { return lists_scalars(object.members, key); };
    if (!budget_.spend(told.size()) || !std::ranges::all_of(told, lists)) continue;
    TellingMember telling{.key = std::string(key)};
    Partition groups(told.size());
    ValueMap<size_t> seen;
    std::optional<size_t> optional;  // a formula that does not require the member
    for (size_t i = 0; i < told.size(); ++i) {
      const ToldMember& member = told[i].members.at(key);
      telling.required.push_back(member.required);
      if (!budget_.spend(hash_steps(member.values))) return std::nullopt;
      for (const JsonValue* value : member.values) {
        const size_t first = seen.emplace(value, i).first->second;
        telling.apart &= first == i;
        groups.join(i, first);
      }
    }
    for (size_t i = 0; i < told.size(); ++i) {
      if (telling.required[i]) continue;
      if (optional) groups.join(i, *optional);
      optional = i;
    }
    for (size_t i = 0; i < told.size(); ++i) {
      telling.group.push_back(groups.of(i));
      telling.n_groups += groups.of(i) == i;
    }
    if (!best ||
        std::pair(telling.apart, telling.n_groups) > std::pair(best->apart, best->n_groups))
      best = std::move(telling);
  }
  return best;
}

// Returns oneOf for formulas of which no two hold for an object with the telling member. nullopt:
// objects without the member may satisfy several.
std::optional<FormulaId> Expansion::one_of_told_apart(const std::vector<FormulaId>& each,
                                                      const TellingMember& telling) {
  const KeySet key = only_key(telling.key);
  const FormulaId there = pool_.exists(key, SignedSchema(schemas_.anything())),
                  absent = pool_.members(key, SignedSchema(schemas_.nothing()));
  std::vector<FormulaId> alternatives,
      // second: the formula for objects without the member
      without;
  FormulaId last = FormulaPool::kFalse;
  for (size_t i = 0; i < each.size(); ++i) {
    alternatives.push_back(pool_.all_of({each[i], there}));
    if (telling.required[i]) continue;
    last = each[i];
    std::vector<FormulaId> rest;
    const bool all = pool_.kind(each[i]) == FormulaPool::Kind::kAnd;
    for (const FormulaId part : all ? pool_.parts(each[i]) : std::span(&each[i], 1)) {
      const bool is_atom = pool_.kind(part) == FormulaPool::Kind::kAtom;
      const Atom* atom = is_atom ? &pool_.atom(part) : nullptr;
      const bool about_key = atom != nullptr && atom->kind == AtomKind::kMembers &&
                             pool_.keys(atom->index).is_literal() &&
                             pool_.keys(atom->index).literal == telling.key;
      if (!about_key && !(atom != nullptr && atom->kind == AtomKind::kProperties))
        rest.push_back(part);
    }
    without.push_back(pool_.all_of(std::move(rest)));
  }
  if (without.size() == 1) alternatives.push_back(pool_.all_of({last, absent}));
  // Two equal formulas are never satisfied alone.
  const bool alike =
      std::ranges::all_of(without, [&](FormulaId one) { return one == without.front(); });
  if (without.size() > 1 && !alike) return std::nullopt;
  return pool_.any_of(std::move(alternatives));
}

// Returns the listed values that satisfy the formula; nullopt: none are listed, or satisfaction is
// uncertain.
std::optional<std::vector<const JsonValue*>> Expansion::exact_values(FormulaId formula,
                                                                     ValueType type) {
  const auto is = [&](FormulaId part, AtomKind kind) {
    return pool_.kind(part) == FormulaPool::Kind::kAtom && pool_.atom(part).kind == kind;
  };
  const auto is_exact = [&](FormulaId part) {
    if (is(part, AtomKind::kNumber)) return !pool_.number_at(pool_.atom(part).index).narrowed;
    if (is(part, AtomKind::kText)) return !pool_.text_at(pool_.atom(part).index).narrowed;
    return is(part, AtomKind::kValues);
  };
  const auto* listed = listed_values(pool_, formula);
  if (listed == nullptr) return std::nullopt;
  if (is(formula, AtomKind::kValues)) return *listed;
  const bool scalar = type == ValueType::kNumber || type == ValueType::kString;
  if (!scalar || !std::ranges::all_of(pool_.parts(formula), is_exact)) return std::nullopt;
  std::vector<const JsonValue*> values = *listed;  // a copy: the pool grows
  std::erase_if(values, [&](const JsonValue* value) { return !holds(*this, formula, *value); });
  return values;
}

// Formulas with listed values become one; each other one is combined with the complements of those
// not known to be disjoint.
FormulaId Expansion::one_of_any(const std::vector<FormulaId>& each,
                                const std::function<bool(size_t, size_t)>& apart, ValueType type) {
  std::vector<size_t> others;
  ListedValues listed, once;
  ValueMap<int> counted;
  for (size_t i = 0; i < each.size(); ++i) {
    const auto values = exact_values(each[i], type);
    if (!values) {
      others.push_back(i);
      continue;
    }
    ValueSet own;
    if (!budget_.spend(hash_steps(*values))) return FormulaPool::kFalse;
    for (const JsonValue* value : *values) {
      if (own.insert(value).second && ++counted[value] == 1) listed.push_back(value);
    }
  }
  for (const JsonValue* value : listed) {
    if (counted[value] == 1) once.push_back(value);
  }
  const FormulaId any_listed = pool_.values(std::move(listed));
  std::vector<FormulaId> alternatives;
  if (!once.empty()) {
    std::vector<FormulaId> alone{pool_.values(std::move(once))};
    for (const size_t i : others) alone.push_back(negate(each[i]));
    alternatives.push_back(pool_.all_of(std::move(alone)));
  }
  for (const size_t i : others) {
    std::vector<FormulaId> alone{each[i], negate(any_listed)};
    if (!budget_.spend(others.size())) break;
    for (const size_t j : others) {
      if (j != i && !apart(i, j)) alone.push_back(negate(each[j]));
    }
    alternatives.push_back(pool_.all_of(std::move(alone)));
  }
  return pool_.any_of(std::move(alternatives));
}

}  // namespace penstock::grammar
