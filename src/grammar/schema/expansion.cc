#include "grammar/schema/expansion.h"

#include <algorithm>

#include "grammar/schema/membership.h"

namespace penstock::grammar {
namespace {

using AtomKind = Atom::Kind;
constexpr int kMaxNesting = 400;  // nesting of schemas that apply to one value

KeySet literal(const std::string& key) { return {.kind = KeySet::Kind::kLiteral, .literal = key}; }
KeySet matching(ExprId expr) { return {.kind = KeySet::Kind::kMatching, .pattern = expr}; }

}  // namespace

void Expansion::fail(RefusalKind kind, std::string where, std::string message,
                     std::string keyword) {
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
    fail(RefusalKind::kTooLarge, schema.where.text(),
         "too many schemas within schemas about one value", "");
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

// Returns the formula of the keywords that apply no other schemas to the same value.
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
    parts.push_back(pool_.number(
        {.low = schema.format_bounds->first, .high = schema.format_bounds->second}, true));
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
    parts.push_back(
        pool_.atom({AtomKind::kContains, 0, SignedSchema(*schema.contains), schema.contained}));
  }
  if (schema.n_items.empty()) return FormulaPool::kFalse;
  if (!schema.n_items.trivial())
    parts.push_back(pool_.atom({AtomKind::kItemCount, 0, {}, schema.n_items}));
  if (schema.unique_items) parts.push_back(pool_.atom({AtomKind::kUnique}));
  return pool_.all_of(std::move(parts));
}

FormulaId Expansion::objects(const Schema& schema, SchemaId id) {
  std::vector<FormulaId> parts;
  const SignedSchema anything(schemas_.anything()), nothing(schemas_.nothing());
  if (!schema.properties.empty() || !schema.required.empty() || schema.names_members)
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
    const ExprId names =
        text_of(*this, expand(SignedSchema(*schema.property_names), ValueType::kString));
    if (names != ExprPool::kEverything)
      parts.push_back(pool_.members(matching(exprs_.negate(names)), nothing));
  }
  for (const std::string& key : schema.required)
    parts.push_back(pool_.exists(literal(key), anything));
  if (schema.n_properties.empty()) return FormulaPool::kFalse;
  if (!schema.n_properties.trivial())
    parts.push_back(pool_.atom({AtomKind::kMemberCount, 0, {}, schema.n_properties}));
  for (const auto& [key, required] : schema.dependent_required) {
    std::vector<FormulaId> all;
    for (const std::string& other : required) all.push_back(pool_.exists(literal(other), anything));
    parts.push_back(
        pool_.any_of({pool_.members(literal(key), nothing), pool_.all_of(std::move(all))}));
  }
  for (const auto& [key, dependent] : schema.dependent_schemas) {
    if (schema.unevaluated_properties) break;  // handled in ways_within()
    parts.push_back(pool_.any_of({pool_.members(literal(key), nothing),
                                  expand(SignedSchema(dependent), ValueType::kObject)}));
  }
  return pool_.all_of(std::move(parts));
}

FormulaId Expansion::expand_all(const std::vector<SchemaId>& list, ValueType type) {
  std::vector<FormulaId> parts;
  for (const SchemaId id : list) parts.push_back(expand(SignedSchema(id), type));
  return pool_.all_of(std::move(parts));
}

// Returns the formula of the keywords that apply other schemas to the same value.
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
      parts.push_back(
          pool_.any_of({branch(condition, schema.then), branch(!condition, schema.otherwise)}));
  }
  return pool_.all_of(std::move(parts));
}

}  // namespace penstock::grammar
