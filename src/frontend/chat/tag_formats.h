// Formats of structural tags (grammar/syntax/structural_tag.h), as JSON.
#pragma once
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

namespace penstock::tag_formats {

using Json = nlohmann::ordered_json;

// Reserves room for all members of a format: growth would copy their values, since the names are
// const.
inline Json of_type(const char* type) {
  Json::object_t members;
  members.reserve(6);
  members["type"] = type;
  return members;
}
inline Json with(Json format, const char* member, Json value) {
  format[member] = std::move(value);
  return format;
}

inline Json text(std::string value) {
  return with(of_type("const_string"), "value", std::move(value));
}
inline Json any_text(std::vector<std::string> excludes = {}) {
  return excludes.empty() ? of_type("any_text")
                          : with(of_type("any_text"), "excludes", std::move(excludes));
}
inline Json regex(const char* pattern) { return with(of_type("regex"), "pattern", pattern); }
inline Json schema(Json json_schema) {
  return with(of_type("json_schema"), "json_schema", std::move(json_schema));
}

inline Json joined(const char* type, Json::array_t elements) {
  return elements.size() == 1 ? std::move(elements.front())
                              : with(of_type(type), "elements", std::move(elements));
}
inline Json sequence(Json::array_t elements) { return joined("sequence", std::move(elements)); }
inline Json either(Json::array_t elements) { return joined("or", std::move(elements)); }
// Makes an array of the parts by moving them (a braced list would copy them).
template <class... Parts>
Json::array_t list_of(Parts&&... parts) {
  Json::array_t elements;
  elements.reserve(sizeof...(parts));
  (elements.push_back(std::forward<Parts>(parts)), ...);
  return elements;
}
template <class... Parts>
Json sequence_of(Parts&&... parts) {
  return sequence(list_of(std::forward<Parts>(parts)...));
}

inline Json optional(Json content) {
  return with(of_type("optional"), "content", std::move(content));
}
inline Json star(Json content) { return with(of_type("star"), "content", std::move(content)); }
// Sets the place of the format that refusals report.
inline Json at_place(Json format, std::string where) {
  return with(std::move(format), "where", std::move(where));
}
// One or more repetitions of content with separators between them.
inline Json separated(Json content, std::string separator) {
  return with(with(of_type("plus"), "content", std::move(content)), "separator",
              std::move(separator));
}

}  // namespace penstock::tag_formats
