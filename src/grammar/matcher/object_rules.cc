#include "grammar/matcher/object_rules.h"

#include <algorithm>

#include "grammar/regex/char_dfa.h"

namespace penstock::grammar {
namespace {

uint32_t capped(uint64_t n) { return static_cast<uint32_t>(std::min<uint64_t>(n, kManyWords)); }

// Lexeme::has_more_words(), charged to the work meter.
bool has_more_words(const Stack& stack, const Lexeme& lexeme, uint32_t state, uint64_t count,
                    const CountWindow& window, uint64_t n) {
  constexpr uint64_t kPerOperation = 4;  // texts
  const uint32_t wanted = capped(n);
  return stack.work().spend(1 + wanted / kPerOperation) &&
         lexeme.has_more_words(state, count, window, wanted);
}

bool has_more_words(const Stack& stack, const Lexeme& lexeme, uint64_t n) {
  return has_more_words(stack, lexeme, lexeme.start(), 0, {}, n);
}

// Clamps a count to what the window distinguishes.
uint32_t counted(uint32_t count, const CountWindow& window) {
  if (window.trivial()) return 0;
  if (window.max == kNoLimit && count >= window.min) return count;
  return count + (count < kNone);
}

}  // namespace

bool ObjectRules::may_close() const {
  if (graph_.any_order) {
    return graph_.states[frame_.state].accepts && frame_.count == graph_.n_required &&
           stack_.n_used(frame_.used) >= graph_.members.min;
  }
  return graph_.states[frame_.state].accepts && frame_.count >= graph_.members.min;
}

// Returns the label of another key; kNone: no label, or the key of a slot.
uint32_t ObjectRules::label_of(std::string_view key) const {
  const ByteDfa& others = graph_.other_keys->dfa;
  const uint32_t tag = others.tag(others.run(others.start(), key));
  if (tag == 0) return kNone;
  if (graph_.slot_keys == nullptr) return tag - 1;
  const ByteDfa& slots = graph_.slot_keys->dfa;
  return slots.tag(slots.run(slots.start(), key)) != 0 ? kNone : tag - 1;
}

// Whether the member that leads to the target leaves enough unused keys for all required members
// without a fixed name.
bool ObjectRules::leaves_scarce_keys(uint32_t list, uint32_t target) const {
  const uint32_t rest = graph_.states[frame_.state].rest;
  if (graph_.states[target].needs == 0 || graph_.label_keys.empty() || rest == kNone) return true;
  const IndexRange labels = graph_.states[rest].labels;
  if (list < labels.begin || list >= labels.end) return true;
  if (graph_.label_keys[list - labels.begin] == kNone) return true;
  std::vector<uint32_t> n_left = graph_.label_keys;
  for (uint32_t at = frame_.used; at != kNone && stack_.work().spend(1);
       at = stack_.used(at).next) {
    const Stack::Used& used = stack_.used(at);
    const uint32_t label = label_of(stack_.text(used.begin, used.begin + used.size));
    if (label != kNone && n_left[label] != kNone) --n_left[label];
  }
  if (n_left[list - labels.begin] == 0) return false;
  --n_left[list - labels.begin];
  return finds_keys(target, n_left);
}

// Whether n_left unused keys of each label are enough for the required members without a fixed name
// that are missing in the state. One member may satisfy several requirements.
bool ObjectRules::finds_keys(uint32_t state, std::vector<uint32_t>& n_left) const {
  const uint32_t needs = graph_.states[state].needs;
  if (needs == 0) return true;
  const IndexRange labels = graph_.states[state].labels;
  for (uint32_t label = 0; label < labels.size(); ++label) {
    if (n_left[label] == 0) continue;
    const uint32_t before = n_left[label];
    if (before != kNone) --n_left[label];
    const IndexRange edges = graph_.edge_lists[labels.begin + label];
    for (uint32_t i = edges.begin; i < edges.end && stack_.work().spend(1); ++i) {
      const uint32_t target = graph_.edges[i].target;
      // the first missing one: their order does not matter
      const bool found = (needs & ~graph_.states[target].needs & (~needs + 1)) != 0;
      if (found && finds_keys(target, n_left)) return true;
    }
    n_left[label] = before;
  }
  return false;
}

bool ObjectRules::fits(uint32_t list, const ValueEdge& edge) const {
  if (!leaves_scarce_keys(list, edge.target)) return false;
  if (graph_.members.trivial()) return true;
  if (graph_.any_order) {
    const IndexRange slots = graph_.states[frame_.state].slot_lists;
    const Came now = came();
    if (list < slots.begin || list >= slots.end)
      return finishes(edge.target, {now.all + 1, now.slots, now.required});
    const bool required = graph_.required[list - slots.begin];
    return finishes(edge.target, {now.all + 1, now.slots + 1, now.required + (required ? 1 : 0)});
  }
  const CountWindow left = graph_.members.after(frame_.count);
  return left.max > 0 && graph_.lengths.any_within(edge.target, left.after(1));
}

bool ObjectRules::any_fits(uint32_t list, bool as_slot) const {
  if (list == kNone) return false;
  const uint64_t min = graph_.members.after(frame_.count).min;
  const auto ok = [&](const ValueEdge& e) {
    return fits(list, e) &&
           (!as_slot || graph_.any_order ||
            enough_keys(e.target, min > 0 ? min - 1 : 0, stack_.n_used(frame_.used)));
  };
  const IndexRange edges = graph_.edge_lists[list];
  return std::any_of(graph_.edges.begin() + edges.begin, graph_.edges.begin() + edges.end, ok);
}

// Whether `need` more members are possible from the state: slots, and unused other keys.
bool ObjectRules::enough_keys(uint32_t state, uint64_t need, uint32_t n_used) const {
  const uint32_t slots = graph_.states[state].most_slots;
  if (graph_.many_keys || need <= slots) return true;
  if (graph_.other_keys == nullptr) return false;
  const uint64_t wanted = need - slots + graph_.n_reserved + n_used;
  return has_more_words(stack_, *graph_.other_keys, wanted - 1);
}

uint32_t ObjectRules::slot_values(uint32_t slot) const {
  const ObjectGraph::State* state = &graph_.states[frame_.state];
  if (graph_.any_order) {
    const uint32_t list = state->slot_lists.begin + slot;
    const IndexRange edges = graph_.edge_lists[list];
    if (edges.empty() || stack_.is_used(frame_.used, graph_.slot_texts[slot])) return kNone;
    // all edges lead to the same state
    return fits(list, graph_.edges[edges.begin]) ? list : kNone;
  }
  if (state->slot == kNone || slot < state->slot || slot > state->last_slot) return kNone;
  for (; state->slot != slot; state = &graph_.states[state->skipped]) stack_.work().spend(1);
  return any_fits(state->values, true) ? state->values : kNone;
}

bool ObjectRules::any_slot() const {
  const ObjectGraph::State* state = &graph_.states[frame_.state];
  for (uint32_t slot = 0; slot < state->slot_lists.size() && stack_.work().spend(1); ++slot) {
    if (slot_values(slot) != kNone) return true;
  }
  while (state->slot != kNone && stack_.work().spend(1)) {
    if (any_fits(state->values, true)) return true;
    if (state->skipped == kNone) return false;
    state = &graph_.states[state->skipped];
  }
  return false;
}

bool ObjectRules::any_other() const {
  const uint32_t rest = graph_.states[frame_.state].rest;
  if (rest == kNone || graph_.other_keys == nullptr) return false;
  const IndexRange labels = graph_.states[rest].labels;
  bool any = false;
  for (uint32_t list = labels.begin; list < labels.end && !any; ++list) any = any_fits(list, false);
  if (any && graph_.any_order) {
    const Came now = came();
    return enough_others(1, now.all - now.slots);
  }
  if (!any || graph_.many_keys) return any;
  return enough_others(std::max<uint64_t>(graph_.members.after(frame_.count).min, 1),
                       stack_.n_used(frame_.used));
}

// Whether `need` other keys are unused when n_used were used.
bool ObjectRules::enough_others(uint64_t need, uint32_t n_used) const {
  if (graph_.other_keys == nullptr) return false;
  return graph_.many_keys ||
         has_more_words(stack_, *graph_.other_keys, need - 1 + graph_.n_reserved + n_used);
}

ObjectRules::Came ObjectRules::came() const {
  const uint32_t all = stack_.n_used(frame_.used);
  return {all, all - n_others_used(""), frame_.count};
}

// Whether the object can be completed: undecided slots take one of the numbers in `finishes`, free
// slots are optional unless required, and the rest must be other keys, at least n_others.
bool ObjectRules::finishes(uint32_t state_index, const Came& so_far) const {
  if (graph_.members.trivial()) return true;
  const ObjectGraph::State& state = graph_.states[state_index];
  if (so_far.all > graph_.members.max || state.n_others == kNone) return false;
  const CountWindow left = graph_.members.after(so_far.all);
  const uint64_t required = graph_.n_required - so_far.required, free = state.n_free - so_far.slots;
  for (uint32_t i = state.finishes.begin; i < state.finishes.end; ++i) {
    const uint64_t n = graph_.finishes[i];
    if (required + n + state.n_others > left.max) break;
    if (n + free >= left.min || enough_others(left.min - n - free, so_far.all - so_far.slots))
      return true;
  }
  return false;
}

// Returns the number of used other keys with the prefix.
uint32_t ObjectRules::n_others_used(std::string_view prefix) const {
  if (!graph_.any_order || graph_.slot_keys == nullptr)
    return stack_.n_used_with(frame_.used, prefix);
  const ByteDfa& slots = graph_.slot_keys->dfa;
  uint32_t n = 0;
  for (uint32_t list = frame_.used; list != kNone && stack_.work().spend(1);
       list = stack_.used(list).next) {
    const Stack::Used& used = stack_.used(list);
    const std::string_view text = stack_.text(used.begin, used.begin + used.size);
    n += text.starts_with(prefix) && slots.tag(slots.run(slots.start(), text)) == 0;
  }
  return n;
}

uint32_t ObjectRules::other_values(uint32_t label) const {
  const uint32_t rest = graph_.states[frame_.state].rest;
  if (rest == kNone) return kNone;
  const uint32_t list = graph_.states[rest].labels.begin + label;
  return any_fits(list, false) ? list : kNone;
}

bool ObjectRules::slot_key_alive(uint32_t state) const {
  // Walks the reserved keys; most are ruled out after a few bytes.
  const ByteDfa& keys = graph_.slot_keys->dfa;
  for (uint32_t at = state; at != ByteDfa::kDead && stack_.work().spend(1);) {
    if (keys.tag(at) != 0) return slot_values(keys.tag(at) - 1) != kNone;
    const auto edges = keys.edges(at);
    if (edges.size() == 1) {
      at = edges.front().target;
      continue;
    }
    return std::any_of(edges.begin(), edges.end(),
                       [&](const ByteEdge& e) { return slot_key_alive(e.target); });
  }
  return false;
}

bool ObjectRules::other_key_alive(uint32_t state, std::string_view so_far) const {
  if (state == ByteDfa::kDead) return false;
  if (graph_.other_keys->any_content) return true;  // a longer key always exists
  uint32_t taken = n_others_used(so_far);
  if (graph_.reserved_keys != nullptr) {
    const ByteDfa& reserved = graph_.reserved_keys->dfa;
    const uint32_t at = reserved.run(reserved.start(), so_far);
    if (at != ByteDfa::kDead) {
      for (uint32_t n = 0;
           n < graph_.n_reserved && has_more_words(stack_, *graph_.reserved_keys, at, 0, {}, n);
           ++n)
        ++taken;
    }
  }
  return taken == 0 || has_more_words(stack_, *graph_.other_keys, state, 0, {}, taken);
}

bool ObjectRules::other_key_accepts(uint32_t state, std::string_view key) const {
  if (graph_.other_keys->dfa.tag(state) == 0 || stack_.is_used(frame_.used, key)) return false;
  if (graph_.reserved_keys == nullptr) return true;
  const ByteDfa& reserved = graph_.reserved_keys->dfa;
  return reserved.tag(reserved.run(reserved.start(), key)) == 0;
}

Frame ObjectRules::after(uint32_t list, uint32_t target, uint32_t used) const {
  if (graph_.any_order) {
    const IndexRange slots = graph_.states[frame_.state].slot_lists;
    const bool required =
        list >= slots.begin && list < slots.end && graph_.required[list - slots.begin];
    return {target, frame_.count + (required ? 1 : 0), used};
  }
  return {target, counted(frame_.count, graph_.members), used};
}

bool ArrayRules::may_close() const {
  return graph_.states[frame_.state].accepts && frame_.count >= graph_.items.min;
}

bool ArrayRules::enough_items(uint32_t goal, uint64_t need) const {
  if (!graph_.unique) return true;
  // Used items of other leaves are counted too, so that this may be stricter than necessary.
  uint64_t wanted = need + stack_.n_used(frame_.used);
  for (const auto* leaves : {&program_.goals[goal].strings, &program_.goals[goal].scalars}) {
    for (const uint32_t leaf : *leaves) {
      const auto& [lexeme, window] = program_.leaves[leaf];
      const uint32_t most = capped(wanted);
      if (!stack_.work().spend(1 + most / 4)) return false;
      const uint32_t words = lexeme->count_words(lexeme->start(), 0, window, most);
      if (words == most) return true;
      wanted -= words;
    }
  }
  return false;
}

bool ArrayRules::fits(const ValueEdge& edge) const {
  const CountWindow left = graph_.items.after(frame_.count);
  if (!graph_.items.trivial() &&
      (left.max == 0 || !graph_.lengths.any_within(edge.target, left.after(1))))
    return false;
  return enough_items(edge.goal, std::max<uint64_t>(left.min, 1));
}

bool ArrayRules::may_continue() const {
  const IndexRange edges = graph_.states[frame_.state].edges;
  for (uint32_t i = edges.begin; i < edges.end; ++i) {
    if (fits(graph_.edges[i])) return true;
  }
  return false;
}

Frame ArrayRules::after(uint32_t target, uint32_t used) const {
  return {target, counted(frame_.count, graph_.items), used};
}

bool ArrayRules::item_alive(const Leaf& leaf, uint32_t state, uint64_t count,
                            std::string_view so_far) const {
  if (!leaf.lexeme->alive(state, count, leaf.window)) return false;
  const uint32_t taken = stack_.n_used_with(frame_.used, so_far);
  return taken == 0 || has_more_words(stack_, *leaf.lexeme, state, count, leaf.window, taken);
}

bool ArrayRules::item_accepts(const Leaf& leaf, uint32_t state, uint64_t count,
                              std::string_view item) const {
  return leaf.lexeme->accepts(state, count, leaf.window) && !stack_.is_used(frame_.used, item);
}

}  // namespace penstock::grammar
