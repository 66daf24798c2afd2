// Typed access to the fields of a JSON object whose types have been checked; null means absent.
#pragma once
#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>

namespace penstock {

// `fallback` when the field is absent, null or of another type.
bool get_bool(const nlohmann::ordered_json& object, const char* field, bool fallback = false);
std::string get_string(const nlohmann::ordered_json& object, const char* field, std::string fallback = {});
int64_t get_int(const nlohmann::ordered_json& object, const char* field, int64_t fallback);
// The field, or null when it is absent or this is no object.
const nlohmann::ordered_json& get_field(const nlohmann::ordered_json& object, const char* field);
// The same, taken out: what is left in the object is null.
nlohmann::ordered_json take_field(nlohmann::ordered_json& object, const char* field);

// Makes room for so many fields. Without it the library copies all values when an object grows (names are const, so its
// pairs cannot be moved): whole conversations, for one more field beside them. What points into the object is invalid.
void reserve_fields(nlohmann::ordered_json& object, size_t n);

}  // namespace penstock
