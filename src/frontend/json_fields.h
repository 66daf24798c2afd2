// Typed access to the fields of a JSON object whose types have been checked; null means absent.
#pragma once
#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>

namespace penstock {

// Return the field, or `fallback` if it is absent, null or of another type.
bool get_bool(const nlohmann::ordered_json& object, const char* field, bool fallback = false);
std::string get_string(const nlohmann::ordered_json& object, const char* field,
                       std::string fallback = {});
int64_t get_int(const nlohmann::ordered_json& object, const char* field, int64_t fallback);
// Returns the field; a JSON null when it is absent or `object` is no object.
const nlohmann::ordered_json& get_field(const nlohmann::ordered_json& object, const char* field);
// Moves the field out of the object, where null is left.
nlohmann::ordered_json take_field(nlohmann::ordered_json& object, const char* field);

}  // namespace penstock
