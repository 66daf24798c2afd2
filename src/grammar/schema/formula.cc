#include "grammar/schema/formula.h"

#include <algorithm>

namespace penstock::grammar {
namespace {

constexpr size_t kPartsOfEdge = 8;  // this many take the memory of an edge

uint64_t hash_of(const JsonValue& value) {
  const uint64_t hash = mix(static_cast<uint64_t>(value.kind), text_hash(value.string));
  if (value.is_number()) return mix(hash, text_hash(value.number.text()));
  uint64_t members = 0;
  for (const JsonMember& member : value.members) {
    const uint64_t one = mix(text_hash(member.key), hash_of(member.value));
    members = value.is_object() ? members + one : mix(members, one);
  }
  return mix(hash, members);
}

}  // namespace

size_t ValueHash::operator()(const JsonValue* value) const { return hash_of(*value); }

FormulaPool::FormulaPool(Budget& budget) : budget_(budget) {
  nodes_.push_back({Kind::kFalse});
  nodes_.push_back({Kind::kTrue});
}

FormulaId FormulaPool::intern(Kind kind, std::span<const FormulaId> list, uint32_t atom) {
  uint64_t hash = mix(static_cast<uint64_t>(kind), atom);
  for (const FormulaId id : list) hash = mix(hash, raw(id));
  const uint32_t found = node_index_.find(hash, [&](uint32_t i) {
    if (nodes_[i].kind != kind) return false;
    return kind == Kind::kAtom ? nodes_[i].begin == atom
                               : std::ranges::equal(parts(FormulaId{i}), list);
  });
  if (found != InternTable::kAbsent) return FormulaId{found};
  if (!budget_.take_edges(1 + list.size() / kPartsOfEdge)) return kFalse;
  const auto id = static_cast<uint32_t>(nodes_.size());
  if (kind == Kind::kAtom) {
    nodes_.push_back({kind, atom, 0});
  } else {
    nodes_.push_back(
        {kind, static_cast<uint32_t>(lists_.size()), static_cast<uint32_t>(list.size())});
    lists_.insert(lists_.end(), list.begin(), list.end());
  }
  node_index_.insert(hash, id);
  return FormulaId{id};
}

std::span<const FormulaId> FormulaPool::parts(FormulaId id) const {
  const Node& node = nodes_[raw(id)];
  return {lists_.data() + node.begin, node.size};
}

FormulaId FormulaPool::atom(const Atom& atom) {
  uint64_t hash = mix(mix(static_cast<uint64_t>(atom.kind), atom.index), atom.schema.raw);
  hash = mix(mix(hash, atom.window.min), atom.window.max);
  uint32_t index = atom_index_.find(hash, [&](uint32_t i) { return atoms_[i] == atom; });
  if (index == InternTable::kAbsent) {
    index = static_cast<uint32_t>(atoms_.size());
    atoms_.push_back(atom);
    atom_index_.insert(hash, index);
  }
  return intern(Kind::kAtom, {}, index);
}

FormulaId FormulaPool::number(NumberPiece piece, bool narrowed) {
  if (!budget_.spend(1)) return kFalse;
  uint64_t hash = narrowed ? 1 : 0;
  for (const auto& bound : {piece.low, piece.high})
    hash = mix(hash, bound ? text_hash(bound->value.text()) : 0);
  uint32_t index = number_index_.find(hash, [&](uint32_t i) {
    return numbers_[i].piece == piece && numbers_[i].narrowed == narrowed;
  });
  if (index == InternTable::kAbsent) {
    index = static_cast<uint32_t>(numbers_.size());
    numbers_.push_back({std::move(piece), narrowed});
    number_index_.insert(hash, index);
  }
  return atom({Atom::Kind::kNumber, index});
}

FormulaId FormulaPool::text(const TextConstraint& text) {
  if (text.expr == ExprPool::kNothing || text.length.empty()) return kFalse;
  if (text.expr == ExprPool::kEverything && text.length.trivial()) return kTrue;
  if (!budget_.spend(1)) return kFalse;
  const uint64_t hash =
      mix(mix(mix(static_cast<uint32_t>(text.expr), text.length.min), text.length.max),
          text.narrowed ? 1 : 0);
  uint32_t index = text_index_.find(hash, [&](uint32_t i) {
    const TextConstraint& t = texts_[i];
    return t.expr == text.expr && t.length == text.length && t.narrowed == text.narrowed;
  });
  if (index == InternTable::kAbsent) {
    index = static_cast<uint32_t>(texts_.size());
    texts_.push_back(text);
    text_index_.insert(hash, index);
  }
  return atom({Atom::Kind::kText, index});
}

FormulaId FormulaPool::values(std::vector<const JsonValue*> list) {
  if (list.empty() || !budget_.take_edges(1 + list.size() / kPartsOfEdge)) return kFalse;
  value_sets_.emplace_back(list.begin(), list.end());
  values_.push_back(std::move(list));
  return atom({Atom::Kind::kValues, static_cast<uint32_t>(values_.size() - 1)});
}

uint32_t FormulaPool::key_set(const KeySet& keys) {
  budget_.take_edges(1 + keys.not_keys.size());
  uint64_t hash = mix(static_cast<uint64_t>(keys.kind), text_hash(keys.literal));
  hash = mix(hash, static_cast<uint32_t>(keys.pattern));
  for (const std::string& key : keys.not_keys) hash = mix(hash, text_hash(key));
  for (const ExprId expr : keys.not_matching) hash = mix(hash, static_cast<uint32_t>(expr));
  uint32_t index = key_index_.find(hash, [&](uint32_t i) { return keys_[i] == keys; });
  if (index == InternTable::kAbsent) {
    index = static_cast<uint32_t>(keys_.size());
    keys_.push_back(keys);
    excluded_.emplace_back(keys_.back().not_keys.begin(), keys_.back().not_keys.end());
    key_index_.insert(hash, index);
  }
  return index;
}

FormulaId FormulaPool::any_of(std::vector<FormulaId> list) {
  // Merges lists of values.
  const auto is_values = [this](FormulaId id) {
    return kind(id) == Kind::kAtom && atom(id).kind == Atom::Kind::kValues;
  };
  if (std::count_if(list.begin(), list.end(), is_values) > 1) {
    std::vector<const JsonValue*> all;
    for (const FormulaId id : list) {
      if (!is_values(id)) continue;
      const auto& some = values_[atom(id).index];
      all.insert(all.end(), some.begin(), some.end());
    }
    std::erase_if(list, is_values);
    list.push_back(values(std::move(all)));
  }
  return nary(Kind::kOr, std::move(list));
}

FormulaId FormulaPool::nary(Kind kind, std::vector<FormulaId> list) {
  const FormulaId unit = kind == Kind::kAnd ? kTrue : kFalse,
                  zero = kind == Kind::kAnd ? kFalse : kTrue;
  std::vector<FormulaId> flat;
  if (!budget_.spend(1 + list.size())) return kFalse;
  for (const FormulaId id : list) {
    if (id == zero) return zero;
    if (id == unit) continue;
    if (this->kind(id) == kind) {
      const auto inner = parts(id);
      flat.insert(flat.end(), inner.begin(), inner.end());
    } else {
      flat.push_back(id);
    }
  }
  if (!budget_.spend(flat.size())) return kFalse;
  std::sort(flat.begin(), flat.end());
  flat.erase(std::unique(flat.begin(), flat.end()), flat.end());
  if (flat.empty()) return unit;
  return flat.size() == 1 ? flat.front() : intern(kind, flat);
}

}  // namespace penstock::grammar
