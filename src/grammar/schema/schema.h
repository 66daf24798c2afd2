// A JSON Schema with all references resolved, in one form for all drafts.
//
// Subschemas are nodes of a graph in which recursion is a cycle. Nodes are created on first use.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "grammar/lexer/completion_lengths.h"
#include "grammar/lexer/number_dfa.h"
#include "grammar/regex/expr.h"
#include "grammar/schema/json_pointer.h"
#include "grammar/schema/json_value.h"

namespace penstock::grammar {

using SchemaId = uint32_t;

// A schema or its complement.
struct SignedSchema {
  uint32_t raw = 0;
  SignedSchema() = default;
  explicit SignedSchema(SchemaId id, bool negated = false)
      : raw(id << 1 | static_cast<uint32_t>(negated)) {}
  SchemaId id() const { return raw >> 1; }
  bool negated() const { return (raw & 1) != 0; }
  SignedSchema operator!() const { return SignedSchema(id(), !negated()); }
  auto operator<=>(const SignedSchema&) const = default;
};

// The types into which schemas are expanded; the first three have one value each.
enum class ValueType : uint8_t { kNull, kFalse, kTrue, kNumber, kString, kArray, kObject };
inline constexpr int kNumValueTypes = 7;
constexpr uint8_t bit(ValueType type) { return static_cast<uint8_t>(1U << static_cast<int>(type)); }
inline constexpr uint8_t kAllTypes = (1U << kNumValueTypes) - 1;
ValueType type_of(const JsonValue& value);

struct Schema {
  JsonPointer where;
  uint8_t types = kAllTypes;
  bool never = false;           // the schema `false`
  bool integers_only = false;   // numbers: only integers
  bool integers_plain = false;  // draft 4: 1.0 is not an integer
  // enum and const: a value must be in each of the lists.
  std::vector<std::vector<const JsonValue*>> values;

  std::optional<NumberBound> low, high;
  std::optional<Decimal> multiple_of;

  CountWindow length;
  std::vector<ExprId> patterns;
  std::optional<ExprId> format;
  CountWindow format_length;
  // the pattern matches only some texts of the format, so that it cannot be negated
  bool format_narrowed = false;
  std::optional<std::pair<NumberBound, NumberBound>> format_bounds;  // bounds of numbers

  std::vector<SchemaId> prefix_items;
  std::optional<SchemaId> items;  // items after prefix_items
  std::optional<SchemaId> contains;
  CountWindow contained{1, kNoLimit};
  bool contains_evaluates = false;
  CountWindow n_items;
  bool unique_items = false;
  std::optional<SchemaId> unevaluated_items;

  std::vector<std::pair<std::string, SchemaId>> properties;
  std::vector<std::pair<ExprId, SchemaId>> pattern_properties;
  std::optional<SchemaId> additional_properties;
  std::optional<SchemaId> property_names;
  std::vector<std::string> required;
  CountWindow n_properties;
  std::vector<std::pair<std::string, std::vector<std::string>>> dependent_required;
  std::vector<std::pair<std::string, SchemaId>> dependent_schemas;
  std::optional<SchemaId> unevaluated_properties;
  // with JsonStyle::closed_objects: keywords name the members that are allowed besides `required`
  bool names_members = false;

  std::vector<SchemaId> all_of;  // allOf, and the targets of $ref and $dynamicRef
  std::vector<std::vector<SchemaId>> any_of, one_of;
  std::vector<SchemaId> none_of;  // schemas of `not`
  std::optional<SchemaId> condition, then, otherwise;
  bool operator==(const Schema&) const = default;
};

}  // namespace penstock::grammar
