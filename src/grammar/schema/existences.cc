// Existences (kExists atoms without a fixed key: "some member matches ..."), which are resolved to
// keys where possible.
#include <map>
#include <set>

#include "grammar/regex/char_dfa.h"
#include "grammar/schema/goals.h"
#include "grammar/schema/membership.h"
#include "text/unicode/unicode.h"

namespace penstock::grammar {
namespace {

constexpr size_t kFewNames = 16;
constexpr size_t kLongestName = 64;  // characters

// Returns the characters of a symbol; nullopt: more than kFewNames.
std::optional<std::vector<char32_t>> characters_of_symbol(const Alphabet& alphabet,
                                                          uint16_t symbol) {
  std::vector<char32_t> characters;
  const auto spans = alphabet.spans();
  for (size_t i = 0; i < spans.size(); ++i) {
    if (spans[i].symbol != symbol) continue;
    const char32_t end = i + 1 < spans.size() ? spans[i + 1].first : kLastCodePoint + 1;
    if (characters.size() + (end - spans[i].first) > kFewNames) return std::nullopt;
    for (char32_t c = spans[i].first; c < end; ++c) characters.push_back(c);
  }
  return characters;
}

// Returns the texts of an automaton; nullopt: more than kFewNames, or too long ones.
std::optional<std::vector<std::string>> few_texts(const CharDfa& dfa) {
  struct Beginning {
    uint32_t state;
    std::u32string text;
  };
  std::vector<std::string> texts;
  std::vector<Beginning> open;
  if (dfa.start != CharDfa::kDead) open.push_back({dfa.start, {}});
  while (!open.empty()) {
    const Beginning at = std::move(open.back());
    open.pop_back();
    if (dfa.tags[at.state] != 0) {
      std::string& text = texts.emplace_back();
      for (const char32_t c : at.text) unicode::append(text, c);
    }
    for (int symbol = 0; symbol < dfa.alphabet.size(); ++symbol) {
      const uint32_t next = dfa.step(at.state, dfa.alphabet.sample(symbol));
      if (next == CharDfa::kDead) continue;
      const auto characters = characters_of_symbol(dfa.alphabet, static_cast<uint16_t>(symbol));
      if (!characters || at.text.size() == kLongestName) return std::nullopt;
      for (const char32_t c : *characters) open.push_back({next, at.text + c});
    }
    // each prefix leads to a text
    if (texts.size() + open.size() > kFewNames) return std::nullopt;
  }
  return texts;
}

class ExistenceTeller {
 public:
  explicit ExistenceTeller(GoalMaker& goals)
      : goals_(goals), expansion_(goals.expansion()), pool_(goals.expansion().pool()) {}

  Compiled<std::optional<std::vector<Clause>>> run(const Clause& clause) {
    open_.push_back({clause, {}});
    while (!open_.empty()) {
      const Open at = std::move(open_.back());
      open_.pop_back();
      const std::optional<uint32_t> index = next_existence(at);
      if (!index) {
        done_.push_back(at.clause);
      } else if (auto done = tell(at, *index); !done) {
        return tl::unexpected(std::move(done).error());
      }
      if (too_many_ || too_many_now() || goals_.budget().exhausted()) return std::nullopt;
    }
    return std::move(done_);
  }

 private:
  struct Open {
    Clause clause;
    // Atoms that need a member with none of these keys.
    std::map<uint32_t, std::set<std::string>> of_others;
  };

  bool too_many_now() const {
    return done_.size() + open_.size() > goals_.budget().limits().max_alternatives;
  }

  std::optional<uint32_t> next_existence(const Open& at) {
    for (const uint32_t index : at.clause.atoms) {
      const Atom atom = pool_.atom_at(index);  // a copy: the pool grows
      if (atom.kind != Atom::Kind::kExists || pool_.keys(atom.index).is_literal()) continue;
      if (goals_.clauses().surely_exists(at.clause, atom)) continue;
      if (!at.of_others.contains(index) || !names_of(at, index).empty()) return index;
    }
    return std::nullopt;
  }

  // Returns the number of atoms and keys that the clause names.
  size_t n_keys(const Clause& clause) const {
    size_t n = clause.atoms.size();
    for (const uint32_t index : clause.atoms) {
      const Atom& atom = pool_.atom_at(index);
      if (atom.kind == Atom::Kind::kExists || atom.kind == Atom::Kind::kMembers)
        n += pool_.keys(atom.index).not_keys.size();
    }
    return n;
  }

  // Returns the keys that the atom's member may have, without those known not to satisfy it.
  Keys names_of(const Open& at, uint32_t index) {
    const Atom atom = pool_.atom_at(index);
    const auto tried = at.of_others.find(index);
    Keys names;
    if (!goals_.budget().spend(n_keys(at.clause))) return names;
    const std::vector<Keys> orders = key_orders(goals_, at.clause);
    for (const std::string& key : orders.front()) {
      if (tried != at.of_others.end() && tried->second.contains(key)) continue;
      if (contains(expansion_, atom.index, key)) names.push_back(key);
    }
    return names;
  }

  // Adds an alternative for each possible key and, if there are many other keys, one in which the
  // member has none of these keys.
  Compiled<void> tell(const Open& at, uint32_t index) {
    const Atom atom = pool_.atom_at(index);
    Keys names = names_of(at, index);
    Open other = at;
    std::set<std::string>& none_of = other.of_others[index];
    none_of.insert(names.begin(), names.end());
    auto others = other_keys(at.clause, atom, none_of);
    if (!others) return tl::unexpected(std::move(others).error());
    if (*others) {
      names.insert(names.end(), (*others)->begin(), (*others)->end());
    } else {
      open_.push_back(std::move(other));
    }
    for (const std::string& name : names) {
      const KeySet key{.kind = KeySet::Kind::kLiteral, .literal = name};
      std::vector<FormulaId> parts{pool_.exists(key, atom.schema)};
      for (const uint32_t i : at.clause.atoms) parts.push_back(pool_.atom(Atom(pool_.atom_at(i))));
      parts.insert(parts.end(), at.clause.presence.begin(), at.clause.presence.end());
      auto clauses = goals_.clauses().find(pool_.all_of(std::move(parts)));
      too_many_ |= !clauses.has_value();
      if (too_many_) break;
      for (Clause& clause : *clauses) open_.push_back({std::move(clause), at.of_others});
      if (too_many_now()) break;
    }
    return {};
  }

  // Returns the remaining keys that the member may have; nullopt: there are many.
  Compiled<std::optional<Keys>> other_keys(const Clause& clause, const Atom& atom,
                                           const std::set<std::string>& names) {
    ExprPool& exprs = goals_.exprs();
    std::vector<ExprId> all{text_of_keys(pool_.keys(atom.index))};
    for (const uint32_t i : clause.atoms) {
      const Atom& other = pool_.atom_at(i);
      if (other.kind == Atom::Kind::kMembers &&
          other.schema == SignedSchema(goals_.schemas().nothing()))
        all.push_back(exprs.negate(text_of_keys(pool_.keys(other.index))));
    }
    for (const std::string& name : names)
      all.push_back(exprs.negate(exprs.literal(characters_of(name))));
    const auto dfa = make_dfa(exprs, exprs.all_of(std::move(all)), goals_.budget());
    if (!dfa) return tl::unexpected(dfa.error());
    return few_texts(*dfa);
  }

  ExprId text_of_keys(const KeySet& keys) {
    ExprPool& exprs = goals_.exprs();
    switch (keys.kind) {
      case KeySet::Kind::kLiteral: return exprs.literal(characters_of(keys.literal));
      case KeySet::Kind::kMatching: return keys.pattern;
      case KeySet::Kind::kOthers: break;
    }
    std::vector<ExprId> all;
    for (const std::string& key : keys.not_keys)
      all.push_back(exprs.negate(exprs.literal(characters_of(key))));
    for (const ExprId pattern : keys.not_matching) all.push_back(exprs.negate(pattern));
    return exprs.all_of(std::move(all));
  }

  GoalMaker& goals_;
  Expansion& expansion_;
  FormulaPool& pool_;
  std::vector<Open> open_;
  std::vector<Clause> done_;
  bool too_many_ = false;
};

}  // namespace

Compiled<std::optional<std::vector<Clause>>> told_existences(GoalMaker& goals,
                                                             const Clause& clause) {
  return ExistenceTeller(goals).run(clause);
}

}  // namespace penstock::grammar
