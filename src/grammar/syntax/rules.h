// Context-free rules: the intermediate form between the text of a grammar and its program.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/text_hash.h"
#include "grammar/parts/budget.h"
#include "grammar/parts/refusal.h"
#include "grammar/program/program.h"
#include "grammar/regex/expr.h"

namespace penstock::grammar {

struct RuleNode {
  enum class Kind : uint8_t {
    kText,      // the language of an expression
    kSequence,  // all parts, in order
    kChoice,    // one of the parts
    kRepeat,    // the part, min to max times
    kRule,      // the texts of a rule
    kToken,     // a special token
    kGoal,      // a JSON value of the program
  };
  Kind kind = Kind::kSequence;
  ExprId text = ExprPool::kEmpty;
  CountWindow window = {};  // kText: bounds on the number of characters
  // kText: gets an automaton of its own, which equal texts share; kRule: is called
  bool apart = false;
  uint32_t index = 0;             // index of the rule, token or goal
  uint32_t min = 0, max = kNone;  // kNone: no upper bound
  std::vector<uint32_t> parts;
};

// Nodes refer to nodes and rules by index; rules may be named before they are defined.
class Rules {
 public:
  struct Rule {
    std::string name;
    std::optional<uint32_t> body;
    std::string where;       // position of its first mention
    bool in_string = false;  // its texts are spelled as inside of a JSON string
  };

  explicit Rules(ExprPool& pool) : pool_(pool) {}
  ExprPool& pool() { return pool_; }
  const ExprPool& pool() const { return pool_; }
  uint32_t add(RuleNode node) {
    nodes_.push_back(std::move(node));
    return static_cast<uint32_t>(nodes_.size() - 1);
  }
  uint32_t text(ExprId expr) { return add({.kind = RuleNode::Kind::kText, .text = expr}); }
  // As text(), but not merged with neighbouring nodes. REQUIRES: every prefix of a text of the
  // expression can be completed within the window.
  uint32_t text_apart(ExprId expr, const CountWindow& window = {}) {
    return add({.kind = RuleNode::Kind::kText, .text = expr, .window = window, .apart = true});
  }
  uint32_t sequence(std::vector<uint32_t> parts);
  uint32_t choice(std::vector<uint32_t> parts);
  uint32_t repeat(uint32_t part, uint32_t min, uint32_t max);
  uint32_t rule(uint32_t index) { return add({.kind = RuleNode::Kind::kRule, .index = index}); }
  uint32_t token(TokenId id) {
    return add({.kind = RuleNode::Kind::kToken, .index = static_cast<uint32_t>(id)});
  }
  uint32_t goal(uint32_t index) { return add({.kind = RuleNode::Kind::kGoal, .index = index}); }

  // Returns the rule with this name, creating it if there is none.
  uint32_t named(std::string_view name, std::string where);
  // Returns the rule with this name, or kNone.
  uint32_t find(const std::string& name) const;
  // Starts a new scope of names; existing rules stay.
  void begin_scope() { by_name_.clear(); }
  uint32_t anonymous(uint32_t body);
  std::vector<Rule>& rules() { return rules_; }
  const std::vector<Rule>& rules() const { return rules_; }
  // Replaces expressions whose intersections are empty by kNothing. Errors: kTooLarge.
  Compiled<void> find_empty_texts(Budget& budget);
  // Spells the rules from the first to the last as inside of a JSON string, and returns a node that
  // calls the root. REQUIRES: no rule before the first calls one of them. Errors: kUnsupported, they
  // have JSON values or special tokens.
  Compiled<uint32_t> in_string(uint32_t first, uint32_t root);
  const RuleNode& node(uint32_t i) const { return nodes_[i]; }
  size_t size() const { return nodes_.size(); }

 private:
  ExprPool& pool_;
  std::vector<RuleNode> nodes_;
  std::vector<Rule> rules_;
  TextMap<uint32_t> by_name_;
};

// Adds the rules to the program and returns the symbol of `root`. Maximal regular parts become
// automata; alternatives that have no texts are dropped. Errors: kInvalid (a rule has no
// definition, or root no text), kTooLarge.
Compiled<uint32_t> add_rules(Rules& rules, uint32_t root, Program& program, Budget& budget);

}  // namespace penstock::grammar
