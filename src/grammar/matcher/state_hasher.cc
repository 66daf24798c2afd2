#include "grammar/matcher/state_hasher.h"

#include "base/text_hash.h"
#include "grammar/vocabulary/lexeme_masks.h"

namespace penstock::grammar {
namespace {

uint64_t of_window(const CountWindow& window) { return mix(window.min, window.max); }

uint64_t left_of(const CountWindow& window, uint64_t count, size_t n_sets) {
  return window.trivial() ? 0 : of_window(clipped(window.after(count), kLongestToken + n_sets));
}

}  // namespace

StateHash StateHasher::of(std::span<const Item> items, bool complete) {
  hash_nodes();
  StateHash sum{complete, 0};
  for (const Item& item : items) {  // independent of the order of items
    const StateHash one = of_item(item, kNone);
    sum.a += one.a;
    sum.b += one.b;
  }
  return sum;
}

// Nodes of one step may call each other in cycles and are hashed as a group, in which members are
// represented by what they call. Older nodes already have hashes.
void StateHasher::hash_nodes() {
  while (nodes_.size() < stack_.n_nodes()) {
    const auto first = static_cast<uint32_t>(nodes_.size());
    uint32_t last = first;
    while (last < stack_.n_nodes() && stack_.node(last).step == stack_.node(first).step) ++last;
    StateHash group{1, 2};
    for (uint32_t i = first; i < last; ++i) {
      StateHash callers{3, 4};
      for (uint32_t c = stack_.node(i).callers; c != kNone; c = stack_.caller(c).next) {
        stack_.work().spend(1);
        const StateHash one = of_item(stack_.caller(c).resume, first);
        callers.a += one.a;
        callers.b += one.b;
      }
      StateHash one = of_node(i, first);
      one.add(callers);
      group.a += one.a;
      group.b += one.b;
    }
    for (uint32_t i = first; i < last; ++i) {
      StateHash hash = of_node(i, first);
      hash.add(group);
      nodes_.push_back(hash);
    }
  }
}

// Hashes a reference to a node: within the group, by its callee and position; older nodes by their
// hash.
StateHash StateHasher::of_node(uint32_t node, uint32_t group) const {
  if (node == kNone) return {5, 6};
  if (node < group && node < nodes_.size()) return nodes_[node];
  StateHash hash;
  hash.add(stack_.node(node).key);
  hash.add(stack_.node(node).step - stack_.node(node).position);
  return hash;
}

uint64_t StateHasher::of_frame(const Item& item) const {
  const Frame& frame = stack_.frame(item.data);
  uint64_t count = 0;
  switch (item.kind()) {
    case Point::kArrayOpen:
    case Point::kArrayNext:
    case Point::kUniqueItem:
    case Point::kUniqueLeaf: {
      const uint32_t index = item.kind() == Point::kUniqueLeaf
                                 ? program_.unique_leaves[item.index()].array
                                 : item.index();
      const ArrayGraph& graph = program_.arrays[index];
      count = left_of(graph.items, frame.count, graph.lengths.n_sets());
      if (graph.unique) count = frame.count;
      break;
    }
    default: {
      const ObjectGraph& graph = program_.objects[item.index()];
      count = graph.many_keys && !graph.any_order
                  ? left_of(graph.members, frame.count, graph.lengths.n_sets())
                  : frame.count;
    }
  }
  return mix(mix(frame.state, count), of_used(frame.used));
}

uint64_t StateHasher::of_count(const Item& item) const {
  if (item.kind() != Point::kScan && item.kind() != Point::kLeaf) return item.count;
  const uint32_t index = item.kind() == Point::kScan ? program_.code[item.index()].a : item.index();
  const Leaf& leaf = program_.leaves[index];
  return left_of(leaf.window, item.count, leaf.lexeme->lengths.n_sets());
}

StateHash StateHasher::of_item(const Item& item, uint32_t group) const {
  StateHash hash;
  hash.add(item.point);
  hash.add(item.state);
  hash.add(of_count(item));
  hash.add(of_node(item.node, group));
  switch (item.kind()) {
    case Point::kObjectOpen:
    case Point::kObjectNext:
    case Point::kObjectKey:
    case Point::kSlotKey:
    case Point::kArrayOpen:
    case Point::kArrayNext:
    case Point::kUniqueItem: hash.add(of_frame(item)); break;
    case Point::kColon:
      hash.add(of_frame(item));
      hash.add(of_used(item.start));
      break;
    case Point::kOtherKey:
    case Point::kUniqueLeaf:
      hash.add(of_frame(item));
      hash.add(text_hash(stack_.text(item.start, stack_.position())));
      break;
    default: break;
  }
  return hash;
}

}  // namespace penstock::grammar
