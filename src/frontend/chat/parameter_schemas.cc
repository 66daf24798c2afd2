#include "frontend/chat/parameter_schemas.h"

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <string_view>
#include <utility>

#include "frontend/json_fields.h"

namespace penstock {
namespace {

using Json = nlohmann::ordered_json;
using namespace json_types;

constexpr int kMostDepth = 32;
constexpr int kMostInner = 40'000;
// Alternatives inside each other whose members are looked at.
constexpr int kMostBranches = 4;
// Schemas that are looked at for the rules of one string.
constexpr int kMostRules = 1000;
// Values that are copied from the schemas of all tools, over and above the first copy of each.
constexpr size_t kMostCopied = 200'000;
constexpr size_t kPerAlternative = 10;  // values that the grammar of one alternative counts as
// Members from which on an object is searched by an index.
constexpr size_t kLargeObject = 32;

struct TypeName {
  const char* name;
  JsonTypes type;
};
constexpr std::array<TypeName, 7> kTypes{{{"string", kString},
                                          {"number", kNumber},
                                          {"integer", kNumber},
                                          {"boolean", kBoolean},
                                          {"null", kNull},
                                          {"array", kArray},
                                          {"object", kObject}}};

JsonTypes type_named(const Json& name) {
  for (const TypeName& known : kTypes) {
    if (name == known.name) return known.type;
  }
  return 0;
}

JsonTypes type_of_value(const Json& value) {
  if (value.is_string()) return kString;
  if (value.is_number()) return kNumber;
  if (value.is_boolean()) return kBoolean;
  if (value.is_null()) return kNull;
  return value.is_array() ? kArray : kObject;
}

bool one_of(std::string_view key, std::initializer_list<std::string_view> keys) {
  return std::ranges::find(keys, key) != keys.end();
}

// Keywords that do not restrict strings, or that types_of() handles.
bool no_word_on_strings(std::string_view key) {
  return one_of(
      key,
      {"type",     "title",       "description",      "default",          "examples",
       "example",  "deprecated",  "$comment",         "nullable",         "minimum",
       "maximum",  "multipleOf",  "exclusiveMinimum", "exclusiveMaximum", "items",
       "minItems", "uniqueItems", "maxItems",         "prefixItems",      "properties",
       "required", "readOnly",    "writeOnly",        "additionalItems",  "additionalProperties",
       "$defs",    "definitions", "minProperties",    "maxProperties",    "patternProperties"});
}

// Whether all references point into definitions, which a part of the document includes.
bool refers_to_definitions_only(const Json& schema) {
  if (schema.is_array()) return std::ranges::all_of(schema, refers_to_definitions_only);
  if (!schema.is_object()) return true;
  for (const auto& [key, value] : schema.items()) {
    if (key == "$ref" && value.is_string()) {
      const std::string& target = value.get_ref<const std::string&>();
      if (!target.starts_with("#/$defs/") && !target.starts_with("#/definitions/")) return false;
    } else if (one_of(key, {"$dynamicRef", "$recursiveRef"})) {
      return false;
    } else if (!one_of(key, {"enum", "const", "default", "examples"}) &&
               !refers_to_definitions_only(value)) {
      return false;
    }
  }
  return true;
}

bool has_references(const Json& schema) {
  return schema.dump(-1, ' ', false, Json::error_handler_t::replace).find("\"$ref\"") !=
         std::string::npos;
}

// The values in it; long texts count as several.
size_t values_of(const Json& value) {
  constexpr size_t kText = 64;  // bytes
  if (value.is_string()) return 1 + value.get_ref<const std::string&>().size() / kText;
  size_t n = 1;
  if (value.is_array()) {
    for (const Json& one : value) n += values_of(one);
  } else if (value.is_object()) {
    for (const auto& [key, one] : value.items()) n += key.size() / kText + values_of(one);
  }
  return n;
}

}  // namespace

const Json* SchemaDocument::member(const Json& object, const std::string& name) {
  if (object.size() < kLargeObject) {
    const auto found = object.find(name);
    return found == object.end() ? nullptr : &*found;
  }
  const auto [index, is_new] = indexes_.try_emplace(&object);
  if (is_new) {
    for (const auto& [key, value] : object.get_ref<const Json::object_t&>())
      index->second.emplace(key, &value);
  }
  const auto found = index->second.find(name);
  return found == index->second.end() ? nullptr : found->second;
}

const Json* SchemaDocument::resolved(const Json& schema) {
  const Json* at = &schema;
  for (int i = 0; i < kMostDepth; ++i) {
    if (!at->is_object()) return at;
    const Json* ref = member(*at, "$ref");
    if (ref == nullptr) return at;
    const std::string target = ref->is_string() ? ref->get<std::string>() : "";
    if (!target.starts_with("#/")) return nullptr;
    at = &root_;
    for (size_t from = 2; from <= target.size();) {
      const size_t end = std::min(target.find('/', from), target.size());
      if (!at->is_object()) return nullptr;
      at = member(*at, target.substr(from, end - from));
      if (at == nullptr) return nullptr;
      from = end + 1;
    }
  }
  return nullptr;
}

JsonTypes SchemaDocument::types_of(const Json& schema) { return types_of(schema, 0); }

JsonTypes SchemaDocument::types_of(const Json& given, int depth) {
  const Json* schema = resolved(given);
  if (schema == nullptr || depth > kMostDepth || schema->is_boolean())
    return schema != nullptr && *schema == false ? 0 : kAny;
  if (!schema->is_object()) return kAny;
  // One that is part of itself restricts nothing there.
  const auto [known, is_new] = types_.try_emplace(schema, kAny);
  if (!is_new) return known->second;
  return types_[schema] = types_said_by(*schema, depth);
}

JsonTypes SchemaDocument::types_said_by(const Json& schema, int depth) {
  JsonTypes types = kAny;
  for (const auto& [key, value] : schema.items()) {
    if (key == "type") {
      JsonTypes named = type_named(value);
      if (value.is_array()) {
        for (const Json& one : value) named |= type_named(one);
      }
      types &= named;
    } else if (key == "const") {
      types &= type_of_value(value);
    } else if ((key == "enum" || key == "anyOf" || key == "oneOf") && value.is_array()) {
      JsonTypes any = 0;
      for (const Json& one : value)
        any |= key == "enum" ? type_of_value(one) : types_of(one, depth + 1);
      types &= any;
    } else if (key == "allOf" && value.is_array()) {
      for (const Json& one : value) types &= types_of(one, depth + 1);
    }
  }
  if (get_bool(schema, "nullable")) types |= kNull;
  return types;
}

ParameterType SchemaDocument::value_type(const Json& schema, int depth) {
  ParameterType type(types_of(schema));
  const Json* at = resolved(schema);
  if ((type.types & (kArray | kObject)) == 0 || depth == kMostDepth || at == nullptr ||
      !at->is_object())
    return type;
  const auto [known, is_new] = inner_.try_emplace({at, depth});
  if (is_new) {
    auto inner = std::make_shared<InnerTypes>();
    add_inner(*at, depth, 0, *inner);
    known->second = std::move(inner);
  }
  type.inner = known->second;
  return type;
}

// Adds types of items and members. Of several alternatives for one value the first counts.
void SchemaDocument::add_inner(const Json& schema, int depth, int n_branches, InnerTypes& inner) {
  const auto is_left = [&] { return ++budget_.inner <= kMostInner; };
  if (const Json& properties = get_field(schema, "properties"); properties.is_object()) {
    for (const auto& [name, value] : properties.items()) {
      if (!is_left()) break;
      if (!inner.members.contains(name)) inner.members.emplace(name, value_type(value, depth + 1));
    }
  }
  if (const Json& items = get_field(schema, "items");
      items.is_object() && !inner.items && is_left())
    inner.items = value_type(items, depth + 1);
  if (const Json& others = get_field(schema, "additionalProperties");
      others.is_object() && !inner.others && is_left())
    inner.others = value_type(others, depth + 1);
  if (n_branches == kMostBranches) return;
  for (const char* key : {"anyOf", "oneOf", "allOf"}) {
    const Json& branches = get_field(schema, key);
    if (!branches.is_array()) continue;
    for (const Json& branch : branches) {
      if (!is_left()) break;
      const Json* at = resolved(branch);
      if (at != nullptr && at->is_object()) add_inner(*at, depth, n_branches + 1, inner);
    }
  }
}

Status SchemaDocument::count_copied(size_t n, std::string_view key) {
  budget_.copied += n;
  if (budget_.copied <= kMostCopied) return {};
  return errorf(ErrorCode::kUnsupported,
                "{}: too large for as many parameters and tools as have it", key);
}

Status SchemaDocument::add_definitions(Json& document) {
  for (const char* key : {"$defs", "definitions"}) {
    const Json* found = root_.is_object() ? member(root_, key) : nullptr;
    if (found == nullptr) continue;
    if (n_definitions_ == 0) {
      for (const char* each : {"$defs", "definitions"})
        n_definitions_ += values_of(get_field(root_, each));
    }
    RETURN_IF_ERROR(count_copied(n_definitions_, key));
    if (!refers_to_definitions_only(*found))
      return errorf(ErrorCode::kUnsupported, "{}: a $ref to a place outside of definitions", key);
    document[key] = *found;
  }
  return {};
}

Result<Json> SchemaDocument::document_of(const Json& schema, bool without_strings) {
  Json document = Json::object();
  if (const Json& dialect = get_field(root_, "$schema"); !dialect.is_null()) {
    RETURN_IF_ERROR(count_copied(values_of(dialect), "$schema"));
    document["$schema"] = dialect;
  }
  if (!copied_.insert(&schema).second) RETURN_IF_ERROR(count_copied(values_of(schema), "$ref"));
  if (has_references(schema)) RETURN_IF_ERROR(add_definitions(document));
  if (!refers_to_definitions_only(schema))
    return errorf(ErrorCode::kUnsupported, "$ref: a place outside of definitions");
  document["allOf"] = Json::array({schema});
  if (without_strings)
    document["type"] = Json::array({"number", "boolean", "null", "array", "object"});
  return document;
}

Status SchemaDocument::collect_rules(const Json& given, int depth, int& n_left,
                                     std::vector<Json>& out) {
  const auto no = [](std::string_view key) {
    return errorf(ErrorCode::kUnsupported,
                  "{}: cannot be enforced for strings that are written without quotes", key);
  };
  const Json* schema = resolved(given);
  if (schema == nullptr || depth > kMostDepth) return no("$ref");
  if (--n_left < 0) return no("anyOf");
  if ((types_of(*schema, depth) & kString) == 0) return {};
  Json rules = Json::object();
  const Json* branches = nullptr;
  for (const auto& [key, value] : schema->items()) {
    if (one_of(key, {"enum", "const", "pattern", "format", "minLength", "maxLength"})) {
      RETURN_IF_ERROR(count_copied(values_of(value), key));
      rules[key] = value;
    } else if (one_of(key, {"anyOf", "oneOf", "allOf"}) && value.is_array() &&
               branches == nullptr && (key != "allOf" || value.size() == 1)) {
      branches = &value;
    } else if (!no_word_on_strings(key)) {
      return no(key);
    }
  }
  if (branches == nullptr) {
    RETURN_IF_ERROR(count_copied(kPerAlternative, "anyOf"));
    out.push_back(std::move(rules));
    return {};
  }
  if (!rules.empty()) return no(rules.begin().key());
  const size_t before = out.size();
  for (const Json& branch : *branches)
    RETURN_IF_ERROR(collect_rules(branch, depth + 1, n_left, out));
  if (schema->contains("oneOf") && out.size() > before + 1) return no("oneOf");
  return {};
}

Result<std::vector<Json>> SchemaDocument::string_rules(const Json& schema) {
  std::vector<Json> rules;
  int n_left = kMostRules;
  RETURN_IF_ERROR(collect_rules(schema, 0, n_left, rules));
  return rules;
}

Json type_names(JsonTypes types) {
  Json names = Json::array();
  for (const TypeName& known : kTypes) {
    if ((types & known.type) != 0) names.push_back(known.name);
  }
  return names;
}

ParameterTypes parameter_types(const Json& tools, bool inner) {
  ParameterTypes result;
  SchemaBudget budget;
  for (const Json& tool : tools) {
    const Json& function = get_field(tool, "function");
    if (!function.is_object()) continue;
    auto& of_tool = result[get_string(function, "name")];
    const Json& root = get_field(function, "parameters");
    if (!root.is_object()) continue;
    SchemaDocument document(root, budget);
    const Json* schema = document.resolved(root);
    if (schema == nullptr || !get_field(*schema, "properties").is_object()) continue;
    for (const auto& [name, value] : (*schema)["properties"].items())
      of_tool[name] = inner ? document.value_type(value) : ParameterType(document.types_of(value));
  }
  return result;
}

}  // namespace penstock
