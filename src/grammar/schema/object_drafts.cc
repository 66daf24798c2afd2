// Drafts objects of a clause: slots for the keys it names, in the order of `properties`, then other
// keys by label.
#include <algorithm>
#include <map>
#include <numeric>
#include <string_view>

#include "base/text_hash.h"
#include "grammar/schema/goals.h"
#include "grammar/schema/membership.h"

namespace penstock::grammar {
namespace {

using AtomKind = Atom::Kind;
constexpr size_t kMaxExistences = 6;
constexpr size_t kMaxLabels = 4096;

constexpr size_t kFewLists = 3;  // every order is tried for this many
constexpr size_t kFewKeys = 64;  // only one order is tried for more
// states times slots of an object with members in any order
constexpr size_t kMaxAnyOrder = 32'768;

// The keys named by a clause: those of each `properties` with the associated required ones, then
// single ones.
class KeyLists {
 public:
  KeyLists(GoalMaker& goals, const Clause& clause)
      : goals_(goals), pool_(goals.expansion().pool()) {
    for (const uint32_t index : clause.atoms) {
      const Atom& atom = pool_.atom_at(index);
      if (atom.kind == AtomKind::kProperties) add_properties(goals_.schemas()[atom.index]);
    }
    for (const FormulaId formula : clause.presence) add_presence(formula);
    for (const uint32_t index : clause.atoms) {
      const Atom& atom = pool_.atom_at(index);
      if (atom.kind != AtomKind::kMembers && atom.kind != AtomKind::kExists) continue;
      const KeySet& keys = pool_.keys(atom.index);
      if (keys.is_literal()) add({keys.literal});
      for (const std::string& key : keys.not_keys) add({key});
    }
  }
  const std::vector<Keys>& lists() const { return lists_; }

 private:
  void add(const Keys& keys) {
    Keys list;
    for (const std::string& key : keys) {
      if (seen_.insert(key).second) list.push_back(key);
    }
    if (!list.empty()) lists_.push_back(std::move(list));
  }
  void add_properties(const Schema& schema) {
    Keys keys;
    for (const auto& [key, value] : schema.properties) keys.push_back(key);
    add(keys);
    for (const std::string& key : schema.required) add({key});
  }
  void add_presence(FormulaId formula) {
    if (pool_.kind(formula) == FormulaPool::Kind::kAtom) {
      const Atom& atom = pool_.atom(formula);
      if (atom.kind == AtomKind::kProperties) return add_properties(goals_.schemas()[atom.index]);
      return add({pool_.keys(atom.index).literal});
    }
    for (const FormulaId part : pool_.parts(formula)) add_presence(part);
  }

  GoalMaker& goals_;
  FormulaPool& pool_;
  std::vector<Keys> lists_;
  TextSet seen_;
};

class ObjectDrafter {
 public:
  ObjectDrafter(GoalMaker& goals, const Clause& clause, const Keys& order)
      : goals_(goals), pool_(goals.expansion().pool()), clause_(clause) {
    draft_.slots = order;
    draft_.members = goals.clauses().counted(clause, AtomKind::kMemberCount);
  }

  Compiled<ObjectDraft> run() {
    if (auto done = read_all(); !done) return tl::unexpected(std::move(done).error());
    draft_.n_existences = static_cast<uint32_t>(existences_.size());
    std::vector<FormulaId> presence = clause_.presence;
    state_of({0, pool_.all_of(std::move(presence)), 0});
    for (size_t i = 0; i < order_.size(); ++i) {
      if (order_.size() > kMaxDraftStates || !goals_.budget().take_states(1))
        return too_large("which members depend on which needs too many states");
      if (goals_.budget().exhausted()) return too_large(kTooMuchWork);
      const auto it = order_[i];
      const Progress at = it->first;
      fill(at, it->second);
    }
    if (goals_.budget().exhausted()) return too_large(kTooMuchWork);
    return std::move(draft_);
  }

  // Members in any order; nullopt: other keys cannot be distinguished sufficiently.
  Compiled<std::optional<ObjectDraft>> run_any_order() {
    if (auto done = read_all(); !done) return tl::unexpected(std::move(done).error());
    draft_.n_existences = static_cast<uint32_t>(existences_.size());
    draft_.any_order = true;
    FormulaId presence = pool_.all_of(std::vector<FormulaId>(clause_.presence));
    presence = without_orders(presence);
    for (const std::string& key : draft_.slots) {
      draft_.required.push_back(required_.contains(key));
      if (required_.contains(key)) presence = decided(presence, key, true);
    }
    state_of({0, presence, 0});
    for (size_t i = 0; i < order_.size(); ++i) {
      if (order_.size() * (1 + draft_.slots.size()) > kMaxAnyOrder) return std::nullopt;
      if (!goals_.budget().take_states(1 + draft_.slots.size()))
        return too_large("which members depend on which needs too many states");
      if (goals_.budget().exhausted()) return too_large(kTooMuchWork);
      const auto it = order_[i];
      const Progress at = it->first;
      fill_any(at, it->second);
    }
    if (goals_.budget().exhausted()) return too_large(kTooMuchWork);
    return std::move(draft_);
  }

 private:
  struct Progress {
    uint32_t slot;
    FormulaId presence;  // remaining constraint on which keys are present
    uint32_t satisfied;  // bit per existence
    auto operator<=>(const Progress&) const = default;
  };
  struct OfMembers {
    uint32_t keys;  // key set in the pool
    SignedSchema schema;
  };

  Compiled<void> read_all() {
    for (const FormulaId formula : clause_.presence) add_presence(formula);
    for (const uint32_t index : clause_.atoms) read(pool_.atom_at(index));
    std::erase_if(existences_, [&](const OfMembers& e) {
      return goals_.clauses().surely_exists(clause_, {AtomKind::kExists, e.keys, e.schema});
    });
    if (existences_.size() > kMaxExistences) {
      return refuse(RefusalKind::kUnsupported, "",
                    "an object must have members of several kinds that no name tells: too many to "
                    "be counted");
    }
    return find_labels();
  }

  void add_presence(FormulaId formula) {
    if (pool_.kind(formula) == FormulaPool::Kind::kAtom) {
      const Atom& atom = pool_.atom(formula);
      if (atom.kind != AtomKind::kProperties) in_presence_.insert(pool_.keys(atom.index).literal);
      return;
    }
    for (const FormulaId part : pool_.parts(formula)) add_presence(part);
  }

  void read(const Atom& atom) {
    if (atom.kind != AtomKind::kMembers && atom.kind != AtomKind::kExists) return;
    const KeySet& keys = pool_.keys(atom.index);
    if (atom.kind == AtomKind::kMembers) {
      if (keys.is_literal()) {
        literal_members_[keys.literal].push_back(atom.schema);
      } else {
        members_.push_back({atom.index, atom.schema});
      }
    } else if (keys.is_literal()) {
      literal_members_[keys.literal].push_back(atom.schema);
      required_.insert(keys.literal);
    } else {
      existences_.push_back({atom.index, atom.schema});
    }
    add_patterns(keys);
  }

  void add_patterns(const KeySet& keys) {
    const auto add = [&](ExprId pattern) {
      auto& all = draft_.patterns;
      if (!goals_.budget().spend(1 + all.size() / 8)) return;
      if (std::find(all.begin(), all.end(), pattern) == all.end()) all.push_back(pattern);
    };
    if (keys.kind == KeySet::Kind::kMatching) add(keys.pattern);
    for (const ExprId pattern : keys.not_matching) add(pattern);
  }

  // Finds the labels of other keys: the combinations of patterns they match.
  Compiled<void> find_labels() {
    if (draft_.patterns.empty()) {
      draft_.labels.emplace_back();
      return {};
    }
    std::map<std::vector<bool>, uint32_t> seen;
    const auto tag_of = [&](const std::vector<bool>& matched) {
      return seen.emplace(matched, static_cast<uint32_t>(seen.size() + 1)).first->second;
    };
    auto classifier = make_classifier(goals_.exprs(), draft_.patterns, tag_of, goals_.budget());
    if (!classifier) return tl::unexpected(std::move(classifier).error());
    if (seen.size() > kMaxLabels) return too_large("the patterns of keys overlap in too many ways");
    draft_.labels.resize(seen.size());
    for (const auto& [matched, tag] : seen) draft_.labels[tag - 1] = matched;
    // The start state has a label too, which no key has if all keys are alike.
    const auto& tags = classifier->tags;
    const size_t n_symbols = classifier->next.size() / tags.size();
    const auto is_tag = [&](uint32_t tag) { return tag == tags[classifier->start]; };
    const auto is_dead = [](uint32_t state) { return state == CharDfa::kDead; };
    if (classifier->start != CharDfa::kDead && std::all_of(tags.begin() + 1, tags.end(), is_tag) &&
        std::none_of(classifier->next.begin() + static_cast<ptrdiff_t>(n_symbols),
                     classifier->next.end(), is_dead))
      draft_.labels = {draft_.labels[tags[classifier->start] - 1]};
    return {};
  }

  bool applies(uint32_t index, const std::vector<bool>& label) const {
    const KeySet& keys = pool_.keys(index);
    const auto matches = [&](ExprId pattern) {
      return label[std::find(draft_.patterns.begin(), draft_.patterns.end(), pattern) -
                   draft_.patterns.begin()];
    };
    if (keys.kind == KeySet::Kind::kMatching) return matches(keys.pattern);
    return std::none_of(keys.not_matching.begin(), keys.not_matching.end(), matches);
  }

  uint32_t state_of(const Progress& progress) {
    const auto [it, is_new] =
        states_.emplace(progress, static_cast<uint32_t>(draft_.states.size()));
    if (is_new) {
      draft_.states.emplace_back();
      order_.push_back(it);
    }
    return it->second;
  }

  // Removes atoms that only affect the order of keys.
  FormulaId without_orders(FormulaId formula) {
    const FormulaPool::Kind kind = pool_.kind(formula);
    if (kind == FormulaPool::Kind::kAtom)
      return pool_.atom(formula).kind == AtomKind::kProperties ? FormulaPool::kTrue : formula;
    if (kind != FormulaPool::Kind::kAnd && kind != FormulaPool::Kind::kOr) return formula;
    std::vector<FormulaId> parts(pool_.parts(formula).begin(), pool_.parts(formula).end());
    for (FormulaId& part : parts) part = without_orders(part);
    return kind == FormulaPool::Kind::kAnd ? pool_.all_of(std::move(parts))
                                           : pool_.any_of(std::move(parts));
  }

  void fill_any(const Progress& at, uint32_t state) {
    std::vector<std::vector<ValueEdge>> any;
    FormulaId rest_absent = at.presence;
    for (uint32_t slot = 0; slot < draft_.slots.size(); ++slot) {
      const std::string& key = draft_.slots[slot];
      rest_absent = decided(rest_absent, key, false);
      const FormulaId present = decided(at.presence, key, true);
      any.push_back(present == FormulaPool::kFalse ? std::vector<ValueEdge>()
                                                   : edges_of(slot, {0, present, at.satisfied}));
    }
    fill_rest(at, state);
    draft_.states[state].any = std::move(any);
    if (!draft_.members.trivial()) draft_.states[state].undecided = slots_in(at.presence);
    draft_.states[state].ends = rest_absent == FormulaPool::kTrue;
    draft_.states[state].accepts &= draft_.states[state].ends;
    draft_.states[state].satisfied = at.satisfied;
  }

  // Returns the slots whose keys a presence formula names.
  std::vector<uint32_t> slots_in(FormulaId presence) const {
    ViewSet named;
    std::vector<FormulaId> open{presence};
    while (!open.empty()) {
      const FormulaId at = open.back();
      open.pop_back();
      const FormulaPool::Kind kind = pool_.kind(at);
      if (kind == FormulaPool::Kind::kAtom && pool_.atom(at).kind != AtomKind::kProperties)
        named.insert(pool_.keys(pool_.atom(at).index).literal);
      if (kind == FormulaPool::Kind::kAnd || kind == FormulaPool::Kind::kOr)
        open.insert(open.end(), pool_.parts(at).begin(), pool_.parts(at).end());
    }
    std::vector<uint32_t> slots;
    for (uint32_t slot = 0; slot < draft_.slots.size(); ++slot) {
      if (named.contains(draft_.slots[slot])) slots.push_back(slot);
    }
    return slots;
  }

  void fill(const Progress& at, uint32_t state) {
    if (at.slot == draft_.slots.size()) return fill_rest(at, state);
    const std::string& key = draft_.slots[at.slot];
    draft_.states[state].slot = at.slot;
    const FormulaId absent = decided(at.presence, key, false),
                    present = decided(at.presence, key, true);
    if (!required_.contains(key) && absent != FormulaPool::kFalse) {
      const uint32_t skipped = state_of({at.slot + 1, absent, at.satisfied});
      draft_.states[state].skipped = skipped;
    }
    if (present == FormulaPool::kFalse) return;
    const std::vector<ValueEdge> edges = edges_of(at.slot, {at.slot + 1, present, at.satisfied});
    draft_.states[state].values = edges;
  }

  // Returns the edges of a slot's value.
  std::vector<ValueEdge> edges_of(uint32_t slot, const Progress& next) {
    const std::string& key = draft_.slots[slot];
    if (!goals_.budget().spend(1 + members_.size())) return {};
    Conjunction value;
    if (const auto it = literal_members_.find(key); it != literal_members_.end())
      value = it->second;
    for (const OfMembers& members : members_) {
      if (grammar::contains(goals_.expansion(), members.keys, key)) value.push_back(members.schema);
    }
    return edges(std::move(value), next, [](uint32_t) { return false; });
  }

  // Returns one edge for each set of existences that the member satisfies.
  template <class Contains>
  std::vector<ValueEdge> edges(Conjunction value, const Progress& next, const Contains& contains) {
    std::vector<ValueEdge> result;
    std::vector<std::pair<Conjunction, uint32_t>> choices{{std::move(value), next.satisfied}};
    for (size_t i = 0; i < existences_.size(); ++i) {
      if ((next.satisfied >> i & 1) != 0 || !contains(existences_[i].keys)) continue;
      for (size_t n = choices.size(), j = 0; j < n; ++j) {
        auto choice = choices[j];
        choice.first.push_back(existences_[i].schema);
        choice.second |= 1U << i;
        choices.push_back(std::move(choice));
      }
    }
    for (auto& [conjunction, satisfied] : choices) {
      const uint32_t goal = goals_.goal_of(std::move(conjunction), ValueSpelling::kAny);
      if (goal != kNone) result.push_back({goal, state_of({next.slot, next.presence, satisfied})});
    }
    return result;
  }

  void fill_rest(const Progress& at, uint32_t state) {
    const uint32_t all = (1U << existences_.size()) - 1;
    const bool present = draft_.any_order || at.presence == FormulaPool::kTrue;
    draft_.states[state].accepts = present && at.satisfied == all;
    draft_.states[state].satisfied = at.satisfied;
    std::vector<std::vector<ValueEdge>> lists;
    if (!goals_.budget().take_edges(draft_.labels.size())) return;
    if (!goals_.budget().spend(draft_.labels.size() * (1 + members_.size()))) return;
    for (const std::vector<bool>& label : draft_.labels) {
      Conjunction value;
      for (const OfMembers& members : members_) {
        if (applies(members.keys, label)) value.push_back(members.schema);
      }
      lists.push_back(
          edges(std::move(value), at, [&](uint32_t keys) { return applies(keys, label); }));
    }
    draft_.states[state].labels = std::move(lists);
  }

  // Returns what remains of a presence formula when one key is decided.
  FormulaId decided(FormulaId formula, const std::string& key, bool present) {
    if (formula == FormulaPool::kTrue || !in_presence_.contains(key)) return formula;
    const FormulaPool::Kind kind = pool_.kind(formula);
    if (kind == FormulaPool::Kind::kAtom) {
      const Atom& atom = pool_.atom(formula);
      if (atom.kind == AtomKind::kProperties) return FormulaPool::kTrue;
      if (pool_.keys(atom.index).literal != key) return formula;
      return (atom.kind == AtomKind::kExists) == present ? FormulaPool::kTrue : FormulaPool::kFalse;
    }
    std::vector<FormulaId> parts(pool_.parts(formula).begin(), pool_.parts(formula).end());
    if (!goals_.budget().spend(parts.size())) return FormulaPool::kFalse;
    for (FormulaId& part : parts) part = decided(part, key, present);
    return kind == FormulaPool::Kind::kAnd ? pool_.all_of(std::move(parts))
                                           : pool_.any_of(std::move(parts));
  }

  GoalMaker& goals_;
  FormulaPool& pool_;
  const Clause& clause_;
  ObjectDraft draft_;
  TextSet required_, in_presence_;
  TextMap<Conjunction> literal_members_;
  std::vector<OfMembers> members_, existences_;  // of keys without names
  std::map<Progress, uint32_t> states_;
  std::vector<std::map<Progress, uint32_t>::const_iterator> order_;
};

}  // namespace

std::vector<Keys> orders_of(const std::vector<Keys>& lists) {
  size_t n_keys = 0;
  for (const Keys& list : lists) n_keys += list.size();
  const bool all = lists.size() <= kFewLists && n_keys <= kFewKeys;
  std::vector<size_t> order(lists.size());
  std::iota(order.begin(), order.end(), 0);
  std::vector<Keys> result;
  do {
    Keys& keys = result.emplace_back();
    for (const size_t i : order) keys.insert(keys.end(), lists[i].begin(), lists[i].end());
  } while (all && std::next_permutation(order.begin(), order.end()));
  return result;
}

std::vector<Keys> key_orders(GoalMaker& goals, const Clause& clause) {
  return orders_of(KeyLists(goals, clause).lists());
}

Compiled<std::optional<ObjectDraft>> draft_object_any_order(GoalMaker& goals, const Clause& clause,
                                                            const Keys& keys) {
  return ObjectDrafter(goals, clause, keys).run_any_order();
}

Compiled<ObjectDraft> draft_object(GoalMaker& goals, const Clause& clause, const Keys& order) {
  return ObjectDrafter(goals, clause, order).run();
}

}  // namespace penstock::grammar
