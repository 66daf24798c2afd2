// Converts the completable parts of drafts to tables of a program.
#include <algorithm>
#include <numeric>
#include <set>
#include <unordered_map>

#include "grammar/schema/goal_drafts.h"
#include "grammar/schema/other_keys.h"
#include "grammar/schema/references.h"

namespace penstock::grammar {
namespace {

uint32_t at_most_many(uint64_t n) { return n < kManyWords ? static_cast<uint32_t>(n) : kManyWords; }

// Whether the leaves have `wanted` words; subtracts those that they have.
bool has_words(const std::vector<Leaf>& leaves, const std::vector<uint32_t>& list,
               uint64_t& wanted) {
  for (const uint32_t i : list) {
    const auto& [lexeme, window] = leaves[i];
    wanted -= lexeme->count_words(lexeme->start(), 0, window, at_most_many(wanted));
    if (wanted == 0) return true;
  }
  return false;
}

class Finisher {
 public:
  Finisher(const Drafts& drafts, ExprPool& exprs, Budget& budget, Program& program)
      : drafts_(drafts), exprs_(exprs), budget_(budget), program_(program) {}

  Compiled<uint32_t> run() {
    find_possible();
    if (failed_) return tl::unexpected(std::move(refusal_));
    if (!goals_[0]) return kNone;
    base_ = static_cast<uint32_t>(program_.goals.size());
    program_.goals.resize(base_ + drafts_.goals.size());
    for (size_t goal = 0; goal < drafts_.goals.size() && !failed_; ++goal) {
      if (budget_.exhausted()) fail(too_large(kTooMuchWork).value());
      if (goals_[goal]) finish_goal(drafts_.goals[goal], program_.goals[base_ + goal]);
    }
    if (failed_) return tl::unexpected(std::move(refusal_));
    return base_;
  }

 private:
  void fail(Refusal refusal) {
    if (!failed_) refusal_ = std::move(refusal);
    failed_ = true;
  }

  // Finds the goals that have values, as a least fixed point, so that infinite recursion has none.
  void find_possible() {
    goals_.assign(drafts_.goals.size(), false);
    find_users();
    std::vector<uint32_t> todo(drafts_.goals.size());
    std::iota(todo.begin(), todo.end(), 0);
    std::vector<bool> waits(todo.size(), true);
    while (!todo.empty() && !failed_) {
      const uint32_t goal = todo.back();
      todo.pop_back();
      waits[goal] = false;
      if (budget_.exhausted()) return fail(too_large(kTooMuchWork).value());
      if (goals_[goal] || !possible(drafts_.goals[goal])) continue;
      goals_[goal] = true;
      for (const uint32_t user : users_[goal]) {
        if (!goals_[user] && !waits[user]) todo.push_back(user);
        if (!goals_[user]) waits[user] = true;
      }
    }
  }

  void find_users() {
    users_.resize(drafts_.goals.size());
    for (uint32_t goal = 0; goal < drafts_.goals.size(); ++goal) {
      const auto use = [&](const std::vector<ValueEdge>& edges) {
        for (const ValueEdge& e : edges) {
          if (users_[e.goal].empty() || users_[e.goal].back() != goal)
            users_[e.goal].push_back(goal);
        }
      };
      for (const uint32_t i : drafts_.goals[goal].arrays) {
        for (const auto& state : drafts_.arrays[i].states) use(state.edges);
      }
      for (const uint32_t i : drafts_.goals[goal].objects) {
        for (const auto& state : drafts_.objects[i].states) {
          use(state.values);
          for (const auto& list : state.labels) use(list);
          for (const auto& list : state.any) use(list);
        }
      }
    }
  }

  bool possible(const GoalDraft& goal) {
    if (!goal.strings.empty() || !goal.scalars.empty()) return true;
    return std::any_of(goal.arrays.begin(), goal.arrays.end(),
                       [&](uint32_t i) { return possible(drafts_.arrays[i]); }) ||
           std::any_of(goal.objects.begin(), goal.objects.end(),
                       [&](uint32_t i) { return possible(drafts_.objects[i]); });
  }

  // Returns the states from which a draft can be completed, disregarding counts.
  template <class Draft, class Visit>
  std::vector<bool> alive(const Draft& draft, const Visit& visit) const {
    std::vector<bool> live(draft.states.size(), false);
    for (bool changed = true; changed;) {
      changed = false;
      if (!budget_.spend(live.size())) return live;
      for (size_t i = live.size(); i-- > 0;) {
        if (live[i]) continue;
        bool now = draft.states[i].accepts;
        visit(draft.states[i], [&](uint32_t target, bool can) { now |= can && live[target]; });
        changed |= now;
        live[i] = now;
      }
    }
    return live;
  }

  std::vector<bool> alive(const ArrayDraft& draft) const {
    return alive(draft, [&](const ArrayDraft::State& state, const auto& to) {
      for (const ValueEdge& e : state.edges) to(e.target, goals_[e.goal]);
    });
  }
  std::vector<bool> alive(const ObjectDraft& draft) const {
    return alive(draft, [&](const ObjectDraft::State& state, const auto& to) {
      if (state.skipped != kNone) to(state.skipped, true);
      for (const ValueEdge& e : state.values) to(e.target, goals_[e.goal]);
      for (const auto* lists : {&state.labels, &state.any}) {
        for (const auto& list : *lists) {
          for (const ValueEdge& e : list) to(e.target, goals_[e.goal]);
        }
      }
    });
  }

  // Returns the edges that lead to completion; their goals are draft indices.
  std::vector<ValueEdge> kept(const std::vector<ValueEdge>& edges,
                              const std::vector<bool>& live) const {
    std::vector<ValueEdge> result;
    budget_.spend(1 + edges.size());
    for (const ValueEdge& e : edges) {
      if (goals_[e.goal] && live[e.target]) result.push_back(e);
    }
    return result;
  }

  CompletionLengths lengths_of(const CompletionLengths::Graph& graph) {
    auto lengths = CompletionLengths::of(graph, budget_);
    if (lengths) return *std::move(lengths);
    fail(std::move(lengths).error());
    return {};
  }

  CompletionLengths::Graph counting(const ArrayDraft& draft, const std::vector<bool>& live) const {
    CompletionLengths::Graph graph;
    for (const auto& state : draft.states) {
      auto& to = graph.successors.emplace_back();
      for (const ValueEdge& e : kept(state.edges, live)) to.push_back(e.target);
      graph.accepts.push_back(state.accepts);
    }
    return graph;
  }

  // Returns the graph for counting: a step is a member, from a state or from one reached by
  // skipping.
  CompletionLengths::Graph counting(const ObjectDraft& draft, const std::vector<bool>& live) const {
    CompletionLengths::Graph graph;
    for (const auto& first : draft.states) {
      auto& to = graph.successors.emplace_back();
      bool accepts = false;
      const ObjectDraft::State* state = &first;
      while (true) {
        accepts |= state->accepts;
        for (const ValueEdge& e : kept(state->values, live)) to.push_back(e.target);
        for (const auto& list : state->labels) {
          for (const ValueEdge& e : kept(list, live)) to.push_back(e.target);
        }
        if (state->skipped == kNone) break;
        state = &draft.states[state->skipped];
      }
      std::sort(to.begin(), to.end());
      to.erase(std::unique(to.begin(), to.end()), to.end());
      graph.accepts.push_back(accepts);
    }
    return graph;
  }

  bool possible(const ArrayDraft& draft) {
    const std::vector<bool> live = alive(draft);
    if (!live[0]) return false;
    if (!draft.items.trivial() && !lengths_of(counting(draft, live)).any_within(0, draft.items))
      return false;
    return !draft.unique || draft.items.min == 0 || enough_words(draft);
  }

  bool enough_words(const ArrayDraft& draft) {
    uint64_t wanted = draft.items.min;
    std::vector<uint32_t> goals;
    for (const auto& state : draft.states) {
      for (const ValueEdge& e : state.edges) goals.push_back(e.goal);
    }
    std::sort(goals.begin(), goals.end());
    goals.erase(std::unique(goals.begin(), goals.end()), goals.end());
    for (const uint32_t goal : goals) {
      const GoalDraft& g = drafts_.goals[goal];
      if (has_words(program_.leaves, g.strings, wanted) ||
          has_words(program_.leaves, g.scalars, wanted))
        return true;
    }
    return false;
  }

  bool possible(const ObjectDraft& draft) {
    const std::vector<bool> live = alive(draft);
    if (!live[0]) return false;
    if (keys_differ(draft, goals_)) {
      fail({RefusalKind::kUnsupported, "", "",
            "an object of at most so many members must have some that patterns tell and no name: "
            "it depends on a key which"});
      return false;
    }
    if (draft.any_order)
      return has_required(draft, live) && comes_within(draft, live) && finds_existing(draft, live);
    if (!finds_existing(draft, live)) return false;
    if (draft.members.trivial()) return true;
    if (!lengths_of(counting(draft, live)).any_within(0, draft.members)) return false;
    if (draft.members.min <= draft.slots.size()) return true;
    ObjectGraph graph;
    graph.slot_texts = draft.slot_texts();
    make_other_keys(draft, live, graph);
    return graph.many_keys || enough_other_keys(graph, draft.members.min - draft.slots.size());
  }

  // A required member does not change the state, so that it can come in the first state.
  bool has_required(const ObjectDraft& draft, const std::vector<bool>& live) const {
    for (size_t slot = 0; slot < draft.slots.size(); ++slot) {
      if (draft.required[slot] && kept(draft.states[0].any[slot], live).empty()) return false;
    }
    return true;
  }

  // Whether all existences can be satisfied together: there are enough other keys, of which
  // ObjectRules keeps enough unused.
  bool finds_existing(const ObjectDraft& draft, const std::vector<bool>& live) {
    return always_finds(draft, live) ||
           finds_keys(draft, leads_on(live), label_keys(draft), budget_);
  }

  EdgeTest leads_on(const std::vector<bool>& live) const {
    return [this, &live](const ValueEdge& e) { return goals_[e.goal] && live[e.target]; };
  }

  void set_scarce_keys(const ObjectDraft& draft, const std::vector<bool>& live,
                       ObjectGraph& graph) {
    for (uint32_t state = 0; state < draft.states.size(); ++state)
      graph.states[state].needs = draft.needs(state);
    if (!always_finds(draft, live)) graph.label_keys = label_keys(draft);
  }

  // Whether each existence can be satisfied by keys that are too many to run out.
  bool always_finds(const ObjectDraft& draft, const std::vector<bool>& live) {
    for (uint32_t i = 0; i < draft.n_existences; ++i) {
      if (n_keys(draft, finding_labels(draft, i, leads_on(live))) != kNone) return false;
    }
    return true;
  }

  // Returns the number of other keys by label.
  const std::vector<uint32_t>& label_keys(const ObjectDraft& draft) {
    const auto [known, is_new] = label_keys_.try_emplace(&draft);
    if (!is_new) return known->second;
    for (size_t label = 0; label < draft.labels.size(); ++label) {
      std::vector<bool> alone(draft.labels.size(), false);
      alone[label] = true;
      known->second.push_back(n_keys(draft, alone));
    }
    return known->second;
  }

  // Whether members in any order can reach a count within the bounds.
  bool comes_within(const ObjectDraft& draft, const std::vector<bool>& live) {
    if (draft.members.trivial()) return true;
    ObjectGraph graph;
    graph.states.resize(draft.states.size());
    set_any_order(draft, live, graph);
    graph.slot_texts = draft.slot_texts();
    make_other_keys(draft, live, graph);
    const ObjectGraph::State& start = graph.states[0];
    if (start.n_others == kNone) return false;
    for (uint32_t i = start.finishes.begin; i < start.finishes.end; ++i) {
      const uint64_t n = graph.finishes[i];
      if (graph.n_required + n + start.n_others > draft.members.max) break;
      const uint64_t slots = n + start.n_free;
      if (slots >= draft.members.min || graph.many_keys ||
          enough_other_keys(graph, draft.members.min - slots))
        return true;
    }
    return false;
  }

  static bool enough_other_keys(const ObjectGraph& graph, uint64_t need) {
    if (graph.other_keys == nullptr) return false;
    return graph.other_keys->has_more_words(at_most_many(need - 1 + graph.n_reserved));
  }

  void finish_goal(const GoalDraft& draft, Goal& goal) {
    goal.strings = draft.strings;
    goal.scalars = draft.scalars;
    for (const uint32_t i : draft.arrays) {
      if (!possible(drafts_.arrays[i])) continue;
      goal.arrays.push_back(static_cast<uint32_t>(program_.arrays.size()));
      finish(drafts_.arrays[i]);
    }
    for (const uint32_t i : draft.objects) {
      if (!possible(drafts_.objects[i])) continue;
      goal.objects.push_back(static_cast<uint32_t>(program_.objects.size()));
      finish(drafts_.objects[i]);
    }
    if (!goal.strings.empty()) goal.first_bytes.set('"');
    if (!goal.arrays.empty()) goal.first_bytes.set('[');
    if (!goal.objects.empty()) goal.first_bytes.set('{');
    for (const uint32_t leaf : goal.scalars) {
      const Lexeme& lexeme = *program_.leaves[leaf].lexeme;
      for (const ByteEdge& e : lexeme.dfa.edges(lexeme.start())) {
        for (int byte = e.first; byte <= e.last; ++byte) goal.first_bytes.set(byte);
      }
    }
  }

  void add_edges(const std::vector<ValueEdge>& edges, std::vector<ValueEdge>& to) const {
    for (const ValueEdge& e : edges) to.push_back({base_ + e.goal, e.target});
  }

  void finish(const ArrayDraft& draft) {
    const std::vector<bool> live = alive(draft);
    const auto index = static_cast<uint32_t>(program_.arrays.size());
    ArrayGraph graph;
    graph.items = draft.items;
    graph.unique = draft.unique;
    for (const auto& state : draft.states) {
      ArrayGraph::State& out = graph.states.emplace_back();
      const std::vector<ValueEdge> edges = kept(state.edges, live);
      out.accepts = state.accepts;
      out.edges = {static_cast<uint32_t>(graph.edges.size()),
                   static_cast<uint32_t>(graph.edges.size() + edges.size())};
      add_edges(edges, graph.edges);
      if (draft.unique) out.unique_leaves = unique_leaves(edges, index);
    }
    if (!draft.items.trivial()) graph.lengths = lengths_of(counting(draft, live));
    program_.arrays.push_back(std::move(graph));
  }

  IndexRange unique_leaves(const std::vector<ValueEdge>& edges, uint32_t array) {
    const auto begin = static_cast<uint32_t>(program_.unique_leaves.size());
    for (const ValueEdge& e : edges) {
      const GoalDraft& goal = drafts_.goals[e.goal];
      for (const uint32_t leaf : goal.strings)
        program_.unique_leaves.push_back({array, leaf, e.target, true});
      for (const uint32_t leaf : goal.scalars)
        program_.unique_leaves.push_back({array, leaf, e.target, false});
    }
    return {begin, static_cast<uint32_t>(program_.unique_leaves.size())};
  }

  void finish(const ObjectDraft& draft) {
    const std::vector<bool> live = alive(draft);
    ObjectGraph graph;
    graph.members = draft.members;
    const auto add_list = [&](const std::vector<ValueEdge>& all) {
      const std::vector<ValueEdge> edges = kept(all, live);
      graph.edge_lists.push_back({static_cast<uint32_t>(graph.edges.size()),
                                  static_cast<uint32_t>(graph.edges.size() + edges.size())});
      add_edges(edges, graph.edges);
      return static_cast<uint32_t>(graph.edge_lists.size() - 1);
    };
    for (const auto& state : draft.states) {
      ObjectGraph::State& out = graph.states.emplace_back();
      out.slot = state.slot;
      if (state.skipped != kNone && live[state.skipped]) out.skipped = state.skipped;
      if (!kept(state.values, live).empty()) out.values = add_list(state.values);
      out.labels.begin = static_cast<uint32_t>(graph.edge_lists.size());
      for (const auto& list : state.labels) add_list(list);
      out.labels.end = static_cast<uint32_t>(graph.edge_lists.size());
      for (const auto& list : state.any) add_list(list);
      out.slot_lists = {out.labels.end, static_cast<uint32_t>(graph.edge_lists.size())};
      out.accepts = state.accepts;
    }
    summarize(draft, graph);
    if (draft.any_order) set_any_order(draft, live, graph);
    if (!draft.members.trivial() && !draft.any_order)
      graph.lengths = lengths_of(counting(draft, live));
    graph.slot_texts = draft.slot_texts();
    make_slot_keys(draft, graph);
    make_other_keys(draft, live, graph);
    set_scarce_keys(draft, live, graph);
    program_.objects.push_back(std::move(graph));
  }

  // Computes what skipping leads to, from the last slots to the first.
  static void summarize(const ObjectDraft& draft, ObjectGraph& graph) {
    std::vector<uint32_t> order(draft.states.size());
    std::iota(order.begin(), order.end(), 0);
    std::stable_sort(order.begin(), order.end(), [&](uint32_t a, uint32_t b) {
      return draft.states[a].slot > draft.states[b].slot;
    });
    for (const uint32_t i : order) {
      ObjectGraph::State& state = graph.states[i];
      if (state.slot == kNone) {
        state.rest = i;
        continue;
      }
      state.last_slot = state.slot;
      if (state.values != kNone) {
        const IndexRange edges = graph.edge_lists[state.values];
        for (uint32_t e = edges.begin; e < edges.end; ++e) {
          state.most_slots =
              std::max(state.most_slots, 1 + graph.states[graph.edges[e].target].most_slots);
        }
      }
      if (state.skipped == kNone) continue;
      const ObjectGraph::State& next = graph.states[state.skipped];
      if (next.last_slot != kNone) state.last_slot = next.last_slot;
      state.rest = next.rest;
      state.accepts = next.accepts;
      state.most_slots = std::max(state.most_slots, next.most_slots);
    }
  }

  void set_any_order(const ObjectDraft& draft, const std::vector<bool>& live, ObjectGraph& graph) {
    graph.any_order = true;
    graph.required = draft.required;
    graph.n_required =
        static_cast<uint32_t>(std::count(draft.required.begin(), draft.required.end(), true));
    if (draft.members.trivial()) return;
    // Each member that matters reduces the number of undecided slots.
    std::vector<uint32_t> order(draft.states.size());
    std::iota(order.begin(), order.end(), 0);
    std::ranges::stable_sort(order, {},
                             [&](uint32_t i) { return draft.states[i].undecided.size(); });
    std::vector<std::vector<bool>> numbers(draft.states.size());
    for (const uint32_t i : order) {
      const ObjectDraft::State& state = draft.states[i];
      numbers[i] = finishing(draft, live, i, numbers);
      ObjectGraph::State& out = graph.states[i];
      out.finishes.begin = static_cast<uint32_t>(graph.finishes.size());
      for (uint32_t n = 0; n < numbers[i].size(); ++n) {
        if (numbers[i][n]) graph.finishes.push_back(n);
      }
      out.finishes.end = static_cast<uint32_t>(graph.finishes.size());
      for (uint32_t slot = 0; slot < draft.slots.size(); ++slot)
        out.n_free +=
            !std::ranges::binary_search(state.undecided, slot) && usable(draft, live, i, slot);
    }
    count_needed_others(draft, live, graph);
  }

  // Computes the minimum number of other members that satisfy the outstanding existences.
  void count_needed_others(const ObjectDraft& draft, const std::vector<bool>& live,
                           ObjectGraph& graph) {
    if (draft.n_existences == 0) return;
    const uint32_t all = (1U << draft.n_existences) - 1;
    for (size_t i = 0; i < draft.states.size(); ++i)
      graph.states[i].n_others = draft.states[i].satisfied == all ? 0 : kNone;
    const std::vector<uint32_t>& n_keys = label_keys(draft);
    for (bool changed = true; changed;) {
      changed = false;
      if (!budget_.spend(draft.states.size() * draft.labels.size())) return;
      for (size_t i = 0; i < draft.states.size(); ++i) {
        for (size_t label = 0; label < draft.labels.size(); ++label) {
          if (n_keys[label] == 0) continue;
          for (const ValueEdge& e : kept(draft.states[i].labels[label], live)) {
            const uint32_t behind = graph.states[e.target].n_others;
            if (behind == kNone || behind + 1 >= graph.states[i].n_others) continue;
            graph.states[i].n_others = behind + 1;
            changed = true;
          }
        }
      }
    }
  }

  bool usable(const ObjectDraft& draft, const std::vector<bool>& live, uint32_t state,
              uint32_t slot) const {
    return std::ranges::any_of(draft.states[state].any[slot], [&](const ValueEdge& e) {
      return goals_[e.goal] && live[e.target];
    });
  }

  // Returns which numbers of undecided slots may come before the object ends. numbers: results of
  // the states with fewer undecided slots.
  std::vector<bool> finishing(const ObjectDraft& draft, const std::vector<bool>& live,
                              uint32_t index, const std::vector<std::vector<bool>>& numbers) {
    const ObjectDraft::State& state = draft.states[index];
    std::vector<bool> result(state.undecided.size() + 1, false);
    result[0] = state.ends;
    for (const uint32_t slot : state.undecided) {
      for (const ValueEdge& e : kept(state.any[slot], live)) {
        const auto& left = draft.states[e.target].undecided;
        uint32_t n_freed = 0;
        for (const uint32_t other : state.undecided) {
          n_freed += other != slot && !std::ranges::binary_search(left, other) &&
                     usable(draft, live, e.target, other);
        }
        const std::vector<bool>& behind = numbers[e.target];
        if (!budget_.spend(state.undecided.size() + behind.size() * (1 + n_freed))) return result;
        for (size_t n = 0; n < behind.size(); ++n) {
          for (uint32_t freed = 0; behind[n] && freed <= n_freed; ++freed)
            result[n + 1 + freed] = true;
        }
      }
    }
    return result;
  }

  static void make_slot_keys(const ObjectDraft& draft, ObjectGraph& graph) {
    std::vector<bool> possible(draft.slots.size(), false);
    for (const auto& state : graph.states) {
      if (state.values != kNone) possible[state.slot] = true;
      for (uint32_t i = 0; i < state.slot_lists.size(); ++i) {
        if (!graph.edge_lists[state.slot_lists.begin + i].empty()) possible[i] = true;
      }
    }
    std::vector<TaggedText> texts;
    for (uint32_t slot = 0; slot < draft.slots.size(); ++slot) {
      if (possible[slot]) texts.push_back({graph.slot_texts[slot], slot + 1});
    }
    if (texts.empty()) return;
    auto lexeme = std::make_shared<Lexeme>();
    lexeme->dfa = make_literal_dfa(std::move(texts));
    graph.slot_keys = std::move(lexeme);
  }

  void make_other_keys(const ObjectDraft& draft, const std::vector<bool>& live,
                       ObjectGraph& graph) {
    std::vector<bool> usable(draft.labels.size(), false);
    for (const auto& state : draft.states) {
      for (size_t label = 0; label < state.labels.size(); ++label) {
        if (!usable[label]) usable[label] = !kept(state.labels[label], live).empty();
      }
    }
    if (std::none_of(usable.begin(), usable.end(), [](bool u) { return u; })) return;
    // With a single label, the mask of all strings can be shared.
    const bool any_key = draft.labels.size() == 1;
    graph.other_keys = any_key ? CommonLexemes::get().canonical_string : other_keys(draft, usable);
    if (graph.other_keys == nullptr) return;
    std::vector<TaggedText> taken;
    const ByteDfa& keys = graph.other_keys->dfa;
    for (const std::string& key : graph.slot_texts) {
      if (keys.tag(keys.run(keys.start(), key)) != 0) taken.push_back({key, 1});
    }
    graph.n_reserved = static_cast<uint32_t>(taken.size());
    graph.many_keys = any_key || graph.other_keys->has_more_texts(kManyWords);
    if (taken.empty()) return;
    auto reserved = std::make_shared<Lexeme>();
    reserved->dfa = make_literal_dfa(std::move(taken));
    graph.reserved_keys = std::move(reserved);
  }

  std::shared_ptr<const Lexeme> other_keys(const ObjectDraft& draft,
                                           const std::vector<bool>& labels) {
    auto keys = other_keys_of(draft, labels, exprs_, budget_);
    if (keys) return *std::move(keys);
    fail(std::move(keys).error());
    return nullptr;
  }
  uint32_t n_keys(const ObjectDraft& draft, const std::vector<bool>& labels) {
    const auto n = count_other_keys(draft, labels, exprs_, budget_);
    if (n) return *n;
    fail(n.error());
    return 0;
  }

  const Drafts& drafts_;
  ExprPool& exprs_;
  Budget& budget_;
  Program& program_;
  uint32_t base_ = 0;                         // first index of the goals in the program
  std::vector<bool> goals_;                   // whether they have values
  std::vector<std::vector<uint32_t>> users_;  // by goal
  std::unordered_map<const ObjectDraft*, std::vector<uint32_t>> label_keys_;
  bool failed_ = false;
  Refusal refusal_;
};

}  // namespace

Compiled<uint32_t> finish_goals(const Drafts& drafts, ExprPool& exprs, Budget& budget,
                                Program& program) {
  return Finisher(drafts, exprs, budget, program).run();
}

}  // namespace penstock::grammar
