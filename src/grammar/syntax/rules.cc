#include "grammar/syntax/rules.h"

#include "grammar/regex/char_dfa.h"

namespace penstock::grammar {

uint32_t Rules::sequence(std::vector<uint32_t> parts) {
  return parts.size() == 1 ? parts.front()
                           : add({.kind = RuleNode::Kind::kSequence, .parts = std::move(parts)});
}

uint32_t Rules::choice(std::vector<uint32_t> parts) {
  return parts.size() == 1 ? parts.front()
                           : add({.kind = RuleNode::Kind::kChoice, .parts = std::move(parts)});
}

uint32_t Rules::repeat(uint32_t part, uint32_t min, uint32_t max) {
  return add({.kind = RuleNode::Kind::kRepeat, .min = min, .max = max, .parts = {part}});
}

Compiled<void> Rules::find_empty_texts(Budget& budget) {
  std::unordered_map<uint32_t, bool> empty;
  for (RuleNode& node : nodes_) {
    if (node.kind != RuleNode::Kind::kText || pool_.is_plain(node.text)) continue;
    const auto [known, is_new] = empty.emplace(static_cast<uint32_t>(node.text), false);
    if (is_new) {
      const auto dfa = make_dfa(pool_, node.text, budget);
      if (!dfa) return tl::unexpected(dfa.error());
      known->second = dfa->start == CharDfa::kDead;
    }
    if (known->second) node.text = ExprPool::kNothing;
  }
  return {};
}

uint32_t Rules::named(std::string_view name, std::string where) {
  const auto [it, is_new] = by_name_.emplace(name, static_cast<uint32_t>(rules_.size()));
  if (is_new) rules_.push_back({std::string(name), std::nullopt, std::move(where)});
  return it->second;
}

uint32_t Rules::find(const std::string& name) const {
  const auto it = by_name_.find(name);
  return it == by_name_.end() ? kNone : it->second;
}

Compiled<uint32_t> Rules::in_string(uint32_t first, uint32_t root) {
  std::vector<uint32_t> open;
  for (uint32_t i = first; i < rules_.size(); ++i) {
    rules_[i].in_string = true;
    if (rules_[i].body) open.push_back(*rules_[i].body);
  }
  while (!open.empty()) {
    const RuleNode& node = nodes_[open.back()];
    open.pop_back();
    if (node.kind == RuleNode::Kind::kGoal || node.kind == RuleNode::Kind::kToken)
      return refuse(RefusalKind::kUnsupported, "",
                    "JSON values and special tokens cannot stand inside of a JSON string");
    open.insert(open.end(), node.parts.begin(), node.parts.end());
  }
  return add({.kind = RuleNode::Kind::kRule, .apart = true, .index = root});
}

uint32_t Rules::anonymous(uint32_t body) {
  rules_.push_back({"", body, ""});
  return static_cast<uint32_t>(rules_.size() - 1);
}

}  // namespace penstock::grammar
