#include "grammar/schema/membership.h"

#include <algorithm>

#include "text/unicode/unicode.h"

namespace penstock::grammar {
namespace {

using AtomKind = Atom::Kind;

bool matches(Expansion& expansion, ExprId expr, std::string_view text) {
  if (!expansion.budget().spend(1 + text.size())) return false;
  ExprPool& exprs = expansion.exprs();
  for (size_t i = 0; i < text.size() && expr != ExprPool::kNothing;) {
    const unicode::Decoded c = unicode::decode(text, i);
    expr = exprs.derivative(expr, c.code);
    i += c.length;
  }
  return exprs.accepts_empty(expr);
}

bool holds_in_array(Expansion& expansion, const Atom& atom, const JsonValue& value) {
  const auto& items = value.members;
  const size_t from = std::min<size_t>(atom.index, items.size());
  const auto is = [&](const JsonMember& item) { return holds(expansion, atom.schema, item.value); };
  switch (atom.kind) {
    case AtomKind::kItem: return atom.index >= items.size() || is(items[atom.index]);
    case AtomKind::kRest:
      return std::all_of(items.begin() + static_cast<ptrdiff_t>(from), items.end(), is);
    case AtomKind::kContains: {
      const auto n = static_cast<uint64_t>(
          std::count_if(items.begin() + static_cast<ptrdiff_t>(from), items.end(), is));
      return n >= atom.window.min && n <= atom.window.max;
    }
    default: break;
  }
  if (!expansion.budget().spend(1 + items.size())) return false;
  ValueSet seen;
  return std::ranges::all_of(
      items, [&](const JsonMember& item) { return seen.insert(&item.value).second; });
}

bool holds_in_object(Expansion& expansion, const Atom& atom, const JsonValue& value) {
  const auto is = [&](const JsonMember& member) {
    return contains(expansion, atom.index, member.key) &&
           holds(expansion, atom.schema, member.value);
  };
  const auto fine = [&](const JsonMember& member) {
    return !contains(expansion, atom.index, member.key) ||
           holds(expansion, atom.schema, member.value);
  };
  const auto& members = value.members;
  return atom.kind == AtomKind::kExists ? std::any_of(members.begin(), members.end(), is)
                                        : std::all_of(members.begin(), members.end(), fine);
}

bool holds(Expansion& expansion, const Atom& atom, const JsonValue& value) {
  const auto within = [&](uint64_t n) { return n >= atom.window.min && n <= atom.window.max; };
  switch (atom.kind) {
    case AtomKind::kNumber:
      return expansion.pool().number_at(atom.index).piece.contains(value.number);
    case AtomKind::kText: {
      const TextConstraint text = expansion.pool().text_at(atom.index);
      const auto n = characters_of(value.string).size();
      return n >= text.length.min && n <= text.length.max &&
             matches(expansion, text.expr, value.string);
    }
    case AtomKind::kValues: {
      if (!expansion.budget().spend(1 + value.members.size())) return false;
      return expansion.pool().lists(atom.index, value);
    }
    case AtomKind::kItemCount:
    case AtomKind::kMemberCount: return within(value.members.size());
    case AtomKind::kItem:
    case AtomKind::kRest:
    case AtomKind::kContains:
    case AtomKind::kUnique: return holds_in_array(expansion, atom, value);
    case AtomKind::kMembers:
    case AtomKind::kExists: return holds_in_object(expansion, atom, value);
    case AtomKind::kProperties: return true;
  }
  return false;
}

}  // namespace

ExprId text_of(Expansion& expansion, FormulaId formula) {
  ExprPool& exprs = expansion.exprs();
  switch (expansion.pool().kind(formula)) {
    case FormulaPool::Kind::kFalse: return ExprPool::kNothing;
    case FormulaPool::Kind::kTrue: return ExprPool::kEverything;
    case FormulaPool::Kind::kAtom: break;
    default: {
      std::vector<ExprId> parts;
      const bool all = expansion.pool().kind(formula) == FormulaPool::Kind::kAnd;
      for (const FormulaId part : expansion.pool().parts(formula))
        parts.push_back(text_of(expansion, part));
      return all ? exprs.all_of(std::move(parts)) : exprs.any_of(std::move(parts));
    }
  }
  const Atom& atom = expansion.pool().atom(formula);
  if (atom.kind == AtomKind::kValues) {
    std::vector<ExprId> any;
    for (const JsonValue* value : expansion.pool().values_at(atom.index))
      any.push_back(exprs.literal(characters_of(value->string)));
    return exprs.any_of(std::move(any));
  }
  const TextConstraint& text = expansion.pool().text_at(atom.index);
  if (text.length.trivial()) return text.expr;
  const auto bounded = [](uint64_t n) {
    return static_cast<uint32_t>(std::min<uint64_t>(n, ExprPool::kUnbounded));
  };
  const ExprId length =
      exprs.repeat(ExprPool::kAnyChar, bounded(text.length.min), bounded(text.length.max));
  return exprs.all_of({text.expr, length});
}

bool contains(Expansion& expansion, uint32_t index, std::string_view key) {
  const FormulaPool& pool = expansion.pool();
  const KeySet& keys = pool.keys(index);
  switch (keys.kind) {
    case KeySet::Kind::kLiteral: return keys.literal == key;
    case KeySet::Kind::kMatching: return matches(expansion, keys.pattern, key);
    case KeySet::Kind::kOthers: break;
  }
  return !pool.excludes(index, key) &&
         std::none_of(keys.not_matching.begin(), keys.not_matching.end(),
                      [&](ExprId e) { return matches(expansion, e, key); });
}

bool holds(Expansion& expansion, FormulaId formula, const JsonValue& value) {
  if (!expansion.budget().spend(1)) return false;
  switch (expansion.pool().kind(formula)) {
    case FormulaPool::Kind::kFalse: return false;
    case FormulaPool::Kind::kTrue: return true;
    case FormulaPool::Kind::kAtom:
      return holds(expansion, Atom(expansion.pool().atom(formula)), value);
    default: break;
  }
  const bool all = expansion.pool().kind(formula) == FormulaPool::Kind::kAnd;
  const std::vector<FormulaId> parts(expansion.pool().parts(formula).begin(),
                                     expansion.pool().parts(formula).end());
  const auto part_holds = [&](FormulaId part) { return holds(expansion, part, value); };
  return all ? std::all_of(parts.begin(), parts.end(), part_holds)
             : std::any_of(parts.begin(), parts.end(), part_holds);
}

bool holds(Expansion& expansion, SignedSchema schema, const JsonValue& value) {
  return holds(expansion, expansion.expand(schema, type_of(value)), value);
}

}  // namespace penstock::grammar
