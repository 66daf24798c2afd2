// Short forms for writing JSON schemas. Every optional field accepts null.
#pragma once
#include <nlohmann/json.hpp>

namespace penstock::schema {

using json = nlohmann::json;

inline json field(json types, const char* help) {
  types.push_back("null");
  return {{"type", std::move(types)}, {"description", help}};
}
inline json boolean(const char* help) { return field({"boolean"}, help); }
inline json text(const char* help) { return field({"string"}, help); }
inline json object(const char* help) { return field({"object"}, help); }
inline json number(double min, double max, const char* help) {
  json result = field({"number"}, help);
  result["minimum"] = min;
  result["maximum"] = max;
  return result;
}
inline json integer(int64_t min, int64_t max, const char* help) {
  json result = field({"integer"}, help);
  result["minimum"] = min;
  result["maximum"] = max;
  return result;
}
inline json list(json items, const char* help) {
  json result = field({"array"}, help);
  result["items"] = std::move(items);
  return result;
}
inline json one_of(json values, const char* help) {
  values.push_back(nullptr);
  return {{"enum", std::move(values)}, {"description", help}};
}
inline json any_of(std::initializer_list<json> alternatives, const char* help) {
  json all = json::array();
  for (const json& one : alternatives) all.push_back(one);
  all.push_back({{"type", "null"}});
  return {{"anyOf", std::move(all)}, {"description", help}};
}
// Known and not supported.
inline json refused(const char* why) { return {{"type", "null"}, {"description", why}}; }
// Refused too, but clients send its default.
inline json only(json value, const char* help) { return one_of(json::array({std::move(value)}), help); }

inline json plain(const char* type) { return {{"type", type}}; }
inline json token_id() { return {{"type", "integer"}, {"minimum", 0}, {"maximum", INT32_MAX}}; }
inline json token_ids() {
  return {{"type", "array"}, {"items", token_id()}, {"title", "a list of token ids"}};
}

// An object with exactly these fields.
inline json closed(json properties, json required = json::array()) {
  return {{"type", "object"},
          {"properties", std::move(properties)},
          {"required", std::move(required)},
          {"additionalProperties", false}};
}
// An object with at least these fields.
inline json open(json properties, json required = json::array()) {
  return {{"type", "object"}, {"properties", std::move(properties)}, {"required", std::move(required)}};
}
inline void merge(json& into, const json& fields) {
  for (auto field = fields.begin(); field != fields.end(); ++field) into[field.key()] = field.value();
}

}  // namespace penstock::schema
