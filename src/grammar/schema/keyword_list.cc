#include <fmt/format.h>

#include <algorithm>

#include "base/text_hash.h"
#include "grammar/schema/keyword_reader.h"

namespace penstock::grammar {

// Keywords with a handler are enforced; the others do not affect validity in the specifications or
// in OpenAPI. Unknown names are noted, and refused if they look like a typing error.
std::span<const KeywordReader::Keyword> KeywordReader::keywords() {
  using K = KeywordReader;
  constexpr Draft k6 = Draft::k6, k7 = Draft::k7, k2019 = Draft::k2019, k2020 = Draft::k2020;
  static constexpr Keyword list[] = {
      {"$ref", &K::read_ref},
      {"$dynamicRef", &K::read_dynamic_ref, k2020},
      {"$recursiveRef", &K::read_recursive_ref, k2019, k2019},
      {"type", &K::read_type},
      {"nullable", &K::read_nullable},
      {"enum", &K::read_enum},
      {"const", &K::read_const, k6},
      {"minimum", &K::read_minimum},
      {"maximum", &K::read_maximum},
      {"exclusiveMinimum", &K::read_exclusive_minimum},
      {"exclusiveMaximum", &K::read_exclusive_maximum},
      {"multipleOf", &K::read_multiple_of},
      {"minLength", &K::read_min_length},
      {"maxLength", &K::read_max_length},
      {"pattern", &K::read_pattern},
      {"format", &K::read_format},
      {"prefixItems", &K::read_prefix_items, k2020},
      {"items", &K::read_items},
      {"additionalItems", &K::read_additional_items, Draft::k4, k2019},
      {"contains", &K::read_contains, k6},
      {"minContains", &K::read_min_contains, k2019},
      {"maxContains", &K::read_max_contains, k2019},
      {"minItems", &K::read_min_items},
      {"maxItems", &K::read_max_items},
      {"uniqueItems", &K::read_unique_items},
      {"unevaluatedItems", &K::read_unevaluated_items, k2019},
      {"properties", &K::read_properties},
      {"patternProperties", &K::read_pattern_properties},
      {"additionalProperties", &K::read_additional_properties},
      {"propertyNames", &K::read_property_names, k6},
      {"required", &K::read_required},
      {"minProperties", &K::read_min_properties},
      {"maxProperties", &K::read_max_properties},
      {"dependencies", &K::read_dependencies, Draft::k4, k7},
      {"dependentRequired", &K::read_dependent_required, k2019},
      {"dependentSchemas", &K::read_dependent_schemas, k2019},
      {"unevaluatedProperties", &K::read_unevaluated_properties, k2019},
      {"allOf", &K::read_all_of},
      {"anyOf", &K::read_any_of},
      {"oneOf", &K::read_one_of},
      {"not", &K::read_not},
      {"if", &K::read_if, k7},
      {"then", &K::read_then, k7},
      {"else", &K::read_else, k7},
      {"discriminator", &K::read_discriminator},
      // Read by the keywords that refer to them.
      {"$schema", &K::skip},
      {"$id", &K::skip},
      {"id", &K::skip},
      {"$anchor", &K::skip},
      {"$dynamicAnchor", &K::skip},
      {"$recursiveAnchor", &K::skip},
      {"$defs", &K::skip},
      {"definitions", &K::skip},
      {"$vocabulary", &K::skip},
      // Annotations.
      {"title", nullptr},
      {"description", nullptr},
      {"default", nullptr},
      {"examples", nullptr},
      {"example", nullptr},
      {"$comment", nullptr},
      {"deprecated", nullptr},
      {"readOnly", nullptr},
      {"writeOnly", nullptr},
      {"contentMediaType", nullptr},
      {"contentEncoding", nullptr},
      {"contentSchema", nullptr},
      {"externalDocs", nullptr},
      {"xml", nullptr},
      {"strict", nullptr},
  };
  return list;
}

const KeywordReader::Keyword* KeywordReader::find_keyword(std::string_view name) {
  static const ViewMap<const Keyword*> by_name = [] {
    ViewMap<const Keyword*> map;
    for (const Keyword& keyword : keywords()) map.emplace(keyword.name, &keyword);
    return map;
  }();
  const auto it = by_name.find(name);
  return it == by_name.end() ? nullptr : it->second;
}

namespace {

// Whether one letter was omitted, added, replaced or swapped with its neighbour.
bool one_letter_away(std::string_view a, std::string_view b) {
  if (a.size() > b.size()) std::swap(a, b);
  if (b.size() - a.size() > 1 || a == b) return false;
  size_t same = 0;
  while (same < a.size() && a[same] == b[same]) ++same;
  const std::string_view x = a.substr(same), y = b.substr(same);
  if (a.size() < b.size()) return x == y.substr(1);
  if (x.substr(1) == y.substr(1)) return true;
  return x.size() >= 2 && x[0] == y[1] && x[1] == y[0] && x.substr(2) == y.substr(2);
}

}  // namespace

// Handles an unknown name. A likely typing error is refused, since the intended keyword would not
// be enforced.
Compiled<void> KeywordReader::unknown(std::string_view name) {
  for (const Keyword& keyword : keywords()) {
    const bool enforced = keyword.read != nullptr && keyword.read != &KeywordReader::skip;
    if (name.starts_with('_')) break;  // commented out on purpose
    if (!enforced || keyword.name.size() < 4 || name.size() < 4 ||
        !one_letter_away(name, keyword.name))
      continue;
    return invalid(fmt::format(
        "\"{}\" is no keyword; is \"{}\" meant? Other names are fine if they are not so alike",
        name, keyword.name));
  }
  note("no keyword of JSON Schema: it allows and forbids nothing");
  return {};
}

}  // namespace penstock::grammar
