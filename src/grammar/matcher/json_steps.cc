// Steps of a Stepper through objects and arrays.
#include "grammar/matcher/stepper.h"

namespace penstock::grammar {

// After "{", after a member, or after a comma.
void Stepper::object_next(const Item& item, uint8_t byte) {
  if (space(item, byte) || !after_space(item)) return;
  const ObjectRules rules = object_rules(item);
  const Point kind = item.kind();
  position_ = stack_.position();
  if (byte == '"' && kind != Point::kObjectNext) {
    begin_key(item);
  } else if (byte == '}' && kind != Point::kObjectKey && rules.may_close()) {
    end_node(item.node);
  } else if (byte == ',' && kind == Point::kObjectNext && rules.may_continue()) {
    Item key = item;
    key.point = point_of(Point::kObjectKey, item.index());
    key.state = space_start();
    add(key);
  }
}

void Stepper::begin_key(const Item& item) {
  const ObjectGraph& graph = program_.objects[item.index()];
  const ObjectRules rules = object_rules(item);
  if (rules.any_slot()) {
    add({.point = point_of(Point::kSlotKey, item.index()),
         .state = graph.slot_keys->start(),
         .data = item.data,
         .node = item.node,
         .start = graph.any_order ? stack_.position() : 0});
  }
  if (rules.any_other()) {
    add({.point = point_of(Point::kOtherKey, item.index()),
         .state = graph.other_keys->start(),
         .data = item.data,
         .node = item.node,
         .start = stack_.position()});
  }
}

void Stepper::slot_key(Item item, uint8_t byte) {
  const ObjectGraph& graph = program_.objects[item.index()];
  const ByteDfa& keys = graph.slot_keys->dfa;
  const uint32_t state = keys.step(item.state, byte);
  if (state == ByteDfa::kDead) return;
  looked_at_used_ |= graph.any_order;
  const ObjectRules rules = object_rules(item);
  if (keys.tag(state) == 0) {
    item.state = state;
    if (rules.slot_key_alive(state)) add(item);
    return;
  }
  const uint32_t values = rules.slot_values(keys.tag(state) - 1);
  if (values == kNone) return;
  if (graph.any_order) return end_counted_key(item, values);
  add({.point = point_of(Point::kColon, item.index()),
       .state = gap_start(),
       .count = values,
       .data = item.data,
       .node = item.node,
       .start = stack_.frame(item.data).used});
}

void Stepper::other_key(Item item, uint8_t byte) {
  const ByteDfa& keys = program_.objects[item.index()].other_keys->dfa;
  const uint32_t state = keys.step(item.state, byte) & ~ByteDfa::kEndsChar;
  if (state == ByteDfa::kDead) return;
  looked_at_used_ = true;
  const ObjectRules rules = object_rules(item);
  const std::string_view key = stack_.text(item.start, stack_.position());
  if (keys.tag(state) == 0) {
    item.state = state;
    if (rules.other_key_alive(state, key)) add(item);
    return;
  }
  const uint32_t values = rules.other_values(keys.tag(state) - 1);
  if (values != kNone && rules.other_key_accepts(state, key)) end_counted_key(item, values);
}

// Ends a key that must not be repeated at the current position.
void Stepper::end_counted_key(const Item& item, uint32_t values) {
  add({.point = point_of(Point::kColon, item.index()),
       .state = gap_start(),
       .count = values,
       .data = item.data,
       .node = item.node,
       .start = stack_.add_used(stack_.frame(item.data).used, item.start,
                                stack_.position() - item.start)});
}

void Stepper::colon(const Item& item, uint8_t byte) {
  if (space(item, byte) || byte != ':' || !after_space(item)) return;
  position_ = stack_.position();
  const ObjectGraph& graph = program_.objects[item.index()];
  looked_at_used_ |= !graph.label_keys.empty();
  const IndexRange edges = graph.edge_lists[item.count];
  for (uint32_t i = edges.begin; i < edges.end; ++i) {
    const ObjectRules rules = object_rules(item);
    const ValueEdge& edge = graph.edges[i];
    if (!rules.fits(item.count, edge)) continue;
    const uint32_t frame = frame_like(item.data, rules.after(item.count, edge.target, item.start));
    call_goal(edge.goal, {.point = point_of(Point::kObjectNext, item.index()),
                          .state = gap_start(),
                          .data = frame,
                          .node = item.node});
  }
}

void Stepper::array_open(const Item& item, uint8_t byte) {
  if (space(item, byte) || !after_space(item)) return;
  if (byte == ']') {
    position_ = stack_.position();
    if (array_rules(item).may_close()) end_node(item.node);
    return;
  }
  const ArrayGraph& graph = program_.arrays[item.index()];
  if (graph.unique) {
    unique_item(item, byte);
    return;
  }
  const IndexRange edges = graph.states[stack_.frame(item.data).state].edges;
  for (uint32_t i = edges.begin; i < edges.end; ++i) {
    const ValueEdge& edge = graph.edges[i];
    if (!program_.goals[edge.goal].first_bytes[byte] || !array_rules(item).fits(edge)) continue;
    const uint32_t frame = frame_like(item.data, array_rules(item).after(edge.target, kNone));
    const Item next{.point = point_of(Point::kArrayNext, item.index()),
                    .state = gap_start(),
                    .data = frame,
                    .node = item.node};
    // This byte begins the value: call its goal at the position before it.
    bool is_new = false;
    const uint32_t node = node_for(Stack::kInJson | edge.goal, stack_.position() - 1, next, is_new);
    if (!is_new) continue;
    position_ = stack_.position() - 1;
    begin_value(edge.goal, node, byte);
  }
}

void Stepper::array_next(const Item& item, uint8_t byte) {
  if (space(item, byte) || !after_space(item)) return;
  position_ = stack_.position();
  const ArrayRules rules = array_rules(item);
  if (byte == ']' && rules.may_close()) end_node(item.node);
  if (byte == ',' && rules.may_continue()) begin_items(item);
}

// After a comma.
void Stepper::begin_items(const Item& item) {
  const ArrayGraph& graph = program_.arrays[item.index()];
  if (graph.unique) {
    Item next = item;
    next.point = point_of(Point::kUniqueItem, item.index());
    next.state = space_start();
    add(next);
    return;
  }
  const IndexRange edges = graph.states[stack_.frame(item.data).state].edges;
  for (uint32_t i = edges.begin; i < edges.end; ++i) {
    const ArrayRules rules = array_rules(item);
    const ValueEdge& edge = graph.edges[i];
    if (!rules.fits(edge)) continue;
    const uint32_t frame = frame_like(item.data, rules.after(edge.target, kNone));
    call_goal(edge.goal, {.point = point_of(Point::kArrayNext, item.index()),
                          .state = gap_start(),
                          .data = frame,
                          .node = item.node});
  }
}

void Stepper::unique_item(const Item& item, uint8_t byte) {
  if (item.kind() == Point::kUniqueItem && (space(item, byte) || !after_space(item))) return;
  const ArrayGraph& graph = program_.arrays[item.index()];
  const ArrayGraph::State& state = graph.states[stack_.frame(item.data).state];
  if (!array_rules(item).may_continue()) return;
  for (uint32_t i = state.unique_leaves.begin; i < state.unique_leaves.end; ++i) {
    const UniqueLeaf& unique = program_.unique_leaves[i];
    const Leaf& leaf = program_.leaves[unique.leaf];
    const Item begun{.point = point_of(Point::kUniqueLeaf, i),
                     .state = leaf.lexeme->start(),
                     .data = item.data,
                     .node = item.node,
                     .start = stack_.position() - 1};
    if (!unique.quoted) {
      unique_leaf(begun, byte);
    } else if (byte == '"' && ArrayRules(graph, stack_.frame(item.data), stack_, program_)
                                  .item_alive(leaf, begun.state, 0, "\"")) {
      add(begun);
    }
  }
}

void Stepper::unique_leaf(Item item, uint8_t byte) {
  const UniqueLeaf& unique = program_.unique_leaves[item.index()];
  const Leaf& leaf = program_.leaves[unique.leaf];
  const uint32_t next = leaf.lexeme->dfa.step(item.state, byte);
  item.state = next & ~ByteDfa::kEndsChar;
  item.count += (next & ByteDfa::kEndsChar) != 0;
  if (item.state == ByteDfa::kDead) return;
  looked_at_used_ = true;
  const std::string_view text = stack_.text(item.start, stack_.position());
  const ArrayRules rules(program_.arrays[unique.array], stack_.frame(item.data), stack_, program_);
  const bool accepts = rules.item_accepts(leaf, item.state, item.count, text);
  if (!leaf.lexeme->dfa.is_final(item.state) &&
      rules.item_alive(leaf, item.state, item.count, text))
    add(item);
  if (accepts) end_unique(item);
}

// Ends a unique item at the current position.
void Stepper::end_unique(const Item& item) {
  const UniqueLeaf& unique = program_.unique_leaves[item.index()];
  const Frame before = stack_.frame(item.data);
  const Frame after = ArrayRules(program_.arrays[unique.array], before, stack_, program_)
                          .after(unique.target, kNone);
  const uint32_t used = stack_.add_used(before.used, item.start, stack_.position() - item.start);
  const uint32_t frame = frame_for({after.state, after.count, used});
  add({.point = point_of(Point::kArrayNext, unique.array),
       .state = gap_start(),
       .data = frame,
       .node = item.node});
}

}  // namespace penstock::grammar
