#include "frontend/grammar_key.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <string_view>

#include "grammar/schema/json_value.h"

namespace penstock {
namespace {

using grammar::JsonMember;
using grammar::JsonValue;

template <size_t n>
bool is_one_of(const std::array<std::string_view, n>& names, std::string_view name) {
  return std::ranges::find(names, name) != names.end();
}

constexpr std::array<std::string_view, 5> kNamedSchemas = {
    "properties", "patternProperties", "$defs", "definitions", "dependentSchemas"};
constexpr std::array<std::string_view, 16> kSchemas = {"items",
                                                       "additionalItems",
                                                       "prefixItems",
                                                       "additionalProperties",
                                                       "not",
                                                       "if",
                                                       "then",
                                                       "else",
                                                       "contains",
                                                       "unevaluatedItems",
                                                       "unevaluatedProperties",
                                                       "propertyNames",
                                                       "allOf",
                                                       "anyOf",
                                                       "oneOf",
                                                       "$ref"};
// A schema with one of these keywords keeps the order of its keywords: each may add properties.
constexpr std::array<std::string_view, 9> kMerged = {
    "$ref",  "$dynamicRef", "$recursiveRef",    "allOf",       "anyOf",
    "oneOf", "if",          "dependentSchemas", "dependencies"};

void sort_keywords(JsonValue& schema) {
  if (schema.is_array()) {
    for (JsonMember& each : schema.members) sort_keywords(each.value);
    return;
  }
  if (!schema.is_object()) return;
  bool merged = false;
  for (JsonMember& keyword : schema.members) {
    merged |= is_one_of(kMerged, keyword.key);
    if (is_one_of(kSchemas, keyword.key)) sort_keywords(keyword.value);
    if (!is_one_of(kNamedSchemas, keyword.key)) continue;
    for (JsonMember& named : keyword.value.members) sort_keywords(named.value);
  }
  if (!merged) std::ranges::stable_sort(schema.members, {}, &JsonMember::key);
}

std::string key_of(const grammar::GrammarSpec& spec, std::string_view text) {
  const grammar::JsonStyle& style = spec.json;
  return fmt::format("{}{}{}{}{}{} {}:{} {}", static_cast<int>(spec.kind),
                     static_cast<int>(style.whitespace), style.closed_objects, style.all_escapes,
                     style.one_of_as_any_of, style.any_member_order,
                     style.whitespace_pattern.size(), style.whitespace_pattern, text);
}

}  // namespace

std::string grammar_text_key(const grammar::GrammarSpec& spec) { return key_of(spec, spec.text); }

std::string grammar_key(const grammar::GrammarSpec& spec) {
  const grammar::CompileLimits limits;
  if (spec.kind != grammar::SpecKind::kJsonSchema || spec.text.size() > limits.max_text_bytes)
    return grammar_text_key(spec);
  auto document = grammar::parse_json(spec.text, static_cast<int>(limits.max_depth));
  if (!document) return grammar_text_key(spec);
  sort_keywords(*document);
  return key_of(spec, document->text());
}

}  // namespace penstock
