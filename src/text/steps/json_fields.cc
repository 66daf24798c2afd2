#include "text/steps/json_fields.h"

#include <array>
#include <nlohmann/json.hpp>

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
  static constexpr auto kDigits = [] {
    std::array<int8_t, 256> table{};
    for (auto& digit : table) digit = -1;
    constexpr std::string_view kAlphabet =
        "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    for (size_t i = 0; i < kAlphabet.size(); ++i)
      table[static_cast<unsigned char>(kAlphabet[i])] = static_cast<int8_t>(i);
    return table;
  }();
  while (text.ends_with('=')) text.remove_suffix(1);
  std::string out;
  out.reserve(text.size() * 3 / 4);
  uint32_t bits = 0;
  int n_bits = 0;
  for (const char c : text) {
    const int digit = kDigits[static_cast<unsigned char>(c)];
    if (digit < 0)
      return errorf(ErrorCode::kCorruptFile, "base64: unexpected byte 0x{:02X}",
                    static_cast<unsigned char>(c));
    bits = bits << 6 | static_cast<uint32_t>(digit);
    n_bits += 6;
    if (n_bits >= 8) {
      n_bits -= 8;
      out += static_cast<char>(bits >> n_bits & 0xFF);
    }
  }
  return out;
}

}  // namespace penstock
