#include "grammar/schema/expansion.h"
#include "grammar/schema/membership.h"
#include "grammar/schema/scalars.h"

#include <algorithm>

namespace penstock::grammar {
namespace {

using AtomKind = Atom::Kind;
constexpr int kMaxNesting = 400;  // of schemas within schemas about one value

KeySet literal(const std::string& key) { return {.kind = KeySet::Kind::kLiteral, .literal = key}; }
KeySet matching(ExprId expr) { return {.kind = KeySet::Kind::kMatching, .pattern = expr}; }

// A member that has in each schema other values, all of them listed: no two can be fulfilled by a value that has it. Of the
// schemas those that require it. nullptr: there is none.
const std::string* telling_member(const SchemaReader& schemas, const std::vector<SchemaId>& list,
                                  std::vector<bool>& required) {
  const auto listed = [&](const Schema& schema,
                          const std::string& key) -> const std::vector<const JsonValue*>* {
    for (const auto& [name, value] : schema.properties) {
      if (name == key) return schemas[value].values.empty() ? nullptr : &schemas[value].values.front();
    }
    return nullptr;
  };
  const auto resolved = [&](SchemaId id) -> const Schema& {
    const Schema* schema = &schemas[id];
    for (int i = 0; i < 8 && schema->all_of.size() == 1 && schema->properties.empty(); ++i)
      schema = &schemas[schema->all_of.front()];
    return *schema;
  };
  for (const auto& property : resolved(list.front()).properties) {
    ValueSet seen;
    required.clear();
    const bool apart = std::all_of(list.begin(), list.end(), [&](SchemaId id) {
      const Schema& schema = resolved(id);
      const auto* values = listed(schema, property.first);
      required.push_back(std::ranges::find(schema.required, property.first) != schema.required.end());
      return values != nullptr && std::ranges::all_of(*values, [&](const JsonValue* v) {
               return !v->is_array() && !v->is_object() && seen.insert(v).second;
             });
    });
    if (apart) return &property.first;
  }
  return nullptr;
}

}  // namespace

void Expansion::fail(RefusalKind kind, std::string where, std::string message, std::string keyword) {
  if (failed_) return;
  if (!keyword.empty()) {
    where = append_pointer(where, keyword);
    message = keyword + ": " + message;
  }
  refusal_ = {kind, std::move(where), std::move(keyword), std::move(message)};
  failed_ = true;
}

FormulaId Expansion::expand(SignedSchema schema, ValueType type) {
  if (failed_) return FormulaPool::kFalse;
  if (!budget_.spend(1)) {
    fail(RefusalKind::kTooLarge, schemas_[schema.id()].where.text(), kTooMuchWork, "");
    return FormulaPool::kFalse;
  }
  while (known_.size() < schemas_.size()) known_.emplace_back().fill(kUnknown);
  const SchemaId id = schema.id();
  const auto slot = [&]() -> FormulaId& { return known_[id][static_cast<int>(type)]; };
  if (slot() == kBusy) {
    fail(RefusalKind::kInvalid, schemas_[id].where.text(),
         "the schema refers to itself without a member or item between", "");
    return FormulaPool::kFalse;
  }
  if (slot() == kUnknown) {
    slot() = kBusy;
    const FormulaId built = build(id, type);
    slot() = built;
  }
  return schema.negated() ? negate(slot()) : slot();
}

FormulaId Expansion::build(SchemaId id, ValueType type) {
  const Schema& schema = schemas_[id];
  if (schema.never || (schema.types & bit(type)) == 0) return FormulaPool::kFalse;
  if (++depth_ > kMaxNesting || !budget_.take_schemas(1)) {
    fail(RefusalKind::kTooLarge, schema.where.text(), "too many schemas within schemas about one value", "");
  }
  FormulaId result = FormulaPool::kFalse;
  const bool rest = type == ValueType::kObject
                        ? schema.unevaluated_properties.has_value()
                        : type == ValueType::kArray && schema.unevaluated_items.has_value();
  if (rest) {
    std::vector<FormulaId> alternatives;
    for (const Way& way : ways_within(schema, id, type)) {
      alternatives.push_back(pool_.all_of({way.formula, unevaluated(schema, way.evaluated, type)}));
    }
    result = pool_.any_of(std::move(alternatives));
  } else {
    result = pool_.all_of({own(schema, id, type), applicators(schema, type)});
  }
  --depth_;
  return result;
}

// What the keywords say that have no schemas about the same value.
FormulaId Expansion::own(const Schema& schema, SchemaId id, ValueType type) {
  const FormulaId values = values_of(schema, type);
  switch (type) {
    case ValueType::kNumber: return pool_.all_of({values, numbers(schema)});
    case ValueType::kString: return pool_.all_of({values, strings(schema)});
    case ValueType::kArray: return pool_.all_of({values, arrays(schema)});
    case ValueType::kObject: return pool_.all_of({values, objects(schema, id)});
    default: return values;
  }
}

FormulaId Expansion::values_of(const Schema& schema, ValueType type) {
  std::vector<FormulaId> lists;
  for (const auto& list : schema.values) {
    std::vector<const JsonValue*> fitting;
    for (const JsonValue* value : list) {
      if (type_of(*value) == type) fitting.push_back(value);
    }
    const bool constant = type <= ValueType::kTrue;
    lists.push_back(constant ? (fitting.empty() ? FormulaPool::kFalse : FormulaPool::kTrue)
                             : pool_.values(std::move(fitting)));
  }
  return pool_.all_of(std::move(lists));
}

FormulaId Expansion::numbers(const Schema& schema) {
  std::vector<FormulaId> parts;
  if (schema.integers_only)
    parts.push_back(pool_.number({.multiples_of = {1}, .digits_only = schema.integers_plain}));
  if (schema.low) parts.push_back(pool_.number({.low = schema.low}));
  if (schema.high) parts.push_back(pool_.number({.high = schema.high}));
  if (schema.multiple_of) parts.push_back(pool_.number({.multiples_of = {*schema.multiple_of}}));
  if (schema.format_bounds) {
    parts.push_back(
        pool_.number({.low = schema.format_bounds->first, .high = schema.format_bounds->second}, true));
  }
  return pool_.all_of(std::move(parts));
}

FormulaId Expansion::strings(const Schema& schema) {
  std::vector<FormulaId> parts;
  parts.push_back(pool_.text({.length = schema.length}));
  for (const ExprId pattern : schema.patterns) parts.push_back(pool_.text({.expr = pattern}));
  if (schema.format)
    parts.push_back(pool_.text({*schema.format, schema.format_length, schema.format_narrowed}));
  return pool_.all_of(std::move(parts));
}

FormulaId Expansion::arrays(const Schema& schema) {
  std::vector<FormulaId> parts;
  for (uint32_t i = 0; i < schema.prefix_items.size(); ++i) {
    if (schema.prefix_items[i] == schemas_.anything()) continue;
    parts.push_back(pool_.atom({AtomKind::kItem, i, SignedSchema(schema.prefix_items[i])}));
  }
  const auto n_prefix = static_cast<uint32_t>(schema.prefix_items.size());
  if (schema.items == schemas_.nothing()) {
    parts.push_back(pool_.atom({AtomKind::kItemCount, 0, {}, {0, n_prefix}}));
  } else if (schema.items && *schema.items != schemas_.anything()) {
    parts.push_back(pool_.atom({AtomKind::kRest, n_prefix, SignedSchema(*schema.items)}));
  }
  if (schema.contains && !schema.contained.trivial()) {
    if (schema.contained.empty()) return FormulaPool::kFalse;
    parts.push_back(pool_.atom({AtomKind::kContains, 0, SignedSchema(*schema.contains), schema.contained}));
  }
  if (schema.n_items.empty()) return FormulaPool::kFalse;
  if (!schema.n_items.trivial()) parts.push_back(pool_.atom({AtomKind::kItemCount, 0, {}, schema.n_items}));
  if (schema.unique_items) parts.push_back(pool_.atom({AtomKind::kUnique}));
  return pool_.all_of(std::move(parts));
}

FormulaId Expansion::objects(const Schema& schema, SchemaId id) {
  std::vector<FormulaId> parts;
  const SignedSchema anything(schemas_.anything()), nothing(schemas_.nothing());
  if (!schema.properties.empty() || !schema.required.empty())
    parts.push_back(pool_.atom({AtomKind::kProperties, id}));
  const auto members = [&](const KeySet& keys, SchemaId value) {
    if (value != schemas_.anything()) parts.push_back(pool_.members(keys, SignedSchema(value)));
  };
  KeySet others{.kind = KeySet::Kind::kOthers};
  for (const auto& [key, value] : schema.properties) {
    members(literal(key), value);
    others.not_keys.push_back(key);
  }
  for (const auto& [pattern, value] : schema.pattern_properties) {
    members(matching(pattern), value);
    others.not_matching.push_back(pattern);
  }
  if (schema.additional_properties) members(others, *schema.additional_properties);
  if (schema.property_names) {
    const ExprId names = text_of(*this, expand(SignedSchema(*schema.property_names), ValueType::kString));
    if (names != ExprPool::kEverything)
      parts.push_back(pool_.members(matching(exprs_.negate(names)), nothing));
  }
  for (const std::string& key : schema.required) parts.push_back(pool_.exists(literal(key), anything));
  if (schema.n_properties.empty()) return FormulaPool::kFalse;
  if (!schema.n_properties.trivial())
    parts.push_back(pool_.atom({AtomKind::kMemberCount, 0, {}, schema.n_properties}));
  for (const auto& [key, required] : schema.dependent_required) {
    std::vector<FormulaId> all;
    for (const std::string& other : required) all.push_back(pool_.exists(literal(other), anything));
    parts.push_back(pool_.any_of({pool_.members(literal(key), nothing), pool_.all_of(std::move(all))}));
  }
  for (const auto& [key, dependent] : schema.dependent_schemas) {
    if (schema.unevaluated_properties) break;  // taken apart in ways_within()
    parts.push_back(pool_.any_of(
        {pool_.members(literal(key), nothing), expand(SignedSchema(dependent), ValueType::kObject)}));
  }
  return pool_.all_of(std::move(parts));
}

FormulaId Expansion::expand_all(const std::vector<SchemaId>& list, ValueType type) {
  std::vector<FormulaId> parts;
  for (const SchemaId id : list) parts.push_back(expand(SignedSchema(id), type));
  return pool_.all_of(std::move(parts));
}

// What the keywords say that apply other schemas to the same value.
FormulaId Expansion::applicators(const Schema& schema, ValueType type) {
  std::vector<FormulaId> parts{expand_all(schema.all_of, type)};
  for (const auto& list : schema.any_of) {
    std::vector<FormulaId> any;
    for (const SchemaId id : list) any.push_back(expand(SignedSchema(id), type));
    parts.push_back(pool_.any_of(std::move(any)));
  }
  for (const auto& list : schema.one_of) parts.push_back(one_of(list, type));
  for (const SchemaId id : schema.none_of) parts.push_back(expand(!SignedSchema(id), type));
  if (schema.condition) {
    const SignedSchema condition(*schema.condition);
    const auto branch = [&](SignedSchema when, const std::optional<SchemaId>& what) {
      const FormulaId then = what ? expand(SignedSchema(*what), type) : FormulaPool::kTrue;
      return pool_.all_of({expand(when, type), then});
    };
    if (schema.then || schema.otherwise)
      parts.push_back(pool_.any_of({branch(condition, schema.then), branch(!condition, schema.otherwise)}));
  }
  return pool_.all_of(std::move(parts));
}

FormulaId Expansion::one_of(const std::vector<SchemaId>& list, ValueType type) {
  std::vector<FormulaId> each;
  std::vector<SchemaId> possible;
  for (const SchemaId id : list) {
    const FormulaId one = expand(SignedSchema(id), type);
    if (one == FormulaPool::kFalse) continue;
    each.push_back(one);
    possible.push_back(id);
  }
  if (each.size() < 2) return pool_.any_of(std::move(each));
  if (type == ValueType::kObject) {
    std::vector<bool> required;
    const std::string* key = telling_member(schemas_, possible, required);
    if (key != nullptr) {
      if (const auto result = one_of_told_apart(each, std::string(*key), required)) return *result;
    }
  }
  return one_of_any(each, type);
}

// The formula "exactly one of `each`", where a value that has the member `key` fulfils at most one of them. nullopt: values without that
// member may fulfil several.
std::optional<FormulaId> Expansion::one_of_told_apart(const std::vector<FormulaId>& each,
                                                      const std::string& key,
                                                      const std::vector<bool>& required) {
  const FormulaId there = pool_.exists(literal(key), SignedSchema(schemas_.anything())),
                  absent = pool_.members(literal(key), SignedSchema(schemas_.nothing()));
  std::vector<FormulaId> alternatives,
      without;  // the second: what they say besides of values that do not have it
  FormulaId last = FormulaPool::kFalse;
  for (size_t i = 0; i < each.size(); ++i) {
    alternatives.push_back(pool_.all_of({each[i], there}));
    if (required[i]) continue;
    last = each[i];
    std::vector<FormulaId> rest;
    const bool all = pool_.kind(each[i]) == FormulaPool::Kind::kAnd;
    for (const FormulaId part : all ? pool_.parts(each[i]) : std::span(&each[i], 1)) {
      const bool is_atom = pool_.kind(part) == FormulaPool::Kind::kAtom;
      const Atom* atom = is_atom ? &pool_.atom(part) : nullptr;
      const bool about_key = atom != nullptr && atom->kind == AtomKind::kMembers &&
                             pool_.keys(atom->index).is_literal() && pool_.keys(atom->index).literal == key;
      if (!about_key && !(atom != nullptr && atom->kind == AtomKind::kProperties)) rest.push_back(part);
    }
    without.push_back(pool_.all_of(std::move(rest)));
  }
  if (without.size() == 1) alternatives.push_back(pool_.all_of({last, absent}));
  // Two that are alike are never fulfilled alone.
  const bool alike = std::ranges::all_of(without, [&](FormulaId one) { return one == without.front(); });
  if (without.size() > 1 && !alike) return std::nullopt;
  return pool_.any_of(std::move(alternatives));
}

// The values that the formula lists and that are of it; nullopt: it lists none, or what is of it is not known for sure.
std::optional<std::vector<const JsonValue*>> Expansion::exact_values(FormulaId formula, ValueType type) {
  const auto is = [&](FormulaId part, AtomKind kind) {
    return pool_.kind(part) == FormulaPool::Kind::kAtom && pool_.atom(part).kind == kind;
  };
  const auto is_exact = [&](FormulaId part) {
    if (is(part, AtomKind::kNumber)) return !pool_.number_at(pool_.atom(part).index).narrowed;
    if (is(part, AtomKind::kText)) return !pool_.text_at(pool_.atom(part).index).narrowed;
    return is(part, AtomKind::kValues);
  };
  const auto* listed = listed_values(pool_, formula);
  if (listed == nullptr) return std::nullopt;
  if (is(formula, AtomKind::kValues)) return *listed;
  const bool scalar = type == ValueType::kNumber || type == ValueType::kString;
  if (!scalar || !std::ranges::all_of(pool_.parts(formula), is_exact)) return std::nullopt;
  std::vector<const JsonValue*> values = *listed;  // the pool grows
  std::erase_if(values, [&](const JsonValue* value) { return !holds(*this, formula, *value); });
  return values;
}

// Those that list values are one formula, whatever their number; the others are alone beside the complements of all others.
FormulaId Expansion::one_of_any(const std::vector<FormulaId>& each, ValueType type) {
  std::vector<FormulaId> others;
  std::vector<const JsonValue*> listed, once;
  ValueMap<int> counted;
  for (const FormulaId id : each) {
    const auto values = exact_values(id, type);
    if (!values) {
      others.push_back(id);
      continue;
    }
    ValueSet own;
    if (!budget_.spend(values->size())) return FormulaPool::kFalse;
    for (const JsonValue* value : *values) {
      if (own.insert(value).second && ++counted[value] == 1) listed.push_back(value);
    }
  }
  for (const JsonValue* value : listed) {
    if (counted[value] == 1) once.push_back(value);
  }
  const FormulaId any_listed = pool_.values(std::move(listed));
  std::vector<FormulaId> alternatives;
  const auto add_alone = [&](FormulaId formula, size_t index) {
    std::vector<FormulaId> alone{formula};
    for (size_t j = 0; j < others.size(); ++j) {
      if (j != index) alone.push_back(negate(others[j]));
    }
    if (index < others.size()) alone.push_back(negate(any_listed));
    alternatives.push_back(pool_.all_of(std::move(alone)));
  };
  if (!once.empty()) add_alone(pool_.values(std::move(once)), others.size());
  for (size_t i = 0; i < others.size() && budget_.spend(others.size()); ++i) add_alone(others[i], i);
  return pool_.any_of(std::move(alternatives));
}

}  // namespace penstock::grammar
