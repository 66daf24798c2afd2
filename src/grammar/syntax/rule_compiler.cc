#include <fmt/format.h>

#include <algorithm>

#include "grammar/syntax/rules.h"

namespace penstock::grammar {
namespace {

using NodeKind = RuleNode::Kind;
using Op = Instruction::Op;

constexpr uint32_t kMaxUnrolledRule = 64;  // larger counts become counted repetitions
// limit of nodes of an expression into which rules are merged
constexpr size_t kMaxInlined = 20'000;

// Properties of rules, computed before compilation.
class Analysis {
 public:
  explicit Analysis(const Rules& rules) : rules_(rules), of_rule_(rules.rules().size()) {
    for (uint32_t i = 0; i < of_rule_.size(); ++i) visit(i);
  }
  // Finds which rules have texts, and which accept the empty text. Errors: kTooLarge.
  Compiled<void> find_texts(Budget& budget) {
    for (bool changed = true; changed;) {
      changed = false;
      if (!budget.take_edges(rules_.size() / 4))
        return too_large("the rules hang together in too many ways");
      for (const uint32_t i : order_) {
        OfRule& rule = of_rule_[i];
        const auto& body = rules_.rules()[i].body;
        if (!body) continue;
        const bool text = has_text(*body), empty = may_be_empty(*body);
        changed |= text != rule.has_text || empty != rule.may_be_empty;
        rule.has_text = text;
        rule.may_be_empty = empty;
      }
    }
    return {};
  }

  // Bottom-up order: called rules precede callers, except in cycles.
  const std::vector<uint32_t>& order() const { return order_; }
  bool rule_has_text(uint32_t rule) const { return of_rule_[rule].has_text; }

  // Whether the node can become one automaton: no rule in it is recursive, and it has no tokens,
  // JSON values or large counts.
  bool regular(uint32_t id) const {
    const RuleNode& node = rules_.node(id);
    switch (node.kind) {
      case NodeKind::kText: return !node.apart;
      case NodeKind::kRule: return !node.apart && of_rule_[node.index].regular;
      case NodeKind::kToken:
      case NodeKind::kGoal: return false;
      default:
        return !counted(node) && std::all_of(node.parts.begin(), node.parts.end(),
                                             [&](uint32_t p) { return regular(p); });
    }
  }
  // Returns the size as an expression with all rules inlined. REQUIRES: regular(id).
  size_t weight(uint32_t id) const {
    const RuleNode& node = rules_.node(id);
    if (node.kind == NodeKind::kRule) return of_rule_[node.index].weight;
    size_t sum = 1;
    for (const uint32_t part : node.parts) sum += weight(part);
    const bool repeats = node.kind == NodeKind::kRepeat;
    const size_t times =
        repeats ? std::max<size_t>({1, node.min, node.max == kNone ? 1 : node.max}) : 1;
    return std::min(sum * times, kMaxInlined + 1);
  }
  static bool counted(const RuleNode& node) {
    return node.kind == NodeKind::kRepeat &&
           (node.min > kMaxUnrolledRule || (node.max != kNone && node.max > kMaxUnrolledRule));
  }

  bool has_text(uint32_t id) const {
    const RuleNode& node = rules_.node(id);
    const auto has = [&](uint32_t p) { return has_text(p); };
    switch (node.kind) {
      case NodeKind::kText: return node.text != ExprPool::kNothing;
      case NodeKind::kRule: return of_rule_[node.index].has_text;
      case NodeKind::kSequence: return std::all_of(node.parts.begin(), node.parts.end(), has);
      case NodeKind::kChoice: return std::any_of(node.parts.begin(), node.parts.end(), has);
      case NodeKind::kRepeat: return node.min == 0 || has(node.parts[0]);
      default: return true;
    }
  }
  bool may_be_empty(uint32_t id) const {
    const RuleNode& node = rules_.node(id);
    const auto empty = [&](uint32_t p) { return may_be_empty(p); };
    switch (node.kind) {
      case NodeKind::kText: return node.window.min == 0 && rules_.pool().accepts_empty(node.text);
      case NodeKind::kRule: return of_rule_[node.index].may_be_empty;
      case NodeKind::kSequence: return std::all_of(node.parts.begin(), node.parts.end(), empty);
      case NodeKind::kChoice: return std::any_of(node.parts.begin(), node.parts.end(), empty);
      case NodeKind::kRepeat: return node.min == 0 || empty(node.parts[0]);
      default: return false;
    }
  }

 private:
  struct OfRule {
    bool visited = false, open = false;
    bool regular = false, has_text = false, may_be_empty = false;
    size_t weight = 1;
  };
  struct Visit {
    uint32_t rule;
    std::vector<uint32_t> called;
    size_t next = 0;
  };

  // Iterative depth-first search, since call chains may have any length.
  void visit(uint32_t start) {
    std::vector<Visit> path;
    enter(start, path);
    while (!path.empty()) {
      Visit& at = path.back();
      if (at.next == at.called.size()) {
        finish(at.rule);
        path.pop_back();
        continue;
      }
      const uint32_t rule = at.called[at.next++];
      if (!of_rule_[rule].open) {
        enter(rule, path);
        continue;
      }
      for (size_t i = path.size(); i-- > 0;) {  // a cycle: none of its rules is regular
        of_rule_[path[i].rule].regular = false;
        if (path[i].rule == rule) break;
      }
    }
  }

  void enter(uint32_t rule, std::vector<Visit>& path) {
    if (of_rule_[rule].visited) return;
    of_rule_[rule].visited = of_rule_[rule].open = of_rule_[rule].regular = true;
    Visit& visit = path.emplace_back(Visit{rule, {}});
    std::vector<uint32_t> open;
    if (const auto& body = rules_.rules()[rule].body) open.push_back(*body);
    while (!open.empty()) {
      const RuleNode& node = rules_.node(open.back());
      open.pop_back();
      if (node.kind == NodeKind::kRule) visit.called.push_back(node.index);
      open.insert(open.end(), node.parts.begin(), node.parts.end());
    }
  }

  void finish(uint32_t rule) {
    OfRule& done = of_rule_[rule];
    const auto& body = rules_.rules()[rule].body;
    done.open = false;
    done.regular = done.regular && body && regular(*body);
    if (done.regular) done.weight = weight(*body);
    order_.push_back(rule);
  }

  const Rules& rules_;
  std::vector<OfRule> of_rule_;
  std::vector<uint32_t> order_;
};

class RuleCompiler {
 public:
  RuleCompiler(Rules& rules, Program& program, Budget& budget)
      : rules_(rules), program_(program), budget_(budget), analysis_(rules) {}

  Compiled<uint32_t> run(uint32_t root) {
    for (const Rules::Rule& rule : rules_.rules()) {
      if (!rule.body)
        return refuse(RefusalKind::kInvalid, rule.where,
                      fmt::format("the rule \"{}\" is not defined", rule.name));
    }
    if (rules_.pool().exhausted()) return too_large("the patterns are too large together");
    if (auto found = rules_.find_empty_texts(budget_); !found)
      return tl::unexpected(std::move(found).error());
    if (auto found = analysis_.find_texts(budget_); !found)
      return tl::unexpected(std::move(found).error());
    if (!analysis_.rule_has_text(root)) {
      return refuse(
          RefusalKind::kInvalid, rules_.rules()[root].where,
          rules_.rules()[root].name.empty()
              ? std::string("no text matches")
              : fmt::format("no text matches the rule \"{}\"", rules_.rules()[root].name));
    }
    symbols_.assign(rules_.rules().size(), kNone);
    exprs_.assign(rules_.rules().size(), ExprPool::kNothing);
    for (const uint32_t rule : analysis_.order()) {
      const uint32_t body = *rules_.rules()[rule].body;
      if (inlines(body)) exprs_[rule] = expr(body);
    }
    const uint32_t symbol = symbol_of(root);
    while (!todo_.empty() && !failed_) {
      const uint32_t rule = todo_.back();
      todo_.pop_back();
      in_string_ = rules_.rules()[rule].in_string;
      const uint32_t entry = emit(*rules_.rules()[rule].body, add({Op::kReturn}));
      program_.symbols[symbols_[rule]].index = entry;
    }
    if (failed_) return tl::unexpected(std::move(refusal_));
    return symbol;
  }

 private:
  uint32_t add(Instruction instruction) {
    program_.code.push_back(instruction);
    return static_cast<uint32_t>(program_.code.size() - 1);
  }

  uint32_t symbol_of(uint32_t rule) {
    if (symbols_[rule] == kNone) {
      symbols_[rule] = static_cast<uint32_t>(program_.symbols.size());
      program_.symbols.push_back({Symbol::Kind::kRule, 0});
      todo_.push_back(rule);
    }
    return symbols_[rule];
  }

  void fail(Refusal refusal) {
    if (!failed_) refusal_ = std::move(refusal);
    failed_ = true;
  }

  // Emits the instructions of a node before `next` and returns the first. REQUIRES: the node has
  // texts.
  uint32_t emit(uint32_t id, uint32_t next) {
    if (failed_) return next;
    if (inlines(id)) return emit_text(expr(id), next);
    const RuleNode node = rules_.node(id);
    switch (node.kind) {
      case NodeKind::kSequence: return emit_sequence(node, next);
      case NodeKind::kChoice: return emit_choice(node, next);
      case NodeKind::kRepeat: return emit_repeat(node, next);
      case NodeKind::kRule: return add({Op::kCall, symbol_of(node.index), next});
      case NodeKind::kToken: return add({Op::kToken, node.index, next});
      case NodeKind::kGoal:
        program_.symbols.push_back({Symbol::Kind::kGoal, node.index});
        return add({Op::kCall, static_cast<uint32_t>(program_.symbols.size() - 1), next});
      case NodeKind::kText: return emit_text(node.text, next, node.window);
    }
    return next;
  }

  // Whether a node becomes one automaton: regular, and small enough to be repeated in many places.
  bool inlines(uint32_t id) const {
    return analysis_.regular(id) && analysis_.weight(id) <= kMaxInlined;
  }

  ExprId expr(uint32_t id) {
    const RuleNode& node = rules_.node(id);
    ExprPool& pool = rules_.pool();
    switch (node.kind) {
      case NodeKind::kText: return node.text;
      case NodeKind::kRule: return exprs_[node.index];
      case NodeKind::kRepeat:
        return pool.repeat(expr(node.parts[0]), node.min,
                           node.max == kNone ? ExprPool::kUnbounded : node.max);
      case NodeKind::kChoice: {
        std::vector<ExprId> parts;
        for (const uint32_t part : node.parts) parts.push_back(expr(part));
        return pool.any_of(std::move(parts));
      }
      default: {
        ExprId result = ExprPool::kEmpty;
        for (size_t i = node.parts.size(); i-- > 0;)
          result = pool.concat(expr(node.parts[i]), result);
        return result;
      }
    }
  }

  uint32_t emit_text(ExprId text, uint32_t next, const CountWindow& window = {}) {
    if (text == ExprPool::kEmpty) return next;
    const uint32_t leaf = leaf_of(text, window);
    return failed_ ? next : add({Op::kMatch, leaf, next});
  }

  uint32_t leaf_of(ExprId text, const CountWindow& window) {
    const bool windowed = !window.trivial();
    const auto known = std::find_if(leaves_.begin(), leaves_.end(), [&](const KnownLeaf& l) {
      return l.text == text && l.window == window && l.in_string == in_string_;
    });
    if (known != leaves_.end()) return known->leaf;
    auto chars = make_dfa(rules_.pool(), text, budget_);
    if (!chars) return fail(std::move(chars).error()), 0;
    const Spelling spelling = in_string_ ? Spelling::kJsonPart : Spelling::kUtf8;
    auto lexeme = make_lexeme(*chars, spelling, windowed, budget_);
    if (!lexeme) return fail(std::move(lexeme).error()), 0;
    const auto leaf = static_cast<uint32_t>(program_.leaves.size());
    program_.leaves.push_back({*std::move(lexeme), window});
    leaves_.push_back({text, window, in_string_, leaf});
    return leaf;
  }

  // Merges adjacent regular parts into one automaton.
  uint32_t emit_sequence(const RuleNode& node, uint32_t next) {
    for (size_t i = node.parts.size(); i > 0;) {
      if (!inlines(node.parts[i - 1])) {
        next = emit(node.parts[--i], next);
        continue;
      }
      ExprId text = ExprPool::kEmpty;
      for (; i > 0 && inlines(node.parts[i - 1]); --i)
        text = rules_.pool().concat(expr(node.parts[i - 1]), text);
      next = emit_text(text, next);
    }
    return next;
  }

  // Merges regular alternatives into one automaton.
  uint32_t emit_choice(const RuleNode& node, uint32_t next) {
    std::vector<uint32_t> begins;
    std::vector<ExprId> texts;
    for (const uint32_t part : node.parts) {
      if (!analysis_.has_text(part)) continue;
      if (inlines(part)) {
        texts.push_back(expr(part));
      } else {
        begins.push_back(emit(part, next));
      }
    }
    if (!texts.empty()) begins.push_back(emit_text(rules_.pool().any_of(std::move(texts)), next));
    return split(begins);
  }

  uint32_t split(const std::vector<uint32_t>& begins) {
    if (begins.size() == 1) return begins.front();
    const auto first = static_cast<uint32_t>(program_.targets.size());
    program_.targets.insert(program_.targets.end(), begins.begin(), begins.end());
    return add({Op::kSplit, first, static_cast<uint32_t>(program_.targets.size())});
  }

  uint32_t emit_repeat(const RuleNode& node, uint32_t next) {
    const uint32_t part = node.parts[0];
    if (!analysis_.has_text(part)) return next;
    if (node.min == 1 && node.max == 1) return emit(part, next);
    if (node.min == 0 && node.max == 1) return split({emit(part, next), next});
    if (analysis_.regular(part) && Analysis::counted(node) && is_one_char(part)) {
      const CountWindow window{node.min, node.max == kNone ? kNoLimit : node.max};
      const uint32_t leaf = leaf_of(rules_.pool().star(expr(part)), window);
      return failed_ ? next : add({Op::kMatch, leaf, next});
    }
    const uint32_t rule = rules_.anonymous(part);
    rules_.rules()[rule].in_string = in_string_;
    symbols_.resize(rules_.rules().size(), kNone);
    const uint32_t body = symbol_of(rule);
    const uint32_t least = analysis_.may_be_empty(part) ? 0 : node.min;
    program_.repetitions.push_back({body, least, node.max});
    program_.symbols.push_back(
        {Symbol::Kind::kRepetition, static_cast<uint32_t>(program_.repetitions.size() - 1)});
    return add({Op::kCall, static_cast<uint32_t>(program_.symbols.size() - 1), next});
  }

  bool is_one_char(uint32_t id) { return rules_.pool().is_char_set(expr(id)); }

  struct KnownLeaf {
    ExprId text;
    CountWindow window;
    bool in_string;
    uint32_t leaf;
  };

  Rules& rules_;
  Program& program_;
  Budget& budget_;
  Analysis analysis_;
  std::vector<uint32_t> symbols_;  // by rule; kNone: not needed yet
  std::vector<ExprId> exprs_;      // of regular and small rules
  std::vector<uint32_t> todo_;
  std::vector<KnownLeaf> leaves_;
  bool in_string_ = false;  // of the rule being compiled
  bool failed_ = false;
  Refusal refusal_;
};

}  // namespace

Compiled<uint32_t> add_rules(Rules& rules, uint32_t root, Program& program, Budget& budget) {
  return RuleCompiler(rules, program, budget).run(root);
}

}  // namespace penstock::grammar
