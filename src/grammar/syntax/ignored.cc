#include "grammar/syntax/ignored.h"

#include <algorithm>
#include <unordered_map>

namespace penstock::grammar {
namespace {

using Kind = RuleNode::Kind;

// first(x): x with at least one lexeme, whose first lexeme has no ignored text before it.
class FirstLexemes {
 public:
  FirstLexemes(Rules& rules, const std::unordered_set<uint32_t>& lexemes)
      : rules_(rules),
        lexemes_(lexemes),
        skippable_(rules.rules().size(), false),
        first_of_(skippable_.size(), kNone) {}

  // Finds the rules that may have no lexeme.
  Compiled<void> find_skippable(Budget& budget) {
    for (bool changed = true; changed;) {
      changed = false;
      if (!budget.take_edges(rules_.size() / 4))
        return too_large("the rules hang together in too many ways");
      for (size_t i = skippable_.size(); i-- > 0;) {
        const auto& body = rules_.rules()[i].body;
        if (skippable_[i] || !body || !skippable(*body)) continue;
        skippable_[i] = changed = true;
      }
    }
    return {};
  }

  uint32_t run(uint32_t root) {
    uint32_t body = rules_.rule(first_rule(root));
    while (!todo_.empty()) {
      const uint32_t rule = todo_.back();
      todo_.pop_back();
      if (const auto old = rules_.rules()[rule].body) {
        const uint32_t made = first(*old);
        rules_.rules()[first_of_[rule]].body = made;
      }
    }
    if (skippable_[root]) body = rules_.choice({body, rules_.sequence({})});
    return named_as(root, body);
  }

 private:
  uint32_t named_as(uint32_t rule, uint32_t body) {
    const uint32_t made = rules_.anonymous(body);
    rules_.rules()[made].name = rules_.rules()[rule].name;
    rules_.rules()[made].where = rules_.rules()[rule].where;
    return made;
  }

  uint32_t first_rule(uint32_t rule) {
    if (first_of_[rule] == kNone) {
      first_of_[rule] = named_as(rule, nothing());
      todo_.push_back(rule);
    }
    return first_of_[rule];
  }

  // Returns a rule for a part that occurs in several places, unless it is small.
  uint32_t shared(uint32_t part) {
    if (lexemes_.contains(part) || rules_.node(part).parts.empty()) return part;
    const auto [known, is_new] = shared_.emplace(part, 0);
    if (is_new) known->second = rules_.anonymous(part);
    return rules_.rule(known->second);
  }

  uint32_t nothing() { return rules_.text(ExprPool::kNothing); }

  bool skippable(uint32_t id) const {
    const RuleNode& node = rules_.node(id);
    const auto part_is = [this](uint32_t part) { return skippable(part); };
    if (lexemes_.contains(id)) return false;
    switch (node.kind) {
      case Kind::kSequence: return std::all_of(node.parts.begin(), node.parts.end(), part_is);
      case Kind::kChoice: return std::any_of(node.parts.begin(), node.parts.end(), part_is);
      case Kind::kRepeat: return node.min == 0 || skippable(node.parts[0]);
      case Kind::kRule: return skippable_[node.index];
      default: return false;
    }
  }

  uint32_t first(uint32_t id) {
    const RuleNode node = rules_.node(id);
    if (lexemes_.contains(id)) return node.parts[1];
    switch (node.kind) {
      case Kind::kSequence: return first_of_sequence(node.parts);
      case Kind::kChoice: return first_of_choice(node.parts);
      case Kind::kRepeat: return first_of_repeat(node);
      case Kind::kRule: return rules_.rule(first_rule(node.index));
      default: return id;
    }
  }

  uint32_t first_of_choice(const std::vector<uint32_t>& parts) {
    std::vector<uint32_t> firsts;
    for (const uint32_t part : parts) firsts.push_back(first(part));
    return rules_.choice(std::move(firsts));
  }

  uint32_t first_of_repeat(const RuleNode& node) {
    if (node.max == 0) return nothing();
    const uint32_t others = rules_.repeat(shared(node.parts[0]), node.min == 0 ? 0 : node.min - 1,
                                          node.max == kNone ? kNone : node.max - 1);
    return rules_.sequence({first(node.parts[0]), others});
  }

  // The first lexeme is in the first part, or all parts before it are empty. What follows becomes a
  // rule if several such ways share it.
  uint32_t first_of_sequence(const std::vector<uint32_t>& parts) {
    const auto needed = std::find_if(parts.begin(), parts.end(),
                                     [this](uint32_t part) { return !skippable(part); });
    const auto n = static_cast<size_t>(needed - parts.begin()) + (needed == parts.end() ? 0 : 1);
    if (n == 0) return nothing();
    std::vector<uint32_t> ways(n);
    std::vector<uint32_t> others;
    for (size_t i = n; i < parts.size(); ++i) others.push_back(shared(parts[i]));
    uint32_t rest = rules_.sequence(std::move(others));
    for (size_t i = n; i-- > 0;) {
      ways[i] = rules_.sequence({first(parts[i]), rest});
      if (i > 0) rest = rules_.rule(rules_.anonymous(rules_.sequence({shared(parts[i]), rest})));
    }
    return rules_.choice(std::move(ways));
  }

  Rules& rules_;
  const std::unordered_set<uint32_t>& lexemes_;
  std::vector<bool> skippable_;     // by rule
  std::vector<uint32_t> first_of_;  // by rule; kNone: not needed yet
  std::vector<uint32_t> todo_;
  std::unordered_map<uint32_t, uint32_t> shared_;  // rules by part
};

}  // namespace

Compiled<uint32_t> without_ignored_at_begin(Rules& rules, uint32_t root,
                                            const std::unordered_set<uint32_t>& lexemes,
                                            Budget& budget) {
  FirstLexemes firsts(rules, lexemes);
  if (auto found = firsts.find_skippable(budget); !found)
    return tl::unexpected(std::move(found).error());
  return firsts.run(root);
}

}  // namespace penstock::grammar
