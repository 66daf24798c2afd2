// Short forms for JSON schemas. Every optional field accepts null.
#pragma once
#include <nlohmann/json.hpp>

namespace penstock::schema {

using Json = nlohmann::json;

inline Json field(Json types, const char* help) {
  types.push_back("null");
  return {{"type", std::move(types)}, {"description", help}};
}
inline Json boolean(const char* help) { return field({"boolean"}, help); }
inline Json text(const char* help) { return field({"string"}, help); }
// A text that replies or lists repeat, so that its length is limited.
inline Json short_text(size_t most, const char* help) {
  Json result = text(help);
  result["maxLength"] = most;
  return result;
}
inline Json object(const char* help) { return field({"object"}, help); }
// Client metadata of stored objects, with OpenAI's limits.
inline Json metadata(const char* help) {
  Json result = object(help);
  result["maxProperties"] = 16;
  result["propertyNames"] = {{"maxLength", 64}};
  result["additionalProperties"] = {{"type", "string"}, {"maxLength", 512}};
  return result;
}
inline Json number(double min, double max, const char* help) {
  Json result = field({"number"}, help);
  result["minimum"] = min;
  result["maximum"] = max;
  return result;
}
inline Json integer(int64_t min, int64_t max, const char* help) {
  Json result = field({"integer"}, help);
  result["minimum"] = min;
  result["maximum"] = max;
  return result;
}
inline Json list(Json items, const char* help) {
  Json result = field({"array"}, help);
  result["items"] = std::move(items);
  return result;
}
inline Json one_of(Json values, const char* help) {
  values.push_back(nullptr);
  return {{"enum", std::move(values)}, {"description", help}};
}
inline Json any_of(std::initializer_list<Json> alternatives, const char* help) {
  Json all = Json::array();
  for (const Json& one : alternatives) all.push_back(one);
  all.push_back({{"type", "null"}});
  return {{"anyOf", std::move(all)}, {"description", help}};
}
// A known field that is not supported.
inline Json refused(const char* why) { return {{"type", "null"}, {"description", why}}; }
// A field that is not supported, except for its default, which clients send.
inline Json only(Json value, const char* help) {
  return one_of(Json::array({std::move(value)}), help);
}

inline Json plain(const char* type) { return {{"type", type}}; }
inline Json token_id() { return {{"type", "integer"}, {"minimum", 0}, {"maximum", INT32_MAX}}; }
inline Json token_ids() {
  return {{"type", "array"}, {"items", token_id()}, {"title", "a list of token ids"}};
}

// An object with exactly these fields.
inline Json closed(Json properties, Json required = Json::array()) {
  return {{"type", "object"},
          {"properties", std::move(properties)},
          {"required", std::move(required)},
          {"additionalProperties", false}};
}
// An object with at least these fields.
inline Json open(Json properties, Json required = Json::array()) {
  return {
      {"type", "object"}, {"properties", std::move(properties)}, {"required", std::move(required)}};
}
inline void merge(Json& into, const Json& fields) {
  for (auto field = fields.begin(); field != fields.end(); ++field)
    into[field.key()] = field.value();
}

}  // namespace penstock::schema
