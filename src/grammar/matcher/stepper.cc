#include "grammar/matcher/stepper.h"

namespace penstock::grammar {

using Op = Instruction::Op;

namespace {

constexpr uint32_t kEndOfNode =
    point_of(Point::kPlay, 0xFFFFFFF);  // invalid instruction, represents an ended node

}  // namespace

void Stepper::begin() {
  first_item_ = static_cast<uint32_t>(items_.size());
  first_node_ = stack_.n_nodes();
  position_ = stack_.position();
  complete_ = false;
  seen_.clear();
  called_.clear();
  frames_.clear();
  if (stack_.memory() + items_.size() * sizeof(Item) > WorkMeter::kMostMemory)
    stack_.work().fail(WorkMeter::Failure::kMemory);
}

Config Stepper::result() {
  merge_.run(first_item_);
  if (!stack_.work().failed())
    return {first_item_, static_cast<uint32_t>(items_.size()), complete_};
  todo_.clear();
  return {first_item_, first_item_};
}

Config Stepper::joined(const Config& a, const Config& b) {
  begin();
  complete_ = a.complete || b.complete;
  for (const Config& config : {a, b}) {
    for (uint32_t i = config.begin; i < config.end; ++i) add(Item(items_[i]));
  }
  return result();
}

Config Stepper::finish() {
  settle();
  return result();
}

Config Stepper::start() {
  begin();
  call(program_.root, {.point = point_of(Point::kPlay, 0), .node = kNone});
  return finish();
}

Config Stepper::step(const Config& from, uint8_t byte) {
  begin();
  stack_.add_byte(byte);
  for (uint32_t i = from.begin; i < from.end && may_go_on(); ++i) {
    const Item item = items_[i];  // a copy: the list grows
    position_ = stack_.position() - 1;
    advance(item, byte);
    position_ = stack_.position();
    settle();
  }
  return finish();
}

Config Stepper::step_token(const Config& from, TokenId token) {
  begin();
  // represents the token, so that its node is not empty
  stack_.add_byte(0);
  position_ = stack_.position();
  for (uint32_t i = from.begin; i < from.end; ++i) {
    const Item item = items_[i];
    if (item.kind() != Point::kToken) continue;
    const Instruction& instruction = program_.code[item.index()];
    if (instruction.a != static_cast<uint32_t>(token)) continue;
    play({.point = point_of(Point::kPlay, instruction.b), .node = item.node});
    settle();
  }
  return finish();
}

Config Stepper::ended(const Item& item, uint32_t tag) {
  begin();
  switch (item.kind()) {
    case Point::kOtherKey: {
      const uint32_t values = object_rules(item).other_values(tag - 1);
      if (values != kNone) end_counted_key(item, values);
      break;
    }
    case Point::kUniqueLeaf: end_unique(item); break;
    default: end_lexeme(item);
  }
  return finish();
}

Config Stepper::ended(std::span<const Item> scans, std::span<const Item> beside) {
  begin();
  for (const Item& item : scans) end_lexeme(item);
  settle();
  for (const Item& item : beside) add(item);
  return finish();
}

void Stepper::end_lexeme(const Item& item) {
  if (item.kind() == Point::kLeaf) return end_node(item.node);
  todo_.push_back(
      {{.point = point_of(Point::kPlay, program_.code[item.index()].b), .node = item.node}, kNone});
}

// Expands items until none can be expanded without input. Uses a list instead of recursion, since
// rules may nest deeply.
void Stepper::settle() {
  while (!todo_.empty() && may_go_on()) {
    const auto [item, ended] = todo_.back();
    todo_.pop_back();
    resume(item, ended);
  }
}

void Stepper::resume(const Item& item, uint32_t ended_node) {
  switch (item.kind()) {
    case Point::kPlay:
      if (item.node == kNone) {
        complete_ = true;
      } else {
        play(item);
      }
      break;
    case Point::kRepeat:
      // An empty round changes nothing. Only bodies that may be empty have such rounds, and they
      // need no minimum.
      if (ended_node == kNone || ended_node < first_node_ ||
          stack_.node(ended_node).position != position_)
        repeat(item);
      break;
    default: add(item);
  }
}

void Stepper::play(const Item& item) {
  if (!seen_.insert(item).second) return;
  const Instruction& instruction = program_.code[item.index()];
  const auto next = [&](uint32_t at) {
    return Item{.point = point_of(Point::kPlay, at), .node = item.node};
  };
  switch (instruction.op) {
    case Op::kMatch: {
      const Lexeme& lexeme = *program_.leaves[instruction.a].lexeme;
      if (lexeme.empty()) break;
      const CountWindow& window = program_.leaves[instruction.a].window;
      if (lexeme.accepts(lexeme.start(), 0, window)) todo_.push_back({next(instruction.b), kNone});
      if (!lexeme.dfa.is_final(lexeme.start()) && lexeme.alive(lexeme.start(), 0, window)) {
        add({.point = point_of(Point::kScan, item.index()),
             .state = lexeme.start(),
             .node = item.node});
      }
      break;
    }
    case Op::kCall: {
      const Symbol& called = program_.symbols[instruction.a];
      if (called.kind == Symbol::Kind::kRule && program_.code[instruction.b].op == Op::kReturn) {
        // tail call: right-recursive lists use no stack
        todo_.push_back({next(called.index), kNone});
      } else {
        call(instruction.a, next(instruction.b));
      }
      break;
    }
    case Op::kSplit:
      for (uint32_t i = instruction.a; i < instruction.b; ++i)
        todo_.push_back({next(program_.targets[i]), kNone});
      break;
    case Op::kToken:
      add({.point = point_of(Point::kToken, item.index()), .node = item.node});
      break;
    case Op::kReturn: end_node(item.node); break;
  }
}

void Stepper::repeat(const Item& item) {
  if (!seen_.insert(item).second) return;
  const Repetition& repetition = program_.repetitions[item.index()];
  if (item.count >= repetition.min) end_node(item.node);
  if (item.count >= repetition.max) return;
  const bool endless = repetition.max == kNone && item.count >= repetition.min;
  Item again = item;
  again.count += endless ? 0 : 1;
  call(repetition.body, again);
}

void Stepper::end_node(uint32_t node) {
  if (node >= first_node_) {
    if (std::exchange(stack_.node(node).ended, true)) return;
  } else if (!seen_.insert({.point = kEndOfNode, .node = node}).second) {
    return;
  }
  for (uint32_t i = stack_.node(node).callers; i != kNone; i = stack_.caller(i).next) {
    todo_.push_back({stack_.caller(i).resume, node});
  }
}

uint32_t Stepper::node_for(uint32_t key, uint32_t position, const Item& resume, bool& is_new) {
  const auto [called, added] = called_.insert({key, position, stack_.n_nodes()});
  const uint32_t node = called.node;
  is_new = added;
  if (is_new) stack_.add_node(key, position);
  stack_.add_caller(node, resume);
  if (stack_.node(node).ended) todo_.push_back({resume, node});
  return node;
}

uint32_t Stepper::frame_for(const Frame& frame) {
  const auto [known, is_new] = frames_.insert({frame, stack_.n_frames()});
  return is_new ? stack_.add_frame(frame) : known.index;
}

void Stepper::call(uint32_t symbol, const Item& resume) {
  bool is_new = false;
  const uint32_t node = node_for(symbol, position_, resume, is_new);
  if (!is_new) return;
  const Symbol& called = program_.symbols[symbol];
  switch (called.kind) {
    case Symbol::Kind::kGoal:
      // Outside JSON: no white space before the value.
      add({.point = point_of(Point::kValue, called.index), .state = kNone, .node = node});
      break;
    case Symbol::Kind::kRule:
      todo_.push_back({{.point = point_of(Point::kPlay, called.index), .node = node}, kNone});
      break;
    case Symbol::Kind::kRepetition:
      todo_.push_back({{.point = point_of(Point::kRepeat, called.index), .node = node}, kNone});
      break;
  }
}

void Stepper::call_goal(uint32_t goal, const Item& resume) {
  bool is_new = false;
  const uint32_t node = node_for(Stack::kInJson | goal, position_, resume, is_new);
  if (is_new) add({.point = point_of(Point::kValue, goal), .state = space_start(), .node = node});
}

void Stepper::advance(const Item& item, uint8_t byte) {
  switch (item.kind()) {
    case Point::kScan: scan(item, program_.leaves[program_.code[item.index()].a], byte); break;
    case Point::kLeaf: leaf(item, byte); break;
    case Point::kValue: value(item, byte); break;
    case Point::kObjectOpen:
    case Point::kObjectNext:
    case Point::kObjectKey: object_next(item, byte); break;
    case Point::kSlotKey: slot_key(item, byte); break;
    case Point::kOtherKey: other_key(item, byte); break;
    case Point::kColon: colon(item, byte); break;
    case Point::kArrayOpen: array_open(item, byte); break;
    case Point::kArrayNext: array_next(item, byte); break;
    case Point::kUniqueItem: unique_item(item, byte); break;
    case Point::kUniqueLeaf: unique_leaf(item, byte); break;
    default: break;  // special tokens, which have no bytes
  }
}

void Stepper::scan(Item item, const Leaf& leaf, uint8_t byte) {
  const uint32_t next = leaf.lexeme->dfa.step(item.state, byte);
  item.state = next & ~ByteDfa::kEndsChar;
  if (!leaf.window.trivial()) item.count += (next & ByteDfa::kEndsChar) != 0;
  if (!leaf.lexeme->alive(item.state, item.count, leaf.window)) return;
  position_ = stack_.position();
  if (leaf.lexeme->accepts(item.state, item.count, leaf.window)) {
    todo_.push_back(
        {{.point = point_of(Point::kPlay, program_.code[item.index()].b), .node = item.node},
         kNone});
  }
  if (!leaf.lexeme->dfa.is_final(item.state)) add(item);
}

void Stepper::leaf(Item item, uint8_t byte) {
  const Leaf& leaf = program_.leaves[item.index()];
  const uint32_t next = leaf.lexeme->dfa.step(item.state, byte);
  item.state = next & ~ByteDfa::kEndsChar;
  if (!leaf.window.trivial()) item.count += (next & ByteDfa::kEndsChar) != 0;
  if (!leaf.lexeme->alive(item.state, item.count, leaf.window)) return;
  position_ = stack_.position();
  if (leaf.lexeme->accepts(item.state, item.count, leaf.window)) end_node(item.node);
  if (!leaf.lexeme->dfa.is_final(item.state)) add(item);
}

bool Stepper::after_space(const Item& item) const {
  return item.state == kNone || program_.space->dfa.tag(item.state) != 0;
}

// Consumes a byte of white space; returns whether it was one.
bool Stepper::space(const Item& item, uint8_t byte) {
  if (item.state == kNone) return false;
  const uint32_t next = program_.space->dfa.step(item.state, byte) & ~ByteDfa::kEndsChar;
  if (next == ByteDfa::kDead) return false;
  Item waiting = item;
  waiting.state = next;
  add(waiting);
  return true;
}

void Stepper::value(const Item& item, uint8_t byte) {
  if (!space(item, byte) && after_space(item)) begin_value(item.index(), item.node, byte);
}

void Stepper::begin_value(uint32_t goal_index, uint32_t node, uint8_t byte) {
  const Goal& goal = program_.goals[goal_index];
  if (!goal.first_bytes[byte]) return;
  const auto open = [&](Point kind, uint32_t graph, uint32_t state) {
    const uint32_t frame = frame_for({.state = state});
    add({.point = point_of(kind, graph), .state = gap_start(), .data = frame, .node = node});
  };
  switch (byte) {
    case '"':
      for (const uint32_t i : goal.strings) begin_leaf(i, node);
      break;
    case '{':
      for (const uint32_t graph : goal.objects)
        open(Point::kObjectOpen, graph, program_.objects[graph].start);
      break;
    case '[':
      for (const uint32_t graph : goal.arrays)
        open(Point::kArrayOpen, graph, program_.arrays[graph].start);
      break;
    default:
      for (const uint32_t i : goal.scalars) {
        leaf({.point = point_of(Point::kLeaf, i),
              .state = program_.leaves[i].lexeme->start(),
              .node = node},
             byte);
      }
  }
}

void Stepper::begin_leaf(uint32_t index, uint32_t node) {
  const Leaf& leaf = program_.leaves[index];
  if (!leaf.lexeme->alive(leaf.lexeme->start(), 0, leaf.window)) return;
  add({.point = point_of(Point::kLeaf, index), .state = leaf.lexeme->start(), .node = node});
}

bool waits_in_space(const Item& item) {
  if (item.state == kNone) return false;  // at the start, where white space is not allowed
  switch (item.kind()) {
    case Point::kValue:
    case Point::kObjectOpen:
    case Point::kObjectNext:
    case Point::kObjectKey:
    case Point::kColon:
    case Point::kArrayOpen:
    case Point::kArrayNext:
    case Point::kUniqueItem: return true;
    default: return false;
  }
}

void add_first_bytes(const Program& program, const Stack& stack, const Item& item,
                     std::bitset<256>& bytes) {
  const auto add_edges = [&](const Lexeme& lexeme, uint32_t state) {
    for (const ByteEdge& e : lexeme.dfa.edges(state)) {
      for (int byte = e.first; byte <= e.last; ++byte) bytes.set(byte);
    }
  };
  const auto add_space = [&](const char* and_these) {
    if (item.state != kNone) add_edges(*program.space, item.state);
    for (; *and_these != 0; ++and_these) bytes.set(static_cast<uint8_t>(*and_these));
  };
  switch (item.kind()) {
    case Point::kScan:
      return add_edges(*program.leaves[program.code[item.index()].a].lexeme, item.state);
    case Point::kLeaf: return add_edges(*program.leaves[item.index()].lexeme, item.state);
    case Point::kSlotKey: return add_edges(*program.objects[item.index()].slot_keys, item.state);
    case Point::kOtherKey: return add_edges(*program.objects[item.index()].other_keys, item.state);
    case Point::kUniqueLeaf:
      return add_edges(*program.leaves[program.unique_leaves[item.index()].leaf].lexeme,
                       item.state);
    case Point::kValue: bytes |= program.goals[item.index()].first_bytes; return add_space("");
    case Point::kObjectOpen: return add_space("\"}");
    case Point::kObjectNext: return add_space(",}");
    case Point::kObjectKey: return add_space("\"");
    case Point::kColon: return add_space(":");
    case Point::kArrayNext: return add_space(",]");
    case Point::kArrayOpen:
    case Point::kUniqueItem: {
      const ArrayGraph& graph = program.arrays[item.index()];
      const IndexRange edges = graph.states[stack.frame(item.data).state].edges;
      for (uint32_t i = edges.begin; i < edges.end; ++i)
        bytes |= program.goals[graph.edges[i].goal].first_bytes;
      return add_space("]");
    }
    default: return;
  }
}

}  // namespace penstock::grammar
