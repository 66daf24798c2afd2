// unevaluatedProperties and unevaluatedItems: the ways to fulfil a schema, each with what it
// evaluates.
//
// A member is evaluated if any satisfied schema evaluates it. A way that considers only some of the
// satisfied schemas forbids more, never less, and one way considers all of them, so that
// alternatives need no complements.
#include <algorithm>

#include "grammar/schema/expansion.h"

namespace penstock::grammar {
namespace {

constexpr size_t kMaxWays = 256;
// all subsets of this many alternatives; of more, each one alone and all together
constexpr size_t kAllSubsets = 4;

Evaluated evaluated_by(const Schema& schema, ValueType type) {
  Evaluated result;
  if (type == ValueType::kObject) {
    for (const auto& [key, value] : schema.properties) result.keys.insert(key);
    for (const auto& [pattern, value] : schema.pattern_properties)
      result.patterns.push_back(pattern);
    result.all = schema.additional_properties.has_value();
  } else {
    result.prefix = schema.prefix_items.size();
    result.all = schema.items.has_value();
    if (schema.contains && schema.contains_evaluates) result.contained.push_back(*schema.contains);
  }
  return result;
}

}  // namespace

void Evaluated::add(const Evaluated& other) {
  all |= other.all;
  keys.insert(other.keys.begin(), other.keys.end());
  patterns.insert(patterns.end(), other.patterns.begin(), other.patterns.end());
  prefix = std::max(prefix, other.prefix);
  contained.insert(contained.end(), other.contained.begin(), other.contained.end());
}

void Expansion::combine(std::vector<Way>& ways, const std::vector<Way>& more) {
  std::vector<Way> result;
  for (const Way& a : ways) {
    for (const Way& b : more) {
      const FormulaId both = pool_.all_of({a.formula, b.formula});
      if (both == FormulaPool::kFalse) continue;
      Way& way = result.emplace_back(Way{both, a.evaluated});
      way.evaluated.add(b.evaluated);
    }
  }
  if (result.size() > kMaxWays) {
    fail(RefusalKind::kUnsupported, "#",
         "unevaluatedProperties or unevaluatedItems beside too many alternatives", "");
    result.clear();
  }
  ways = std::move(result);
}

std::vector<Expansion::Way> Expansion::ways(SchemaId id, ValueType type) {
  const Schema& schema = schemas_[id];
  if (failed_ || schema.never || (schema.types & bit(type)) == 0) return {};
  const bool rest = type == ValueType::kObject ? schema.unevaluated_properties.has_value()
                                               : schema.unevaluated_items.has_value();
  if (rest) {  // evaluates everything that is left
    Way way{expand(SignedSchema(id), type), {}};
    way.evaluated.all = true;
    return {way};
  }
  if (++depth_ > 100)
    fail(RefusalKind::kTooLarge, schema.where.text(),
         "too many schemas within schemas about one value", "");
  auto result = ways_within(schema, id, type);
  --depth_;
  return result;
}

std::vector<Expansion::Way> Expansion::ways_within(const Schema& schema, SchemaId id,
                                                   ValueType type) {
  std::vector<Way> result{{own(schema, id, type), evaluated_by(schema, type)}};
  for (const SchemaId part : schema.all_of) combine(result, ways(part, type));
  for (const auto& list : schema.any_of) combine(result, ways_any_of(list, type));
  for (const auto& list : schema.one_of) combine(result, ways_one_of(list, type));
  for (const SchemaId part : schema.none_of)
    combine(result, {{expand(!SignedSchema(part), type), {}}});
  if (schema.condition) {
    std::vector<Way> branches = ways(*schema.condition, type);
    if (schema.then) combine(branches, ways(*schema.then, type));
    std::vector<Way> otherwise{{expand(!SignedSchema(*schema.condition), type), {}}};
    if (schema.otherwise) combine(otherwise, ways(*schema.otherwise, type));
    branches.insert(branches.end(), otherwise.begin(), otherwise.end());
    combine(result, branches);
  }
  if (type != ValueType::kObject) return result;
  for (const auto& [key, dependent] : schema.dependent_schemas) {
    const KeySet keys{.kind = KeySet::Kind::kLiteral, .literal = key};
    std::vector<Way> branches = ways(dependent, type);
    combine(branches, {{pool_.exists(keys, SignedSchema(schemas_.anything())), {}}});
    branches.push_back({pool_.members(keys, SignedSchema(schemas_.nothing())), {}});
    combine(result, branches);
  }
  return result;
}

std::vector<Expansion::Way> Expansion::ways_any_of(const std::vector<SchemaId>& list,
                                                   ValueType type) {
  std::vector<std::vector<Way>> each;
  for (const SchemaId id : list) {
    each.push_back(ways(id, type));
    if (each.back().empty()) each.pop_back();
  }
  std::vector<Way> result;
  const size_t n = each.size();
  const auto add = [&](uint64_t subset) {
    std::vector<Way> together{{FormulaPool::kTrue, {}}};
    for (size_t i = 0; i < n; ++i) {
      if ((subset >> i & 1) != 0) combine(together, each[i]);
    }
    result.insert(result.end(), together.begin(), together.end());
  };
  if (n <= kAllSubsets) {
    for (uint64_t subset = 1; subset < 1U << n; ++subset) add(subset);
  } else if (n < 64) {
    for (size_t i = 0; i < n; ++i) add(uint64_t{1} << i);
    add((uint64_t{1} << n) - 1);
  }
  return result;
}

std::vector<Expansion::Way> Expansion::ways_one_of(const std::vector<SchemaId>& list,
                                                   ValueType type) {
  std::vector<Way> result;
  for (size_t i = 0; i < list.size() && budget_.spend(1); ++i) {
    std::vector<Way> alone = ways(list[i], type);
    for (size_t j = 0; j < list.size() && !alone.empty(); ++j) {
      if (j != i) combine(alone, {{expand(!SignedSchema(list[j]), type), {}}});
    }
    result.insert(result.end(), alone.begin(), alone.end());
  }
  return result;
}

FormulaId Expansion::unevaluated(const Schema& schema, const Evaluated& evaluated, ValueType type) {
  if (evaluated.all) return FormulaPool::kTrue;
  if (type == ValueType::kObject) {
    if (*schema.unevaluated_properties == schemas_.anything()) return FormulaPool::kTrue;
    KeySet rest{.kind = KeySet::Kind::kOthers};
    rest.not_keys.assign(evaluated.keys.begin(), evaluated.keys.end());
    rest.not_matching = evaluated.patterns;
    return pool_.members(rest, SignedSchema(*schema.unevaluated_properties));
  }
  SchemaId allowed = *schema.unevaluated_items;
  if (!evaluated.contained.empty()) {
    Schema either{.where = schema.where};
    either.any_of.push_back(evaluated.contained);
    either.any_of.back().push_back(allowed);
    allowed = schemas_.add(std::move(either));
  }
  if (allowed == schemas_.anything()) return FormulaPool::kTrue;
  const auto prefix = static_cast<uint32_t>(evaluated.prefix);
  if (allowed == schemas_.nothing())
    return pool_.atom({Atom::Kind::kItemCount, 0, {}, {0, prefix}});
  return pool_.atom({Atom::Kind::kRest, prefix, SignedSchema(allowed)});
}

}  // namespace penstock::grammar
