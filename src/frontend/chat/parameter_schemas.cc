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

const Json* follow(const Json& root, const Json& schema) {
  const Json* at = &schema;
  for (int i = 0; i < kMostDepth; ++i) {
    if (!at->is_object()) return at;
    const auto ref = at->find("$ref");
    if (ref == at->end()) return at;
    const std::string target = ref->is_string() ? ref->get<std::string>() : "";
    if (!target.starts_with("#/")) return nullptr;
    at = &root;
    for (size_t from = 2; from <= target.size();) {
      const size_t end = std::min(target.find('/', from), target.size());
      const std::string key = target.substr(from, end - from);
      if (!at->is_object() || !at->contains(key)) return nullptr;
      at = &(*at)[key];
      from = end + 1;
    }
  }
  return nullptr;
}

JsonTypes types_of(const Json& root, const Json& given, int depth) {
  const Json* schema = follow(root, given);
  if (schema == nullptr || depth > kMostDepth || schema->is_boolean())
    return schema != nullptr && *schema == false ? 0 : kAny;
  if (!schema->is_object()) return kAny;
  JsonTypes types = kAny;
  for (const auto& [key, value] : schema->items()) {
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
        any |= key == "enum" ? type_of_value(one) : types_of(root, one, depth + 1);
      types &= any;
    } else if (key == "allOf" && value.is_array()) {
      for (const Json& one : value) types &= types_of(root, one, depth + 1);
    }
  }
  if (get_bool(*schema, "nullable")) types |= kNull;
  return types;
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

Status collect_rules(const Json& root, const Json& given, int depth, std::vector<Json>& out) {
  const auto no = [](std::string_view key) {
    return errorf(ErrorCode::kUnsupported,
                  "{}: cannot be enforced for strings that are written without quotes", key);
  };
  const Json* schema = follow(root, given);
  if (schema == nullptr || depth > kMostDepth) return no("$ref");
  if ((types_of(root, *schema, depth) & kString) == 0) return {};
  Json rules = Json::object();
  const Json* branches = nullptr;
  for (const auto& [key, value] : schema->items()) {
    if (one_of(key, {"enum", "const", "pattern", "format", "minLength", "maxLength"})) {
      rules[key] = value;
    } else if (one_of(key, {"anyOf", "oneOf", "allOf"}) && value.is_array() &&
               branches == nullptr && (key != "allOf" || value.size() == 1)) {
      branches = &value;
    } else if (!no_word_on_strings(key)) {
      return no(key);
    }
  }
  if (branches == nullptr) {
    out.push_back(std::move(rules));
    return {};
  }
  if (!rules.empty()) return no(rules.begin().key());
  const size_t before = out.size();
  for (const Json& branch : *branches) RETURN_IF_ERROR(collect_rules(root, branch, depth + 1, out));
  if (schema->contains("oneOf") && out.size() > before + 1) return no("oneOf");
  return {};
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

}  // namespace

const Json* resolved(const SchemaPart& part) { return follow(part.root, part.schema); }

JsonTypes types_of(const SchemaPart& part) { return types_of(part.root, part.schema, 0); }

Result<Json> document_of(const SchemaPart& part, bool without_strings) {
  Json document = Json::object();
  if (part.root.contains("$schema")) document["$schema"] = part.root["$schema"];
  if (has_references(part.schema)) {
    for (const char* key : {"$defs", "definitions"}) {
      if (!part.root.contains(key)) continue;
      document[key] = part.root[key];
      if (!refers_to_definitions_only(document[key]))
        return errorf(ErrorCode::kUnsupported, "{}: a $ref to a place outside of definitions", key);
    }
  }
  if (!refers_to_definitions_only(part.schema))
    return errorf(ErrorCode::kUnsupported, "$ref: a place outside of definitions");
  document["allOf"] = Json::array({part.schema});
  if (without_strings)
    document["type"] = Json::array({"number", "boolean", "null", "array", "object"});
  return document;
}

Result<std::vector<Json>> string_rules(const SchemaPart& part) {
  std::vector<Json> rules;
  RETURN_IF_ERROR(collect_rules(part.root, part.schema, 0, rules));
  return rules;
}

ParameterTypes parameter_types(const Json& tools) {
  ParameterTypes result;
  for (const Json& tool : tools) {
    const Json& function = get_field(tool, "function");
    if (!function.is_object()) continue;
    auto& of_tool = result[get_string(function, "name")];
    const Json& root = get_field(function, "parameters");
    if (!root.is_object()) continue;
    const Json* schema = follow(root, root);
    if (schema == nullptr || !get_field(*schema, "properties").is_object()) continue;
    for (const auto& [name, value] : (*schema)["properties"].items())
      of_tool[name] = types_of(root, value, 0);
  }
  return result;
}

}  // namespace penstock
