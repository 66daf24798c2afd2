#include "hub/small_json.h"

#include <nlohmann/json.hpp>

#include "base/json_text.h"

namespace penstock {
namespace {

constexpr int kMaxJsonDepth = 32;

}  // namespace

Result<nlohmann::json> parse_small_json(std::string_view text, std::string_view where) {
  auto value = read_bounded_json(text, ErrorCode::kCorruptFile, where, kMaxJsonDepth);
  if (value) return value;
  return errorf(ErrorCode::kCorruptFile, "{}{}", where,
                printable(std::string_view(value.error().message).substr(where.size())));
}

std::string json_string(const nlohmann::json& object, const char* key) {
  if (!object.is_object()) return {};
  const auto found = object.find(key);
  return found != object.end() && found->is_string() ? found->get<std::string>() : std::string();
}

int64_t json_integer(const nlohmann::json& object, const char* key) {
  if (!object.is_object()) return -1;
  const auto found = object.find(key);
  return found != object.end() && found->is_number_integer() ? found->get<int64_t>() : -1;
}

int64_t json_file_size(const nlohmann::json& object, const char* key) {
  const int64_t size = json_integer(object, key);
  return size >= 0 && size <= kMostFileBytes ? size : -1;
}

std::string printable(std::string_view text, size_t max_chars) {
  std::string result;
  for (const char c : text.substr(0, max_chars)) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte < 0x20 || byte >= 0x7f) {
      result += fmt::format("\\x{:02x}", byte);
    } else {
      result += c;
    }
  }
  if (text.size() > max_chars) result += "...";
  return result;
}

}  // namespace penstock
