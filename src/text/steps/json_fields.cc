#include "text/steps/json_fields.h"

#include <nlohmann/json.hpp>

#include "base/base64.h"
#include "base/json_text.h"

namespace penstock {

Result<nlohmann::json> parse_json(std::string_view text, std::string_view file) {
  if (!nests_within(text, kMaxJsonNesting))
    return errorf(ErrorCode::kCorruptFile, "{}: nested deeper than {}", file, kMaxJsonNesting);
  nlohmann::json json = bounded_json(text);
  if (json.is_discarded()) return errorf(ErrorCode::kCorruptFile, "{}: not valid JSON", file);
  if (!json.is_object())
    return errorf(ErrorCode::kCorruptFile, "{}: expected an object, got {}", file,
                  json.type_name());
  return json;
}

Result<std::string> json_type(const nlohmann::json& object, std::string_view where) {
  if (!object.is_object()) {
    return errorf(ErrorCode::kCorruptFile, "tokenizer.json: {}: expected an object, got {}", where,
                  object.type_name());
  }
  return json_string(object, "type", where);
}

Result<std::string> json_string(const nlohmann::json& object, const char* key,
                                std::string_view where) {
  const auto it = object.find(key);
  if (it == object.end() || !it->is_string()) {
    return errorf(ErrorCode::kCorruptFile, "tokenizer.json: {}: expected a string \"{}\"", where,
                  key);
  }
  return it->get<std::string>();
}

Result<const nlohmann::json*> json_array(const nlohmann::json& object, const char* key,
                                         std::string_view where) {
  const auto it = object.find(key);
  if (it == object.end() || !it->is_array()) {
    return errorf(ErrorCode::kCorruptFile, "tokenizer.json: {}: expected an array \"{}\"", where,
                  key);
  }
  return &*it;
}

Result<Regex> json_pattern(const nlohmann::json& object, std::string_view where) {
  const auto it = object.find("pattern");
  if (it != object.end()) {
    if (it->is_string()) return Regex::literal(it->get_ref<const std::string&>());
    if (it->is_object()) {
      const auto literal = it->find("String");
      if (literal != it->end() && literal->is_string())
        return Regex::literal(literal->get_ref<const std::string&>());
      const auto regex = it->find("Regex");
      if (regex != it->end() && regex->is_string())
        return Regex::compile(regex->get_ref<const std::string&>());
    }
  }
  return errorf(ErrorCode::kCorruptFile,
                "tokenizer.json: {}: expected \"pattern\" with a String or a Regex", where);
}

bool json_flag(const nlohmann::json& object, const char* key, bool fallback) {
  if (!object.is_object()) return fallback;
  const auto it = object.find(key);
  return it != object.end() && it->is_boolean() ? it->get<bool>() : fallback;
}

std::string json_text(const nlohmann::json& object, const char* key) {
  if (!object.is_object()) return {};
  const auto it = object.find(key);
  if (it == object.end()) return {};
  if (it->is_string()) return it->get<std::string>();
  if (!it->is_object()) return {};
  const auto content = it->find("content");
  return content != it->end() && content->is_string() ? content->get<std::string>() : std::string();
}

int64_t json_int(const nlohmann::json& object, const char* key, int64_t fallback, int64_t max) {
  if (!object.is_object()) return fallback;
  const auto it = object.find(key);
  if (it == object.end() || !it->is_number_integer()) return fallback;
  if (it->is_number_unsigned()) {
    const auto value = it->get<uint64_t>();
    return value <= static_cast<uint64_t>(max) ? static_cast<int64_t>(value) : fallback;
  }
  const auto value = it->get<int64_t>();
  return value >= 0 && value <= max ? value : fallback;
}

Result<std::string> base64_decode(std::string_view text) {
  auto bytes = decode_base64(text, Base64::kPlain);
  if (bytes) return *std::move(bytes);
  return errorf(ErrorCode::kCorruptFile, "base64: unexpected byte 0x{:02X}",
                static_cast<unsigned char>(text[bytes.error()]));
}

}  // namespace penstock
