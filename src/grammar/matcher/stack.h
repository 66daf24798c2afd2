// The state of a text in a grammar: a graph-structured stack whose tables only grow and are
// truncated to undo.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "grammar/parts/intern_table.h"
#include "grammar/parts/work_meter.h"
#include "grammar/program/program.h"

namespace penstock::grammar {

// The kind of input that an item waits for, in the top bits of Item::point; the other bits are an
// index into the program.
enum class Point : uint8_t {
  kScan,        // instruction kMatch: bytes of its leaf
  kToken,       // instruction kToken
  kLeaf,        // leaf: bytes; its end ends the node
  kValue,       // goal: white space, then the first byte of a value
  kObjectOpen,  // object graph: a key or the closing brace
  kSlotKey,     // object graph: bytes of a slot's key
  kOtherKey,    // object graph: bytes of another key
  kColon,       // object graph
  kObjectNext,  // object graph: a comma or the closing brace
  kObjectKey,   // object graph: behind a comma, the opening quotation mark
  kArrayOpen,   // array graph: a value or the closing bracket
  kArrayNext,   // array graph: a comma or the closing bracket
  kUniqueItem,  // array graph: white space, then the first byte of an item unlike those before
  kUniqueLeaf,  // unique leaf: bytes of such an item
  // Items that do not wait but are expanded immediately.
  kPlay,    // instruction
  kRepeat,  // repetition
};

constexpr uint32_t point_of(Point kind, uint32_t index) {
  return static_cast<uint32_t>(kind) << 28 | index;
}

struct Item {
  uint32_t point;
  // state of the automaton of the lexeme or of white space
  uint32_t state = 0;
  // characters of the lexeme; kRepeat: rounds; kColon: the list of edges taken
  uint32_t count = 0;
  uint32_t data = 0;  // index of the frame of the object or array
  uint32_t node = 0;  // index of the node to which the item belongs
  // Position at which the key or array item began; kColon: list of used texts including the key.
  uint32_t start = 0;
  Point kind() const { return static_cast<Point>(point >> 28); }
  uint32_t index() const { return point & 0xFFFFFFF; }
  bool operator==(const Item&) const = default;
};

// The state of an object or array.
struct Frame {
  uint32_t state = 0;  // state of the graph
  // number of members or items, as far as it matters
  uint32_t count = 0;
  uint32_t used = kNone;  // list of texts that must not be repeated
  bool operator==(const Frame&) const = default;
};

class Stack {
 public:
  struct Node {
    uint32_t key;       // callee: a symbol, or kInJson | goal
    uint32_t position;  // position in the text at which it begins
    // length of the text when the node was made, which identifies the step
    uint32_t step;
    uint32_t callers = kNone;
    // ended in the step that made it: callers that are added later resume immediately
    bool ended = false;
  };
  static constexpr uint32_t kInJson = 1U << 31;
  struct Caller {
    Item resume;
    uint32_t next;
  };
  struct Used {
    uint32_t begin, size, next;
    uint32_t n;     // length of the list
    uint64_t hash;  // hash of the list as a set
  };
  struct Mark {
    uint32_t nodes, callers, frames, used, text;
  };

  Mark mark() const;
  void cut(const Mark& mark);
  void clear() { cut({}); }
  // n entries of each table, n_bytes bytes of text
  void reserve(size_t n, size_t n_bytes);

  uint32_t add_node(uint32_t key, uint32_t position);
  void add_caller(uint32_t node, const Item& resume);
  uint32_t add_frame(const Frame& frame);
  uint32_t add_used(uint32_t list, uint32_t begin, uint32_t size);
  void add_byte(uint8_t byte) { text_ += static_cast<char>(byte); }

  Node& node(uint32_t i) { return nodes_[i]; }
  const Node& node(uint32_t i) const { return nodes_[i]; }
  const Caller& caller(uint32_t i) const { return callers_[i]; }
  const Frame& frame(uint32_t i) const { return frames_[i]; }
  const Used& used(uint32_t i) const { return used_[i]; }
  uint32_t n_nodes() const { return static_cast<uint32_t>(nodes_.size()); }
  uint32_t n_frames() const { return static_cast<uint32_t>(frames_.size()); }
  uint32_t position() const { return static_cast<uint32_t>(text_.size()); }
  std::string_view text(uint32_t begin, uint32_t end) const {
    return std::string_view(text_).substr(begin, end - begin);
  }

  bool is_used(uint32_t list, std::string_view text) const;
  uint32_t n_used(uint32_t list) const { return list == kNone ? 0 : used_[list].n; }
  // Returns the number of texts in the list that begin with prefix.
  uint32_t n_used_with(uint32_t list, std::string_view prefix) const;

  // The meter on which all work on the stack, reading included, is counted.
  WorkMeter& work() const { return work_; }
  size_t memory() const;  // bytes in use

 private:
  std::vector<Node> nodes_;
  std::vector<Caller> callers_;
  std::vector<Frame> frames_;
  std::vector<Used> used_;
  std::string text_;
  mutable WorkMeter work_;
};

}  // namespace penstock::grammar
