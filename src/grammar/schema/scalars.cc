#include "grammar/schema/scalars.h"

#include <algorithm>

#include "base/check.h"

namespace penstock::grammar {
namespace {

using AtomKind = Atom::Kind;
using FormulaKind = FormulaPool::Kind;
constexpr size_t kMaxPieces = 512;

bool is_values(const FormulaPool& pool, FormulaId formula) {
  return pool.kind(formula) == FormulaKind::kAtom && pool.atom(formula).kind == AtomKind::kValues;
}

bool has_values(const FormulaPool& pool, FormulaId formula) {
  if (pool.kind(formula) == FormulaKind::kAtom) return is_values(pool, formula);
  const auto parts = pool.parts(formula);
  return std::any_of(parts.begin(), parts.end(),
                     [&](FormulaId part) { return has_values(pool, part); });
}

bool is_empty(const NumberPiece& piece) {
  if (!piece.low || !piece.high) return false;
  if (piece.low->value > piece.high->value) return true;
  if (piece.low->value < piece.high->value) return false;
  return piece.low->open || piece.high->open || !piece.contains(piece.low->value);
}

// Keeps the narrower of two bounds.
void narrow(std::optional<NumberBound>& bound, const std::optional<NumberBound>& other, bool low) {
  if (!other) return;
  if (!bound || (low ? other->value > bound->value : other->value < bound->value)) {
    bound = other;
  } else if (bound->value == other->value) {
    bound->open |= other->open;
  }
}

void add_new(std::vector<Decimal>& list, const std::vector<Decimal>& more) {
  for (const Decimal& d : more) {
    if (std::find(list.begin(), list.end(), d) == list.end()) list.push_back(d);
  }
}

NumberPiece both(const NumberPiece& a, const NumberPiece& b) {
  NumberPiece result = a;
  narrow(result.low, b.low, true);
  narrow(result.high, b.high, false);
  add_new(result.multiples_of, b.multiples_of);
  add_new(result.not_multiples_of, b.not_multiples_of);
  result.digits_only |= b.digits_only;
  return result;
}

// Combines the sets of atoms in a monotone formula; nullopt: too many pieces.
template <class Piece, class OfAtom, class Both, class IsEmpty>
std::optional<std::vector<Piece>> pieces_of(const FormulaPool& pool, FormulaId formula,
                                            const OfAtom& of_atom, const Both& both_of,
                                            const IsEmpty& empty) {
  switch (pool.kind(formula)) {
    case FormulaKind::kFalse: return std::vector<Piece>{};
    case FormulaKind::kTrue: return std::vector<Piece>{Piece{}};
    case FormulaKind::kAtom: return std::vector<Piece>{of_atom(pool.atom(formula))};
    default: break;
  }
  const bool all = pool.kind(formula) == FormulaKind::kAnd;
  std::vector<Piece> result;
  if (all) result.push_back({});
  for (const FormulaId part : pool.parts(formula)) {
    auto some = pieces_of<Piece>(pool, part, of_atom, both_of, empty);
    if (!some) return std::nullopt;
    if (!all) {
      result.insert(result.end(), some->begin(), some->end());
    } else {
      std::vector<Piece> products;
      for (const Piece& a : result) {
        for (const Piece& b : *some) {
          Piece piece = both_of(a, b);
          if (!empty(piece)) products.push_back(std::move(piece));
        }
      }
      result = std::move(products);
    }
    if (result.size() > kMaxPieces) return std::nullopt;
  }
  return result;
}

}  // namespace

const std::vector<const JsonValue*>* listed_values(const FormulaPool& pool, FormulaId formula) {
  if (is_values(pool, formula)) return &pool.values_at(pool.atom(formula).index);
  if (pool.kind(formula) != FormulaKind::kAnd) return nullptr;
  const std::vector<const JsonValue*>* shortest = nullptr;
  for (const FormulaId part : pool.parts(formula)) {
    if (!is_values(pool, part)) continue;
    const auto& list = pool.values_at(pool.atom(part).index);
    if (shortest == nullptr || list.size() < shortest->size()) shortest = &list;
  }
  return shortest;
}

std::optional<std::vector<FormulaId>> without_choices_of_values(FormulaPool& pool,
                                                                FormulaId formula) {
  std::vector<FormulaId> done, open{formula};
  while (!open.empty()) {
    const FormulaId at = open.back();
    open.pop_back();
    if (done.size() + open.size() > kMaxPieces) return std::nullopt;
    std::vector<FormulaId> conjuncts{at};
    if (pool.kind(at) == FormulaKind::kAnd)
      conjuncts.assign(pool.parts(at).begin(), pool.parts(at).end());
    const auto choice = std::find_if(conjuncts.begin(), conjuncts.end(), [&](FormulaId f) {
      return pool.kind(f) == FormulaKind::kOr && has_values(pool, f);
    });
    if (choice == conjuncts.end() || listed_values(pool, at) != nullptr) {
      if (at != FormulaPool::kFalse) done.push_back(at);
      continue;
    }
    // Alternatives without lists stay together.
    const std::vector<FormulaId> parts(pool.parts(*choice).begin(), pool.parts(*choice).end());
    std::vector<FormulaId> plain;
    const auto add = [&](FormulaId alternative) {
      std::vector<FormulaId> with = conjuncts;
      with[choice - conjuncts.begin()] = alternative;
      open.push_back(pool.all_of(std::move(with)));
    };
    for (const FormulaId part : parts) {
      if (has_values(pool, part)) {
        add(part);
      } else {
        plain.push_back(part);
      }
    }
    if (!plain.empty()) add(pool.any_of(std::move(plain)));
  }
  return done;
}

std::optional<std::vector<NumberPiece>> number_pieces(const FormulaPool& pool, FormulaId formula) {
  const auto of_atom = [&](const Atom& atom) {
    PENSTOCK_CHECK(atom.kind == AtomKind::kNumber);
    return pool.number_at(atom.index).piece;
  };
  auto pieces = pieces_of<NumberPiece>(pool, formula, of_atom, both, is_empty);
  if (pieces) std::erase_if(*pieces, is_empty);
  return pieces;
}

std::optional<std::vector<TextConstraint>> text_pieces(Expansion& expansion, FormulaId formula) {
  const FormulaPool& pool = expansion.pool();
  ExprPool& exprs = expansion.exprs();
  const auto of_atom = [&](const Atom& atom) {
    PENSTOCK_CHECK(atom.kind == AtomKind::kText);
    return pool.text_at(atom.index);
  };
  const auto both_texts = [&](const TextConstraint& a, const TextConstraint& b) {
    return TextConstraint{exprs.all_of({a.expr, b.expr}), a.length & b.length,
                          a.narrowed || b.narrowed};
  };
  const auto empty = [](const TextConstraint& text) {
    return text.expr == ExprPool::kNothing || text.length.empty();
  };
  auto pieces = pieces_of<TextConstraint>(pool, formula, of_atom, both_texts, empty);
  if (!pieces) return std::nullopt;
  std::erase_if(*pieces, empty);
  // Merges pieces with the same lengths.
  std::vector<TextConstraint> merged;
  for (const TextConstraint& piece : *pieces) {
    const auto same = std::find_if(merged.begin(), merged.end(), [&](const TextConstraint& m) {
      return m.length == piece.length;
    });
    if (same == merged.end()) {
      merged.push_back(piece);
    } else {
      same->expr = exprs.any_of({same->expr, piece.expr});
    }
  }
  return merged;
}

}  // namespace penstock::grammar
