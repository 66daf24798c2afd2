// JSON whose numbers keep their spelling where no machine type preserves it: integers of more than
// 64 bits, 1e400, 0.10. Arguments of calls are passed on as the model wrote them.
#pragma once
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>

namespace penstock {

// Parses like nlohmann::ordered_json, except that such numbers become marked strings that only
// dump_exact reads. Returns nullopt when the text is not JSON.
std::optional<nlohmann::ordered_json> parse_exact(std::string_view text);
// Returns a number with its spelling; nullopt when the text is not a JSON number.
std::optional<nlohmann::ordered_json> exact_number(std::string_view text);
// Whether the value is a number, either of a machine type or with its spelling.
bool is_number(const nlohmann::ordered_json& value);

// Returns the JSON text without white space. Bytes that are not UTF-8 become U+FFFD.
std::string dump_exact(const nlohmann::ordered_json& value);

// Returns the beginning of a JSON object that ended too soon, up to its last whole value and closed
// there: {"a": [1, "x", "y → {"a": [1, "x"]}. "{}" where it nests deeper than kMaxJsonNesting.
std::string whole_part(std::string_view text);
// Returns a call's arguments as an object for dump_exact; of arguments that ended too soon, what is
// whole.
nlohmann::ordered_json arguments_object(std::string_view text);

}  // namespace penstock
