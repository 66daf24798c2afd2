// Reads JSON texts of other programs and of servers, with bounded size and depth.
#pragma once
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>

#include "base/result.h"

namespace penstock {

// Parses a text. where: name of the text in messages. Errors: kCorruptFile, when it is no JSON, too
// large or nested too deeply.
Result<nlohmann::json> parse_small_json(std::string_view text, std::string_view where);

// Return the member `key` if `object` is an object that has it with this type, else "" or -1.
std::string json_string(const nlohmann::json& object, const char* key);
int64_t json_integer(const nlohmann::json& object, const char* key);

// A file's length, as somebody says it: sums of as many as a repository may have are in range.
inline constexpr int64_t kMostFileBytes = 10'000'000'000'000;
// As json_integer(); -1 also for what is no length.
int64_t json_file_size(const nlohmann::json& object, const char* key);

// Returns the text for a message: at most max_chars characters, with control characters and bytes
// beyond ASCII as \xNN.
std::string printable(std::string_view text, size_t max_chars = 200);

}  // namespace penstock
