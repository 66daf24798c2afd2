// JSON texts that other programs wrote or a server sent: bounded in size and in depth.
#pragma once
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>

#include "base/result.h"

namespace penstock {

// `where` names the text in messages. Errors: kCorruptFile when it is no JSON, or nested deeper than any text that is
// expected here.
Result<nlohmann::json> parse_small_json(std::string_view text, std::string_view where);

// The member of that name when `object` is an object that has it with this type, else what a reader expects least: "" or -1.
std::string json_string(const nlohmann::json& object, const char* key);
int64_t json_integer(const nlohmann::json& object, const char* key);

// The text for a message: control characters and bytes beyond ASCII as \xNN, at most max_chars of them.
std::string printable(std::string_view text, size_t max_chars = 200);

}  // namespace penstock
