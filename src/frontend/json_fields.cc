#include "frontend/json_fields.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

namespace penstock {

using FieldJson = nlohmann::ordered_json;

const FieldJson& get_field(const FieldJson& object, const char* field) {
  static const FieldJson null;
  const auto found = object.find(field);
  return found == object.end() ? null : *found;
}

FieldJson take_field(FieldJson& object, const char* field) {
  const auto found = object.find(field);
  return found == object.end() ? FieldJson(nullptr) : std::exchange(*found, nullptr);
}

bool get_bool(const FieldJson& object, const char* field, bool fallback) {
  const FieldJson& value = get_field(object, field);
  return value.is_boolean() ? value.get<bool>() : fallback;
}

std::string get_string(const FieldJson& object, const char* field, std::string fallback) {
  const FieldJson& value = get_field(object, field);
  return value.is_string() ? value.get<std::string>() : std::move(fallback);
}

int64_t get_int(const FieldJson& object, const char* field, int64_t fallback) {
  const FieldJson& value = get_field(object, field);
  if (value.is_number_float())
    return static_cast<int64_t>(std::clamp(value.get<double>(), -9e18, 9e18));
  if (value.is_number_unsigned() && value.get<uint64_t>() > INT64_MAX) return INT64_MAX;
  return value.is_number() ? value.get<int64_t>() : fallback;
}

}  // namespace penstock
