// Reading fields of tokenizer files, with errors that say which field was wrong.
#pragma once
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>

#include "base/result.h"
#include "text/unicode/regex.h"

namespace penstock {

// Maximum nesting of normalizers, pre-tokenizers and decoders that are sequences of others.
inline constexpr int kMaxNesting = 16;

// Parses the text of `file`. Errors: kCorruptFile, with the file's name.
Result<nlohmann::json> parse_json(std::string_view text, std::string_view file);
// Returns the "type" of an object. where: name of the section in error messages, here and below.
Result<std::string> json_type(const nlohmann::json& object, std::string_view where);
Result<std::string> json_string(const nlohmann::json& object, const char* key,
                                std::string_view where);
Result<const nlohmann::json*> json_array(const nlohmann::json& object, const char* key,
                                         std::string_view where);
// Reads "pattern": {"String": s} or {"Regex": s}, or a bare string.
Result<Regex> json_pattern(const nlohmann::json& object, std::string_view where);
// Returns the value when it is a boolean, else fallback.
bool json_flag(const nlohmann::json& object, const char* key, bool fallback);
// Returns the string, or the "content" of an object (a token); "" when there is neither.
std::string json_text(const nlohmann::json& object, const char* key);
// Returns the value when it is an integer in [0, max], else fallback.
int64_t json_int(const nlohmann::json& object, const char* key, int64_t fallback, int64_t max);

Result<std::string> base64_decode(std::string_view text);

}  // namespace penstock
