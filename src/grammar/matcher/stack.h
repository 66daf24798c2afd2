// Where a text stands in a grammar: a graph-structured stack whose tables only grow and are cut back to undo.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "grammar/parts/intern_table.h"
#include "grammar/parts/work_meter.h"
#include "grammar/program/program.h"

namespace penstock::grammar {

// What an item waits for, in the top bits of Item::point; the rest is an index into the program.
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
  // Never waiting: what follows at once.
  kPlay,    // instruction
  kRepeat,  // repetition
};

constexpr uint32_t point_of(Point kind, uint32_t index) { return static_cast<uint32_t>(kind) << 28 | index; }

struct Item {
  uint32_t point;
  uint32_t state = 0;  // of the lexeme, or of the white space
  uint32_t count = 0;  // characters of the lexeme; kRepeat: rounds; kColon: the list of edges taken
  uint32_t data = 0;   // frame of the object or array
  uint32_t node = 0;   // whose end is awaited
  uint32_t start = 0;  // where the key or item began in the text; kColon: the used texts with it
  Point kind() const { return static_cast<Point>(point >> 28); }
  uint32_t index() const { return point & 0xFFFFFFF; }
  bool operator==(const Item&) const = default;
};

// Progress within an object or array.
struct Frame {
  uint32_t state = 0;     // of the graph
  uint32_t count = 0;     // members or items, as far as they matter
  uint32_t used = kNone;  // texts that must not come again
  bool operator==(const Frame&) const = default;
};

class Stack {
 public:
  struct Node {
    uint32_t key;       // what was called: a symbol, or kInJson | goal
    uint32_t position;  // bytes before it
    uint32_t step;      // bytes of the text when it was made: those of one step hang together
    uint32_t callers = kNone;
    bool ended = false;  // in the step it was made in: callers that come later go on at once
  };
  static constexpr uint32_t kInJson = 1U << 31;
  struct Caller {
    Item resume;
    uint32_t next;
  };
  struct Used {
    uint32_t begin, size, next;
    uint32_t n;     // in the list
    uint64_t hash;  // of the list as a set
  };
  struct Mark {
    uint32_t nodes, callers, frames, used, text;
  };

  Mark mark() const;
  void cut(const Mark& mark);
  void clear() { cut({}); }
  void reserve(size_t n, size_t n_bytes);  // of each kind, and of the text

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
  // How many of the list begin with prefix.
  uint32_t n_used_with(uint32_t list, std::string_view prefix) const;

  // Who works on the stack, or only reads it, counts it here.
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
