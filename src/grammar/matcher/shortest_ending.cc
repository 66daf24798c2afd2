#include "grammar/matcher/shortest_ending.h"

#include <algorithm>
#include <functional>
#include <memory>
#include <queue>
#include <unordered_set>
#include <utility>

namespace penstock::grammar {

using Op = Instruction::Op;

namespace {

constexpr uint64_t kMostMembers = 4096;  // counted individually
// limit for recursive programs; unresolved costs become kNoEnding
constexpr int kMostRounds = 1000;

// Subtracts bytes that are already written or never will be.
uint64_t less(uint64_t cost, uint64_t bytes) {
  return cost >= kNoEnding ? kNoEnding : cost - bytes;
}

// Returns the remainders of the list's texts that begin with so_far.
std::vector<std::string_view> rests_of(uint32_t list, std::string_view so_far, const Stack* stack) {
  std::vector<std::string_view> rests;
  for (; list != kNone; list = stack->used(list).next) {
    const Stack::Used& used = stack->used(list);
    const std::string_view text = stack->text(used.begin, used.begin + used.size);
    if (text.starts_with(so_far)) rests.push_back(text.substr(so_far.size()));
  }
  return rests;
}

}  // namespace

ShortestEndings::ShortestEndings(const Program& program) : program_(program) {
  WorkMeter work;
  const auto add = [this](const std::shared_ptr<const Lexeme>& lexeme) {
    if (lexeme == nullptr) return;
    auto& known = lexemes_[lexeme.get()];
    if (known == nullptr) known = std::make_unique<LexemeEndings>(*lexeme);
  };
  for (const Leaf& leaf : program.leaves) add(leaf.lexeme);
  for (const ObjectGraph& graph : program.objects) {
    add(graph.other_keys);
    objects_.emplace_back(graph.states.size(), kNoEnding);
    keys_.push_back(graph.other_keys == nullptr
                        ? kNoEnding
                        : fresh_key(graph, graph.other_keys->start(), "", kNone, nullptr, work));
  }
  for (const ArrayGraph& graph : program.arrays)
    arrays_.emplace_back(graph.states.size(), kNoEnding);
  code_.assign(program.code.size(), kNoEnding);
  symbols_.assign(program.symbols.size(), kNoEnding);
  goals_.assign(program.goals.size(), kNoEnding);
  if (!known()) return;
  relax(work);
  known_ = !work.failed();
}

bool ShortestEndings::known() const {
  const auto differing_keys = [](const ObjectGraph& graph) {
    return graph.any_order || (graph.other_keys != nullptr && graph.members.min > 1);
  };
  // White space required by a whitespace_pattern is not part of the costs.
  const bool json = !program_.goals.empty();
  for (uint32_t state = ByteDfa::kDead + 1; json && state < program_.space->dfa.n_states();
       ++state) {
    if (program_.space->dfa.tag(state) == 0) return false;
  }
  return std::ranges::none_of(program_.objects, differing_keys) &&
         std::ranges::none_of(program_.arrays, [](const ArrayGraph& graph) {
           return graph.unique && graph.items.min > 1;
         });
}

uint64_t ShortestEndings::fresh_key(const ObjectGraph& graph, uint32_t state,
                                    std::string_view so_far, uint32_t used, const Stack* stack,
                                    WorkMeter& work) const {
  const ByteDfa* const reserved =
      graph.reserved_keys == nullptr ? nullptr : &graph.reserved_keys->dfa;
  return FreshEnding(endings(*graph.other_keys), reserved, work)
      .of(state, 0, reserved == nullptr ? ByteDfa::kDead : reserved->run(reserved->start(), so_far),
          rests_of(used, so_far, stack));
}

uint64_t ShortestEndings::fresh_item(const UniqueLeaf& unique, uint32_t state, uint64_t count,
                                     std::string_view so_far, uint32_t used,
                                     const Stack& stack) const {
  const auto& [lexeme, window] = program_.leaves[unique.leaf];
  if (state == ByteDfa::kDead || count > window.max) return kNoEnding;
  return FreshEnding(endings(*lexeme), nullptr, stack.work())
      .of(state, window.after(count).min, ByteDfa::kDead, rests_of(used, so_far, &stack));
}

uint64_t ShortestEndings::detour(const ObjectGraph& graph, const Frame& frame,
                                 const Stack& stack) const {
  if (graph.other_keys == nullptr || frame.used == kNone) return 0;
  const uint64_t fresh =
      fresh_key(graph, graph.other_keys->start(), "", frame.used, &stack, stack.work());
  return fresh >= kNoEnding ? kNoEnding
                            : fresh - keys_[static_cast<size_t>(&graph - program_.objects.data())];
}

void ShortestEndings::relax(WorkMeter& work) {
  for (int round = 0; round < kMostRounds && !work.failed(); ++round) {
    bool changed = relax_objects(work);
    changed |= relax_arrays(work);
    changed |= relax_goals(work);
    changed |= relax_code(work);
    if (!changed) return;
  }
}

uint64_t ShortestEndings::of_leaf(uint32_t leaf, uint32_t state, uint64_t count) const {
  const auto& [lexeme, window] = program_.leaves[leaf];
  if (state == ByteDfa::kDead || count > window.max) return kNoEnding;
  return endings(*lexeme).of(state, window.after(count).min);
}

uint64_t ShortestEndings::of_leaf(uint32_t leaf) const {
  return of_leaf(leaf, program_.leaves[leaf].lexeme->start(), 0);
}

bool ShortestEndings::relax_code(WorkMeter& work) {
  bool changed = false;
  for (size_t at = program_.code.size(); at-- > 0 && work.spend(1);) {
    const Instruction& instruction = program_.code[at];
    uint64_t cost = kNoEnding;
    switch (instruction.op) {
      case Op::kMatch: cost = sum_of_bytes(of_leaf(instruction.a), code_[instruction.b]); break;
      case Op::kCall: cost = sum_of_bytes(symbols_[instruction.a], code_[instruction.b]); break;
      case Op::kToken: cost = sum_of_bytes(1, code_[instruction.b]); break;
      case Op::kReturn: cost = 0; break;
      case Op::kSplit:
        work.spend(instruction.b - instruction.a);
        for (uint32_t i = instruction.a; i < instruction.b; ++i)
          cost = std::min(cost, code_[program_.targets[i]]);
        break;
    }
    changed |= lower(code_[at], cost);
  }
  for (size_t i = 0; i < symbols_.size(); ++i) {
    const Symbol& symbol = program_.symbols[i];
    switch (symbol.kind) {
      case Symbol::Kind::kGoal: changed |= lower(symbols_[i], goals_[symbol.index]); break;
      case Symbol::Kind::kRule: changed |= lower(symbols_[i], code_[symbol.index]); break;
      case Symbol::Kind::kRepetition: {
        const Repetition& repetition = program_.repetitions[symbol.index];
        const uint64_t body = symbols_[repetition.body];
        const bool known = repetition.min == 0 || body < kNoEnding / std::max(1U, repetition.min);
        changed |= lower(symbols_[i], known ? repetition.min * body : kNoEnding);
      }
    }
  }
  return changed;
}

bool ShortestEndings::relax_goals(WorkMeter& work) {
  bool changed = false;
  for (size_t i = 0; i < goals_.size() && work.spend(1); ++i) {
    const Goal& goal = program_.goals[i];
    for (const uint32_t leaf : goal.strings)
      changed |= lower(goals_[i], sum_of_bytes(1, of_leaf(leaf)));
    for (const uint32_t leaf : goal.scalars) changed |= lower(goals_[i], of_leaf(leaf));
    for (const uint32_t graph : goal.objects) {
      const ObjectGraph& object = program_.objects[graph];
      const bool empty = object.states[object.start].accepts && object.members.min == 0;
      // The first member has no comma.
      const uint64_t open = objects_after(graph, object.members.min, work)[object.start];
      changed |= lower(goals_[i], empty ? 2 : open);
    }
    for (const uint32_t graph : goal.arrays) {
      const ArrayGraph& array = program_.arrays[graph];
      const bool empty = array.states[array.start].accepts && array.items.min == 0;
      const uint64_t open = arrays_after(graph, array.items.min, work)[array.start];
      changed |= lower(goals_[i], empty ? 2 : open);
    }
  }
  return changed;
}

// Cost of a comma, the quotation marks, the colon, the value, and what follows.
uint64_t ShortestEndings::member(const ObjectGraph& graph, uint64_t key_bytes, uint32_t list,
                                 const Costs& behind) const {
  uint64_t best = kNoEnding;
  const IndexRange edges = graph.edge_lists[list];
  for (uint32_t i = edges.begin; i < edges.end; ++i) {
    const ValueEdge& e = graph.edges[i];
    best = std::min(best, sum_of_bytes(goals_[e.goal], behind[e.target]));
  }
  return sum_of_bytes(best, key_bytes + 3);
}

// behind: costs with one required member less; null: none is required.
uint64_t ShortestEndings::object_state(const ObjectGraph& graph, uint32_t at, const Costs& here,
                                       const Costs* behind) const {
  const ObjectGraph::State& state = graph.states[at];
  const Costs& next = behind != nullptr ? *behind : here;
  uint64_t best = state.accepts && behind == nullptr ? 1 : kNoEnding;
  if (state.skipped != kNone) best = std::min(best, here[state.skipped]);
  if (state.values != kNone) {
    best = std::min(best, member(graph, graph.slot_texts[state.slot].size(), state.values, next));
  }
  if (graph.other_keys != nullptr && state.slot == kNone) {
    const uint64_t key = keys_[static_cast<size_t>(&graph - program_.objects.data())];
    uint64_t worst = 0;  // the label of the shortest key is not known
    for (uint32_t list = state.labels.begin; list < state.labels.end; ++list)
      worst = std::max(worst, member(graph, key, list, next));
    if (state.labels.size() > 0) best = std::min(best, worst);
  }
  return best;
}

bool ShortestEndings::relax_objects(WorkMeter& work) {
  bool changed = false;
  for (size_t i = 0; i < objects_.size(); ++i) {
    const ObjectGraph& graph = program_.objects[i];
    if (graph.any_order || !work.spend(1 + graph.states.size() + graph.edges.size())) continue;
    for (uint32_t state = static_cast<uint32_t>(graph.states.size()); state-- > 0;)
      changed |= lower(objects_[i][state], object_state(graph, state, objects_[i], nullptr));
  }
  return changed;
}

ShortestEndings::Costs ShortestEndings::objects_after(uint32_t index, uint64_t n,
                                                      WorkMeter& work) const {
  const ObjectGraph& graph = program_.objects[index];
  Costs costs = objects_[index];
  work.spend(costs.size() / 8);
  if (n > kMostMembers) return Costs(costs.size(), kNoEnding);
  for (; n > 0; --n) {
    Costs next(costs.size(), kNoEnding);
    for (bool changed = true; changed;) {
      changed = false;
      if (!work.spend(1 + costs.size() + graph.edges.size())) return Costs(costs.size(), kNoEnding);
      for (uint32_t state = static_cast<uint32_t>(costs.size()); state-- > 0;)
        changed |= lower(next[state], object_state(graph, state, next, &costs));
    }
    costs = std::move(next);
  }
  return costs;
}

uint64_t ShortestEndings::array_state(const ArrayGraph& graph, uint32_t at,
                                      const Costs* behind) const {
  const ArrayGraph::State& state = graph.states[at];
  uint64_t best = state.accepts && behind == nullptr ? 1 : kNoEnding;
  const Costs& next =
      behind != nullptr ? *behind : arrays_[static_cast<size_t>(&graph - program_.arrays.data())];
  for (uint32_t i = state.edges.begin; i < state.edges.end; ++i) {
    const ValueEdge& e = graph.edges[i];
    best = std::min(best, sum_of_bytes(1 + goals_[e.goal], next[e.target]));
  }
  return best;
}

bool ShortestEndings::relax_arrays(WorkMeter& work) {
  bool changed = false;
  for (size_t i = 0; i < arrays_.size(); ++i) {
    if (!work.spend(1 + program_.arrays[i].states.size() + program_.arrays[i].edges.size())) break;
    for (uint32_t state = static_cast<uint32_t>(arrays_[i].size()); state-- > 0;)
      changed |= lower(arrays_[i][state], array_state(program_.arrays[i], state, nullptr));
  }
  return changed;
}

ShortestEndings::Costs ShortestEndings::arrays_after(uint32_t index, uint64_t n,
                                                     WorkMeter& work) const {
  Costs costs = arrays_[index];
  work.spend(costs.size() / 8);
  if (n > kMostMembers) return Costs(costs.size(), kNoEnding);
  for (; n > 0; --n) {
    if (!work.spend(1 + costs.size() + program_.arrays[index].edges.size()))
      return Costs(costs.size(), kNoEnding);
    Costs next(costs.size());
    for (uint32_t state = 0; state < costs.size(); ++state)
      next[state] = array_state(program_.arrays[index], state, &costs);
    costs = std::move(next);
  }
  return costs;
}

uint64_t ShortestEndings::rest_of_object(const Item& item, const Stack& stack) const {
  const ObjectGraph& graph = program_.objects[item.index()];
  const Frame& frame = stack.frame(item.data);
  const uint64_t left = graph.members.after(frame.count).min;
  switch (item.kind()) {
    case Point::kObjectNext:
      return sum_of_bytes(objects_after(item.index(), left, stack.work())[frame.state],
                          left > 0 ? detour(graph, frame, stack) : 0);
    case Point::kColon: {
      const Costs behind = objects_after(item.index(), left > 0 ? left - 1 : 0, stack.work());
      return less(member(graph, 0, item.count, behind), 2);
    }
    // a key is required or possible; its comma is written, or there is none
    default: {
      const bool may_close =
          item.kind() == Point::kObjectOpen && graph.states[frame.state].accepts && left == 0;
      if (may_close) return 1;
      const uint64_t n = std::max<uint64_t>(left, 1);
      return sum_of_bytes(less(objects_after(item.index(), n, stack.work())[frame.state], 1),
                          detour(graph, frame, stack));
    }
  }
}

uint64_t ShortestEndings::rest_of_key(const Item& item, const Stack& stack) const {
  const ObjectGraph& graph = program_.objects[item.index()];
  const Frame& frame = stack.frame(item.data);
  const ObjectRules rules(graph, frame, stack);
  const uint64_t left = graph.members.after(frame.count).min;
  const Costs behind = objects_after(item.index(), left > 0 ? left - 1 : 0, stack.work());
  uint64_t best = kNoEnding;
  if (item.kind() == Point::kOtherKey) {
    const std::string_view so_far = stack.text(item.start, stack.position());
    const uint64_t key = fresh_key(graph, item.state, so_far, frame.used, &stack, stack.work());
    const IndexRange labels = graph.states[graph.states[frame.state].rest].labels;
    uint64_t worst = 0;
    for (uint32_t label = 0; label < labels.size(); ++label) {
      const uint32_t list = rules.other_values(label);
      if (list != kNone)
        worst = std::max(worst, sum_of_bytes(key, less(member(graph, 0, list, behind), 2)));
    }
    return worst == 0 ? kNoEnding : worst;
  }
  struct Visit {
    uint32_t state;
    uint64_t bytes;
  };
  const ByteDfa& keys = graph.slot_keys->dfa;
  std::vector<Visit> open{{item.state, 0}};
  while (!open.empty() && stack.work().spend(1)) {
    const Visit at = open.back();
    open.pop_back();
    if (keys.tag(at.state) != 0) {
      const uint32_t list = rules.slot_values(keys.tag(at.state) - 1);
      if (list != kNone)
        best = std::min(best, sum_of_bytes(at.bytes, less(member(graph, 0, list, behind), 2)));
    }
    for (const ByteEdge& e : keys.edges(at.state)) open.push_back({e.target, at.bytes + 1});
  }
  return best;
}

// After a comma.
uint64_t ShortestEndings::rest_of_unique_item(const Item& item, const Stack& stack) const {
  const ArrayGraph& graph = program_.arrays[item.index()];
  const Frame& frame = stack.frame(item.data);
  uint64_t best = kNoEnding;
  const IndexRange leaves = graph.states[frame.state].unique_leaves;
  for (uint32_t i = leaves.begin; i < leaves.end; ++i) {
    const UniqueLeaf& unique = program_.unique_leaves[i];
    const uint32_t start = program_.leaves[unique.leaf].lexeme->start();
    const std::string_view so_far = unique.quoted ? "\"" : "";
    const uint64_t leaf = fresh_item(unique, start, 0, so_far, frame.used, stack);
    best = std::min(best, sum_of_bytes(so_far.size() + leaf, arrays_[item.index()][unique.target]));
  }
  return best;
}

uint64_t ShortestEndings::rest_of_array(const Item& item, const Stack& stack) const {
  const bool in_leaf = item.kind() == Point::kUniqueLeaf;
  const uint32_t index = in_leaf ? program_.unique_leaves[item.index()].array : item.index();
  const ArrayGraph& graph = program_.arrays[index];
  const Frame& frame = stack.frame(item.data);
  const uint64_t left = graph.items.after(frame.count).min;
  switch (item.kind()) {
    case Point::kArrayNext: return arrays_after(index, left, stack.work())[frame.state];
    case Point::kUniqueLeaf: {
      const UniqueLeaf& unique = program_.unique_leaves[item.index()];
      const Costs behind = arrays_after(index, left > 0 ? left - 1 : 0, stack.work());
      const std::string_view so_far = stack.text(item.start, stack.position());
      const uint64_t leaf = fresh_item(unique, item.state, item.count, so_far, frame.used, stack);
      return sum_of_bytes(leaf, behind[unique.target]);
    }
    case Point::kUniqueItem: return rest_of_unique_item(item, stack);
    default: {
      const bool may_close =
          item.kind() == Point::kArrayOpen && graph.states[frame.state].accepts && left == 0;
      if (may_close) return 1;
      return less(arrays_after(index, std::max<uint64_t>(left, 1), stack.work())[frame.state], 1);
    }
  }
}

// Returns the cost up to the end of the item's node.
uint64_t ShortestEndings::rest(const Item& item, const Stack& stack) const {
  switch (item.kind()) {
    case Point::kScan: {
      const Instruction& instruction = program_.code[item.index()];
      return sum_of_bytes(of_leaf(instruction.a, item.state, item.count), code_[instruction.b]);
    }
    case Point::kPlay: return code_[item.index()];
    case Point::kToken: return sum_of_bytes(1, code_[program_.code[item.index()].b]);
    case Point::kLeaf: return of_leaf(item.index(), item.state, item.count);
    case Point::kValue: return goals_[item.index()];
    case Point::kRepeat: {
      const Repetition& repetition = program_.repetitions[item.index()];
      const uint64_t rounds = repetition.min > item.count ? repetition.min - item.count : 0;
      const uint64_t body = symbols_[repetition.body];
      return rounds == 0 ? 0 : body < kNoEnding / rounds ? rounds * body : kNoEnding;
    }
    case Point::kSlotKey:
    case Point::kOtherKey: return rest_of_key(item, stack);
    case Point::kArrayOpen:
    case Point::kArrayNext:
    case Point::kUniqueItem:
    case Point::kUniqueLeaf: return rest_of_array(item, stack);
    default: return rest_of_object(item, stack);
  }
}

// Dijkstra's algorithm from the open items to the end of the text; each node is visited once.
uint64_t ShortestEndings::of(std::span<const Item> items, bool complete, const Stack& stack) const {
  if (complete) return 0;
  if (!known_) return kNoEnding;
  using Way = std::pair<uint64_t, uint32_t>;  // cost to the end of a node, and the node
  std::priority_queue<Way, std::vector<Way>, std::greater<>> open;
  std::unordered_set<uint32_t> done;
  const auto go_on = [&](uint64_t bytes, const Item& item) {
    const uint64_t sum = stack.work().spend(1) ? sum_of_bytes(bytes, rest(item, stack)) : kNoEnding;
    if (sum < kNoEnding && !done.contains(item.node)) open.push({sum, item.node});
  };
  for (const Item& item : items) go_on(0, item);
  while (!open.empty()) {
    const auto [bytes, node] = open.top();
    open.pop();
    if (node == kNone) return stack.work().failed() ? kNoEnding : bytes;
    if (!done.insert(node).second) continue;
    for (uint32_t i = stack.node(node).callers; i != kNone; i = stack.caller(i).next)
      go_on(bytes, stack.caller(i).resume);
  }
  return kNoEnding;
}

}  // namespace penstock::grammar
