// Regular expressions with intersection and complement as hash-consed nodes, and their Brzozowski
// derivatives.
//
// An expression denotes a set of strings of Unicode scalar values. Equal nodes have equal ids, and
// the smart constructors normalize (associativity, commutativity, idempotence, units, zeros), so
// that an expression has finitely many derivatives: the states of its automaton.
#pragma once
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "grammar/parts/intern_table.h"
#include "grammar/regex/char_set.h"

namespace penstock::grammar {

// Decodes UTF-8 text; U+FFFD for each ill-formed byte.
std::u32string characters_of(std::string_view utf8);

enum class ExprId : uint32_t {};

// The expressions of one compilation. Not thread-safe.
class ExprPool {
 public:
  static constexpr uint32_t kUnbounded = UINT32_MAX;
  static constexpr ExprId kNothing{0};     // no string
  static constexpr ExprId kEmpty{1};       // the empty string
  static constexpr ExprId kAnyChar{2};     // every string of one character
  static constexpr ExprId kEverything{3};  // every string

  // A pool that would exceed max_nodes nodes or max_steps steps of work becomes exhausted(); its
  // results are meaningless from then on.
  explicit ExprPool(size_t max_nodes = 400'000, size_t max_steps = 1'000'000);

  ExprId chars(const CharSet& set);
  ExprId literal(std::u32string_view text);
  // Returns the union of the texts. Common prefixes are shared, so that a derivative visits only
  // one branch.
  ExprId any_literal(std::vector<std::u32string> texts);
  ExprId concat(ExprId head, ExprId tail);
  ExprId any_of(std::vector<ExprId> parts);
  ExprId all_of(std::vector<ExprId> parts);
  ExprId negate(ExprId part);
  // Returns min to max repetitions of part. REQUIRES: min <= max.
  ExprId repeat(ExprId part, uint32_t min, uint32_t max);
  ExprId optional(ExprId part) { return repeat(part, 0, 1); }
  ExprId star(ExprId part) { return repeat(part, 0, kUnbounded); }

  bool accepts_empty(ExprId id) const { return node(id).accepts_empty; }
  // Whether id has neither intersections nor complements, so that it denotes some text unless it is
  // kNothing.
  bool is_plain(ExprId id) const { return node(id).plain; }
  bool is_char_set(ExprId id) const { return node(id).kind == Kind::kChars; }
  // Returns the Brzozowski derivative of id by c: the rests, after c, of the strings of id that
  // start with c.
  ExprId derivative(ExprId id, char32_t c);
  // Returns the character sets that these expressions distinguish, each once.
  std::vector<const CharSet*> sets_of(std::span<const ExprId> ids) const;

  bool exhausted() const { return exhausted_; }
  size_t size() const { return nodes_.size(); }

 private:
  enum class Kind : uint8_t { kNothing, kEmpty, kChars, kConcat, kOr, kAnd, kNot, kRepeat };
  struct Node {
    Kind kind;
    bool accepts_empty;
    // children; kOr, kAnd: range of lists_; kChars: index into sets_
    uint32_t a = 0, b = 0;
    bool plain = true;
    uint32_t min = 0, max = 0;  // kRepeat
  };
  const Node& node(ExprId id) const { return nodes_[static_cast<uint32_t>(id)]; }
  std::span<const ExprId> parts(const Node& node) const { return {lists_.data() + node.a, node.b}; }
  ExprId intern(const Node& node, std::span<const ExprId> list = {});
  ExprId branches(std::span<const std::u32string> texts, size_t depth);
  ExprId nary(Kind kind, std::vector<ExprId> parts);
  void flatten(Kind kind, std::vector<ExprId>& parts) const;
  void merge_chars(std::vector<ExprId>& parts);
  bool has_complements(const std::vector<ExprId>& parts);
  ExprId derive(ExprId id, char32_t c, int depth);
  ExprId derive_concat(const Node& node, char32_t c, int depth);
  ExprId derive_repeat(const Node& node, char32_t c, int depth);
  ExprId derive_list(const Node& node, char32_t c, int depth);

  // Counts n steps of work; returns whether the pool is not exhausted.
  bool work(size_t n) { return !(exhausted_ |= (steps_ += n) > max_steps_); }

  size_t max_nodes_, max_steps_, steps_ = 0;
  bool exhausted_ = false;
  std::vector<Node> nodes_;
  std::vector<ExprId> lists_;
  std::vector<CharSet> sets_;
  InternTable index_, set_index_;
};

}  // namespace penstock::grammar
