// Drafts arrays of a clause: one state for each position that items depend on and each count of
// `contains` atoms.
#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "grammar/schema/goals.h"

namespace penstock::grammar {
namespace {

using AtomKind = Atom::Kind;
constexpr uint64_t kMaxUnique = 10'000;  // required unique items
// `contains` atoms with an upper bound or minimum in one array
constexpr size_t kMaxContains = 6;

class ArrayDrafter {
 public:
  ArrayDrafter(GoalMaker& goals, const Clause& clause) : goals_(goals) {
    const FormulaPool& pool = goals.expansion().pool();
    for (const uint32_t index : clause.atoms) read(pool.atom_at(index));
    draft_.items = goals.clauses().counted(clause, AtomKind::kItemCount);
    if (draft_.items.max <= 1) unique_.reset();
    if (draft_.items.max < last_place_) last_place_ = static_cast<uint32_t>(draft_.items.max);
    draft_.unique = unique_.has_value();
  }

  Compiled<ArrayDraft> run() {
    if (draft_.unique && draft_.items.min > kMaxUnique)
      return refuse(RefusalKind::kTooLarge, "",
                    fmt::format("at least {} unique items: at most {} are told apart",
                                draft_.items.min, kMaxUnique),
                    "uniqueItems");
    if (contains_.size() > kMaxContains)
      return refuse(RefusalKind::kUnsupported, "", "too many contains about one array", "contains");
    state_of({0, std::vector<uint32_t>(contains_.size(), 0)});
    for (size_t i = 0; i < order_.size(); ++i) {
      if (order_.size() > kMaxDraftStates || !goals_.budget().take_states(1) ||
          goals_.budget().exhausted())
        return too_large("the counts of contains and the places of items need too many states");
      const auto it = order_[i];
      const Progress at = it->first;
      fill(at, it->second);
    }
    return std::move(draft_);
  }

 private:
  struct Progress {
    uint32_t place;                // number of items, as far as it matters
    std::vector<uint32_t> counts;  // by `contains` atom
    auto operator<=>(const Progress&) const = default;
  };

  void read(const Atom& atom) {
    switch (atom.kind) {
      case AtomKind::kItem:
      case AtomKind::kRest:
        of_items_.push_back(atom);
        last_place_ = std::max(last_place_, atom.index + (atom.kind == AtomKind::kItem ? 1 : 0));
        break;
      case AtomKind::kContains:
        contains_.push_back(atom);
        last_place_ = std::max(last_place_, atom.index);
        break;
      case AtomKind::kUnique: unique_ = atom.index; break;
      default: break;
    }
  }

  uint32_t state_of(Progress progress) {
    const auto [it, is_new] =
        states_.emplace(std::move(progress), static_cast<uint32_t>(draft_.states.size()));
    if (is_new) {
      draft_.states.emplace_back();
      order_.push_back(it);
    }
    return it->second;
  }

  void fill(const Progress& at, uint32_t state) {
    bool accepts = true;
    for (size_t i = 0; i < contains_.size(); ++i)
      accepts &= at.counts[i] >= contains_[i].window.min;
    draft_.states[state].accepts = accepts;
    Conjunction item;
    goals_.budget().spend(of_items_.size());
    for (const Atom& atom : of_items_) {
      if (atom.kind == AtomKind::kItem ? atom.index == at.place : atom.index <= at.place)
        item.push_back(atom.schema);
    }
    Progress next = at;
    next.place = std::min(at.place + 1, last_place_);
    choose(0, at, std::move(item), std::move(next), state);
  }

  // Adds an edge for each way in which the `contains` atoms from the i-th on may count the item.
  void choose(size_t i, const Progress& at, Conjunction item, Progress next, uint32_t state) {
    if (i == contains_.size()) {
      add_edge(std::move(item), std::move(next), state);
      return;
    }
    const Atom& contains = contains_[i];
    const CountWindow& window = contains.window;
    const bool bounded = window.max != kNoLimit;
    const bool decided = at.place < contains.index || (!bounded && at.counts[i] >= window.min);
    if (decided) return choose(i + 1, at, std::move(item), std::move(next), state);
    Conjunction other = item;
    if (bounded) other.push_back(!contains.schema);
    choose(i + 1, at, std::move(other), next, state);
    if (at.counts[i] >= window.max) return;
    item.push_back(contains.schema);
    ++next.counts[i];
    choose(i + 1, at, std::move(item), std::move(next), state);
  }

  void add_edge(Conjunction item, Progress next, uint32_t state) {
    const uint32_t goal = goals_.goal_of(
        std::move(item), draft_.unique ? ValueSpelling::kCanonical : ValueSpelling::kAny);
    if (goal == kNone) return;
    const uint32_t target = state_of(std::move(next));
    draft_.states[state].edges.push_back({goal, target});
  }

  GoalMaker& goals_;
  ArrayDraft draft_;
  std::vector<Atom> of_items_, contains_;
  std::optional<uint32_t> unique_;
  uint32_t last_place_ = 0;
  std::map<Progress, uint32_t> states_;
  std::vector<std::map<Progress, uint32_t>::const_iterator> order_;
};

}  // namespace

Compiled<ArrayDraft> draft_array(GoalMaker& goals, const Clause& clause) {
  return ArrayDrafter(goals, clause).run();
}

}  // namespace penstock::grammar
