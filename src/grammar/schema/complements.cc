// Complements of formulas.
#include <algorithm>

#include "grammar/schema/expansion.h"
#include "text/unicode/unicode.h"

namespace penstock::grammar {
namespace {

using AtomKind = Atom::Kind;

}  // namespace

FormulaId Expansion::negate(FormulaId formula) {
  if (formula == FormulaPool::kTrue) return FormulaPool::kFalse;
  if (formula == FormulaPool::kFalse) return FormulaPool::kTrue;
  if (const auto it = negations_.find(formula); it != negations_.end()) return it->second;
  FormulaId result = FormulaPool::kFalse;
  if (pool_.kind(formula) == FormulaPool::Kind::kAtom) {
    const Atom atom = pool_.atom(formula);
    result = negate_atom(atom);
  } else {
    std::vector<FormulaId> parts(pool_.parts(formula).begin(), pool_.parts(formula).end());
    for (FormulaId& part : parts) part = negate(part);
    result = pool_.kind(formula) == FormulaPool::Kind::kAnd ? pool_.any_of(std::move(parts))
                                                            : pool_.all_of(std::move(parts));
  }
  negations_.emplace(formula, result);
  return result;
}

// Returns the counts below or above the atom's window.
FormulaId Expansion::outside(Atom atom) {
  const CountWindow window = atom.window;
  std::vector<FormulaId> sides;
  if (window.min > 0) {
    atom.window = {0, window.min - 1};
    sides.push_back(pool_.atom(atom));
  }
  if (window.max != kNoLimit) {
    atom.window = {window.max + 1, kNoLimit};
    sides.push_back(pool_.atom(atom));
  }
  return pool_.any_of(std::move(sides));
}

FormulaId Expansion::negate_atom(const Atom& atom) {
  switch (atom.kind) {
    case AtomKind::kNumber: {
      const NumberConstraint constraint = pool_.number_at(atom.index);
      const NumberPiece& piece = constraint.piece;
      if (constraint.narrowed) break;
      std::vector<FormulaId> any;
      if (piece.low)
        any.push_back(pool_.number({.high = NumberBound{piece.low->value, !piece.low->open}}));
      if (piece.high)
        any.push_back(pool_.number({.low = NumberBound{piece.high->value, !piece.high->open}}));
      for (const Decimal& d : piece.multiples_of)
        any.push_back(pool_.number({.not_multiples_of = {d}}));
      for (const Decimal& d : piece.not_multiples_of)
        any.push_back(pool_.number({.multiples_of = {d}}));
      return pool_.any_of(std::move(any));
    }
    case AtomKind::kText: {
      const TextConstraint text = pool_.text_at(atom.index);
      if (text.narrowed) break;
      std::vector<FormulaId> any{pool_.text({.expr = exprs_.negate(text.expr)})};
      if (text.length.min > 0) any.push_back(pool_.text({.length = {0, text.length.min - 1}}));
      if (text.length.max != kNoLimit)
        any.push_back(pool_.text({.length = {text.length.max + 1, kNoLimit}}));
      return pool_.any_of(std::move(any));
    }
    case AtomKind::kValues: return not_values(pool_.values_at(atom.index));
    case AtomKind::kItem:
      return pool_.all_of(
          {pool_.atom({AtomKind::kItemCount, 0, {}, {atom.index + uint64_t{1}, kNoLimit}}),
           pool_.atom({AtomKind::kItem, atom.index, !atom.schema})});
    case AtomKind::kRest:
      return pool_.atom({AtomKind::kContains, atom.index, !atom.schema, {1, kNoLimit}});
    case AtomKind::kContains:
    case AtomKind::kItemCount:
    case AtomKind::kMemberCount: return outside(atom);
    case AtomKind::kUnique: break;
    case AtomKind::kMembers: return pool_.atom({AtomKind::kExists, atom.index, !atom.schema});
    case AtomKind::kExists: return pool_.atom({AtomKind::kMembers, atom.index, !atom.schema});
    case AtomKind::kProperties: return FormulaPool::kFalse;
  }
  const char* what = atom.kind == AtomKind::kUnique ? "uniqueItems" : "format";
  fail(RefusalKind::kUnsupported, "#",
       std::string(what) + " within not, oneOf or if is not supported: its complement is not known",
       "");
  return FormulaPool::kFalse;
}

FormulaId Expansion::not_values(const std::vector<const JsonValue*>& values) {
  const std::vector<const JsonValue*> list = values;  // a copy: the pool grows
  std::vector<FormulaId> all;
  for (const JsonValue* value : list) all.push_back(unlike(*value));
  return pool_.all_of(std::move(all));
}

// Returns the values of the same type that differ from `value`.
FormulaId Expansion::unlike(const JsonValue& value) {
  std::vector<FormulaId> any;
  const auto other = [&](const JsonValue& part) {
    return SignedSchema(schemas_.constant(part), true);
  };
  const uint64_t n = value.members.size();
  switch (value.kind) {
    case JsonValue::Kind::kNumber:
      return pool_.any_of({pool_.number({.high = NumberBound{value.number, true}}),
                           pool_.number({.low = NumberBound{value.number, true}})});
    case JsonValue::Kind::kString:
      return pool_.text({.expr = exprs_.negate(exprs_.literal(characters_of(value.string)))});
    case JsonValue::Kind::kArray:
      any.push_back(outside({AtomKind::kItemCount, 0, {}, {n, n}}));
      for (uint32_t i = 0; i < n; ++i)
        any.push_back(negate_atom({AtomKind::kItem, i, !other(value.members[i].value)}));
      return pool_.any_of(std::move(any));
    case JsonValue::Kind::kObject: {
      KeySet others{.kind = KeySet::Kind::kOthers};
      for (const JsonMember& member : value.members) {
        const KeySet key{.kind = KeySet::Kind::kLiteral, .literal = member.key};
        any.push_back(pool_.members(key, SignedSchema(schemas_.nothing())));
        any.push_back(pool_.exists(key, other(member.value)));
        others.not_keys.push_back(member.key);
      }
      any.push_back(pool_.exists(others, SignedSchema(schemas_.anything())));
      return pool_.any_of(std::move(any));
    }
    default: return FormulaPool::kFalse;
  }
}

}  // namespace penstock::grammar
