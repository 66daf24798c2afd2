#include "grammar/regex/parser.h"

#include <algorithm>

#include "grammar/regex/syntax_tree.h"

namespace penstock::grammar {
namespace {

using RegexKind = RegexNode::Kind;
constexpr uint32_t kMaxUnrolled = 16;  // repetitions of a group with assertions

// The expression for the rest of the text, with nothing before it and with something before it,
// which "^" distinguishes.
struct Rest {
  ExprId at_start, later;
  bool same() const { return at_start == later; }
};

// Translates a tree from its end: each node is combined with what follows it, so that anchors and
// look-aheads see the rest of the text.
class TreeReader {
 public:
  TreeReader(ExprPool& pool, const RegexTree& tree) : pool_(pool), tree_(tree) {}

  Rest before(uint32_t id, Rest rest) {
    const RegexNode& node = tree_.nodes[id];
    if (!node.has_assertions) return concat(plain(id), rest);
    switch (node.kind) {
      case RegexKind::kTextStart: return {rest.at_start, ExprPool::kNothing};
      case RegexKind::kTextEnd: return {only_empty(rest.at_start), only_empty(rest.later)};
      case RegexKind::kLookAhead: return look_ahead(node, rest);
      case RegexKind::kAlternatives: return alternatives(node, rest);
      case RegexKind::kRepeat: return repeat(node, rest);
      case RegexKind::kConcat:
        for (size_t i = node.parts.size(); i-- > 0;) rest = before(node.parts[i], rest);
        return rest;
      case RegexKind::kChars: break;
    }
    return rest;
  }
  bool failed() const { return failed_; }

 private:
  ExprId only_empty(ExprId rest) const {
    return pool_.accepts_empty(rest) ? ExprPool::kEmpty : ExprPool::kNothing;
  }

  Rest concat(ExprId head, Rest rest) {
    const ExprId later = pool_.concat(head, rest.later);
    if (rest.same()) return {later, later};
    if (!pool_.accepts_empty(head)) return {later, later};
    const ExprId some = pool_.concat(ExprPool::kAnyChar, ExprPool::kEverything);
    const ExprId at_start = pool_.concat(pool_.all_of({head, some}), rest.later);
    return {pool_.any_of({rest.at_start, at_start}), later};
  }

  Rest look_ahead(const RegexNode& node, Rest rest) {
    const Rest seen = before(node.parts[0], {ExprPool::kEverything, ExprPool::kEverything});
    const auto both = [&](ExprId ahead, ExprId follows) {
      return pool_.all_of({node.negative ? pool_.negate(ahead) : ahead, follows});
    };
    return {both(seen.at_start, rest.at_start), both(seen.later, rest.later)};
  }

  Rest alternatives(const RegexNode& node, Rest rest) {
    std::vector<ExprId> at_start, later;
    for (const uint32_t part : node.parts) {
      const Rest one = before(part, rest);
      at_start.push_back(one.at_start);
      later.push_back(one.later);
    }
    return {pool_.any_of(std::move(at_start)), pool_.any_of(std::move(later))};
  }

  Rest repeat(const RegexNode& node, Rest rest) {
    const bool unbounded = node.max == ExprPool::kUnbounded;
    if (unbounded || node.max > kMaxUnrolled) {
      failed_ = true;
      return rest;
    }
    Rest result = rest;
    for (uint32_t i = node.max; i-- > 0;) {
      const Rest once = before(node.parts[0], result);
      result = i >= node.min ? Rest{pool_.any_of({once.at_start, rest.at_start}),
                                    pool_.any_of({once.later, rest.later})}
                             : once;
    }
    return result;
  }

  ExprId plain(uint32_t id) {
    const RegexNode& node = tree_.nodes[id];
    switch (node.kind) {
      case RegexKind::kChars: return pool_.chars(node.chars);
      case RegexKind::kRepeat: return pool_.repeat(plain(node.parts[0]), node.min, node.max);
      case RegexKind::kAlternatives: {
        std::vector<ExprId> parts;
        for (const uint32_t part : node.parts) parts.push_back(plain(part));
        return pool_.any_of(std::move(parts));
      }
      default: {
        ExprId result = ExprPool::kEmpty;
        for (size_t i = node.parts.size(); i-- > 0;)
          result = pool_.concat(plain(node.parts[i]), result);
        return result;
      }
    }
  }

  ExprPool& pool_;
  const RegexTree& tree_;
  bool failed_ = false;
};

// Removes comments, and white space outside of classes, from a verbose expression.
std::string without_comments(std::string_view pattern) {
  std::string kept;
  bool in_class = false;
  for (size_t i = 0; i < pattern.size(); ++i) {
    const char c = pattern[i];
    if (c == '\\') {
      kept += pattern.substr(i++, 2);
    } else if (in_class ||
               (c != '#' && std::string_view(" \t\n\r\f\v").find(c) == std::string_view::npos)) {
      in_class = in_class ? c != ']' : c == '[';
      kept += c;
    } else if (c == '#') {
      i = std::min(pattern.find('\n', i), pattern.size());
    }
  }
  return kept;
}

}  // namespace

Compiled<ExprId> parse_regex(ExprPool& pool, std::string_view pattern, RegexScope scope,
                             int max_depth) {
  auto tree = parse_regex_tree(pattern, max_depth, {});
  if (!tree) return tl::unexpected(std::move(tree).error());
  TreeReader reader(pool, *tree);
  const ExprId end = scope == RegexScope::kWhole ? ExprPool::kEmpty : ExprPool::kEverything;
  const Rest found = reader.before(tree->root, {end, end});
  if (reader.failed()) {
    return refuse(
        RefusalKind::kUnsupported, "",
        "regular expression: anchors and look-ahead inside a repetition are not supported");
  }
  if (pool.exhausted())
    return refuse(RefusalKind::kTooLarge, "", "the regular expression is too large");
  if (scope == RegexScope::kWhole) return found.at_start;
  if (found.same()) return pool.concat(ExprPool::kEverything, found.later);
  const ExprId some = pool.concat(ExprPool::kAnyChar, ExprPool::kEverything);
  return pool.any_of({found.at_start, pool.concat(some, found.later)});
}

Compiled<ExprId> RegexTable::parse(std::string_view pattern, RegexScope scope) {
  std::pair<std::string, RegexScope> key(pattern, scope);
  if (const auto it = known_.find(key); it != known_.end()) return it->second;
  auto expr = parse_regex(pool_, pattern, scope, max_depth_);
  if (expr) known_.emplace(std::move(key), *expr);
  return expr;
}

Compiled<ExprId> parse_terminal_regex(ExprPool& pool, std::string_view pattern,
                                      const TerminalFlags& flags, int max_depth) {
  const std::string text = flags.verbose ? without_comments(pattern) : std::string(pattern);
  auto tree = parse_regex_tree(text, max_depth, {true, flags.ignore_case, flags.dot_all});
  if (!tree) return tl::unexpected(std::move(tree).error());
  const Rest found =
      TreeReader(pool, *tree).before(tree->root, {ExprPool::kEmpty, ExprPool::kEmpty});
  if (pool.exhausted())
    return refuse(RefusalKind::kTooLarge, "", "the regular expression is too large");
  return found.later;
}

}  // namespace penstock::grammar
