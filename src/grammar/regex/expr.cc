#include "grammar/regex/expr.h"

#include <algorithm>
#include <unordered_set>

#include "text/unicode/unicode.h"

namespace penstock::grammar {
namespace {

constexpr int kMaxDerivationDepth = 2000;  // recursion depth of derivatives

uint32_t raw(ExprId id) { return static_cast<uint32_t>(id); }

uint32_t less_one(uint32_t count) {
  return count == ExprPool::kUnbounded || count == 0 ? count : count - 1;
}

uint64_t hash_of(const CharSet& set) {
  uint64_t hash = 7;
  for (const CodeRange& r : set.ranges()) hash = mix(mix(hash, r.first), r.last);
  return hash;
}

}  // namespace

ExprPool::ExprPool(size_t max_nodes, size_t max_steps)
    : max_nodes_(max_nodes), max_steps_(max_steps) {
  intern({.kind = Kind::kNothing, .accepts_empty = false});
  intern({.kind = Kind::kEmpty, .accepts_empty = true});
  chars(CharSet::all());
  intern({.kind = Kind::kRepeat,
          .accepts_empty = true,
          .a = raw(kAnyChar),
          .min = 0,
          .max = kUnbounded});
}

ExprId ExprPool::intern(const Node& node, std::span<const ExprId> list) {
  uint64_t hash =
      mix(mix(mix(mix(static_cast<uint64_t>(node.kind), node.a), node.b), node.min), node.max);
  if (!list.empty()) hash = static_cast<uint64_t>(node.kind);
  for (const ExprId id : list) hash = mix(hash, raw(id));
  const uint32_t found = index_.find(hash, [&](uint32_t i) {
    const Node& other = nodes_[i];
    if (other.kind != node.kind) return false;
    if (!list.empty()) return std::ranges::equal(parts(other), list);
    return other.a == node.a && other.b == node.b && other.min == node.min && other.max == node.max;
  });
  if (found != InternTable::kAbsent) return ExprId{found};
  if (nodes_.size() >= max_nodes_) {
    exhausted_ = true;
    return kNothing;
  }
  const auto id = static_cast<uint32_t>(nodes_.size());
  nodes_.push_back(node);
  if (!list.empty()) {
    nodes_.back().a = static_cast<uint32_t>(lists_.size());
    nodes_.back().b = static_cast<uint32_t>(list.size());
    lists_.insert(lists_.end(), list.begin(), list.end());
  }
  const auto plain = [this](ExprId part) { return is_plain(part); };
  Node& made = nodes_.back();
  if (made.kind == Kind::kConcat) made.plain = plain(ExprId{node.a}) && plain(ExprId{node.b});
  if (made.kind == Kind::kRepeat) made.plain = plain(ExprId{node.a});
  if (made.kind == Kind::kOr) made.plain = std::all_of(list.begin(), list.end(), plain);
  if (made.kind == Kind::kAnd || made.kind == Kind::kNot) made.plain = false;
  index_.insert(hash, id);
  return ExprId{id};
}

ExprId ExprPool::chars(const CharSet& set) {
  if (set.empty()) return kNothing;
  const uint64_t hash = hash_of(set);
  uint32_t at = set_index_.find(hash, [&](uint32_t i) { return sets_[i] == set; });
  if (at == InternTable::kAbsent) {
    at = static_cast<uint32_t>(sets_.size());
    sets_.push_back(set);
    set_index_.insert(hash, at);
  }
  return intern({.kind = Kind::kChars, .accepts_empty = false, .a = at});
}

ExprId ExprPool::literal(std::u32string_view text) {
  ExprId result = kEmpty;
  for (size_t i = text.size(); i-- > 0;) result = concat(chars(CharSet::of(text[i])), result);
  return result;
}

std::u32string characters_of(std::string_view text) {
  std::u32string out;
  for (size_t i = 0; i < text.size();) {
    const unicode::Decoded c = unicode::decode(text, i);
    out += c.code;
    i += c.length;
  }
  return out;
}

ExprId ExprPool::any_literal(std::vector<std::u32string> texts) {
  std::sort(texts.begin(), texts.end());
  texts.erase(std::unique(texts.begin(), texts.end()), texts.end());
  return texts.empty() ? kNothing : branches(texts, 0);
}

// Returns the union of sorted texts that share their first `depth` characters, from there on.
ExprId ExprPool::branches(std::span<const std::u32string> texts, size_t depth) {
  const std::u32string &first = texts.front(), &last = texts.back();
  size_t common = depth;
  while (common < first.size() && common < last.size() && first[common] == last[common]) ++common;
  const ExprId head = literal(std::u32string_view(first).substr(depth, common - depth));
  if (texts.size() == 1) return head;
  std::vector<ExprId> any;
  for (size_t begin = 0; begin < texts.size();) {
    size_t end = begin + 1;
    if (texts[begin].size() == common) {
      any.push_back(kEmpty);
    } else {
      while (end < texts.size() && texts[end][common] == texts[begin][common]) ++end;
      any.push_back(branches(texts.subspan(begin, end - begin), common));
    }
    begin = end;
  }
  return concat(head, any_of(std::move(any)));
}

ExprId ExprPool::concat(ExprId head, ExprId tail) {
  if (head == kNothing || tail == kNothing) return kNothing;
  if (head == kEmpty) return tail;
  if (tail == kEmpty || (head == kEverything && tail == kEverything)) return head;
  std::vector<ExprId> heads;  // right-leaning chain
  while (node(head).kind == Kind::kConcat) {
    heads.push_back(ExprId{node(head).a});
    head = ExprId{node(head).b};
  }
  const auto pair = [&](ExprId a, ExprId b) {
    return intern({.kind = Kind::kConcat,
                   .accepts_empty = accepts_empty(a) && accepts_empty(b),
                   .a = raw(a),
                   .b = raw(b)});
  };
  if (!work(heads.size())) return kNothing;
  ExprId result = pair(head, tail);
  for (size_t i = heads.size(); i-- > 0;) result = pair(heads[i], result);
  return result;
}

void ExprPool::flatten(Kind kind, std::vector<ExprId>& list) const {
  std::vector<ExprId> flat;
  for (const ExprId id : list) {
    if (node(id).kind == kind) {
      const auto inner = parts(node(id));
      flat.insert(flat.end(), inner.begin(), inner.end());
    } else {
      flat.push_back(id);
    }
  }
  std::sort(flat.begin(), flat.end());
  flat.erase(std::unique(flat.begin(), flat.end()), flat.end());
  list = std::move(flat);
}

// Merges alternatives of single characters into one set.
void ExprPool::merge_chars(std::vector<ExprId>& list) {
  const auto is_chars = [this](ExprId id) { return node(id).kind == Kind::kChars; };
  if (std::count_if(list.begin(), list.end(), is_chars) < 2) return;
  std::vector<CodeRange> merged;
  for (const ExprId id : list) {
    if (!is_chars(id)) continue;
    const std::span<const CodeRange> ranges = sets_[node(id).a].ranges();
    merged.insert(merged.end(), ranges.begin(), ranges.end());
  }
  constexpr size_t kRangesOfStep = 8;
  work(1 + merged.size() / kRangesOfStep);
  std::erase_if(list, is_chars);
  list.push_back(chars(CharSet::from_ranges(std::move(merged))));
  std::sort(list.begin(), list.end());
}

bool ExprPool::has_complements(const std::vector<ExprId>& list) {
  return std::any_of(list.begin(), list.end(), [&](ExprId id) {
    return node(id).kind == Kind::kNot &&
           std::binary_search(list.begin(), list.end(), ExprId{node(id).a});
  });
}

ExprId ExprPool::nary(Kind kind, std::vector<ExprId> list) {
  const bool is_or = kind == Kind::kOr;
  const ExprId unit = is_or ? kNothing : kEverything, zero = is_or ? kEverything : kNothing;
  flatten(kind, list);
  if (!work(list.size())) return kNothing;
  std::erase(list, unit);
  if (is_or) merge_chars(list);
  if (std::binary_search(list.begin(), list.end(), zero) || has_complements(list)) return zero;
  if (list.empty()) return unit;
  if (list.size() == 1) return list.front();
  const auto empty = [this](ExprId id) { return accepts_empty(id); };
  const bool accepts = is_or ? std::any_of(list.begin(), list.end(), empty)
                             : std::all_of(list.begin(), list.end(), empty);
  return intern({.kind = kind, .accepts_empty = accepts}, list);
}

ExprId ExprPool::any_of(std::vector<ExprId> list) { return nary(Kind::kOr, std::move(list)); }

ExprId ExprPool::all_of(std::vector<ExprId> list) { return nary(Kind::kAnd, std::move(list)); }

ExprId ExprPool::negate(ExprId part) {
  if (part == kNothing) return kEverything;
  if (part == kEverything) return kNothing;
  if (node(part).kind == Kind::kNot) return ExprId{node(part).a};
  return intern({.kind = Kind::kNot, .accepts_empty = !accepts_empty(part), .a = raw(part)});
}

ExprId ExprPool::repeat(ExprId part, uint32_t min, uint32_t max) {
  if (part == kEmpty || max == 0) return kEmpty;
  if (part == kNothing) return min == 0 ? kEmpty : kNothing;
  if (min == 1 && max == 1) return part;
  if (accepts_empty(part)) min = 0;
  const Node& inner = node(part);
  if (inner.kind == Kind::kRepeat && inner.min == 0 && inner.max == kUnbounded) return part;
  return intern(
      {.kind = Kind::kRepeat, .accepts_empty = min == 0, .a = raw(part), .min = min, .max = max});
}

ExprId ExprPool::derivative(ExprId id, char32_t c) { return derive(id, c, 0); }

ExprId ExprPool::derive(ExprId id, char32_t c, int depth) {
  exhausted_ |= depth > kMaxDerivationDepth;
  if (!work(1)) return kNothing;
  const Node at = node(id);  // a copy: the list grows
  switch (at.kind) {
    case Kind::kNothing:
    case Kind::kEmpty: return kNothing;
    case Kind::kChars: return sets_[at.a].contains(c) ? kEmpty : kNothing;
    case Kind::kConcat: return derive_concat(at, c, depth);
    case Kind::kNot: return negate(derive(ExprId{at.a}, c, depth + 1));
    case Kind::kRepeat: return derive_repeat(at, c, depth);
    case Kind::kOr:
    case Kind::kAnd: return derive_list(at, c, depth);
  }
  return kNothing;
}

ExprId ExprPool::derive_concat(const Node& at, char32_t c, int depth) {
  const ExprId head{at.a}, tail{at.b};
  const ExprId through = concat(derive(head, c, depth + 1), tail);
  if (!accepts_empty(head)) return through;
  return any_of({through, derive(tail, c, depth + 1)});
}

ExprId ExprPool::derive_repeat(const Node& at, char32_t c, int depth) {
  const ExprId part{at.a};
  if (part == kAnyChar && at.min == 0 && at.max == kUnbounded) return kEverything;
  // If the part accepts the empty string, min is 0 and omitting a round loses nothing.
  return concat(derive(part, c, depth + 1), repeat(part, less_one(at.min), less_one(at.max)));
}

ExprId ExprPool::derive_list(const Node& at, char32_t c, int depth) {
  std::vector<ExprId> derived;
  derived.reserve(at.b);
  for (uint32_t i = 0; i < at.b; ++i) {
    const ExprId d = derive(lists_[at.a + i], c, depth + 1);
    if (at.kind == Kind::kAnd && d == kNothing) return kNothing;
    if (d != (at.kind == Kind::kOr ? kNothing : kEverything)) derived.push_back(d);
  }
  return nary(at.kind, std::move(derived));
}

std::vector<const CharSet*> ExprPool::sets_of(std::span<const ExprId> ids) const {
  std::vector<const CharSet*> out;
  std::unordered_set<uint32_t> seen;  // equal sets are one expression
  std::vector<ExprId> stack(ids.begin(), ids.end());
  while (!stack.empty()) {
    const ExprId top = stack.back();
    stack.pop_back();
    if (!seen.insert(raw(top)).second) continue;
    const Node& at = node(top);
    switch (at.kind) {
      case Kind::kNothing:
      case Kind::kEmpty: break;
      case Kind::kChars: out.push_back(&sets_[at.a]); break;
      case Kind::kConcat: stack.push_back(ExprId{at.b}); [[fallthrough]];
      case Kind::kNot:
      case Kind::kRepeat: stack.push_back(ExprId{at.a}); break;
      case Kind::kOr:
      case Kind::kAnd: stack.insert(stack.end(), parts(at).begin(), parts(at).end()); break;
    }
  }
  return out;
}

}  // namespace penstock::grammar
