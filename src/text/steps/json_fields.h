// Reading fields of tokenizer files, with errors that say which field was wrong.
#pragma once
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>

#include "base/result.h"
#include "text/unicode/regex.h"

namespace penstock {

// Of normalizers, pre-tokenizers and decoders that are lists of their kind.
inline constexpr int kMaxNesting = 16;

// Errors: kCorruptFile, with the file's name.
Result<nlohmann::json> parse_json(std::string_view text, std::string_view file);
// The "type" of an object; where names the section for errors.
Result<std::string> json_type(const nlohmann::json& object, std::string_view where);
Result<std::string> json_string(const nlohmann::json& object, const char* key, std::string_view where);
Result<const nlohmann::json*> json_array(const nlohmann::json& object, const char* key,
                                         std::string_view where);
// "pattern": {"String": s} or {"Regex": s}, or a bare string.
Result<Regex> json_pattern(const nlohmann::json& object, std::string_view where);
// The value when it is a boolean, else fallback.
bool json_flag(const nlohmann::json& object, const char* key, bool fallback);
// "" when there is no such string; a token may also be an object with "content".
std::string json_text(const nlohmann::json& object, const char* key);
// The value when it is an integer in [0, max], else fallback.
int64_t json_int(const nlohmann::json& object, const char* key, int64_t fallback, int64_t max);

Result<std::string> base64_decode(std::string_view text);

}  // namespace penstock
