// JSON whose numbers keep their spelling where no machine type holds it: integers of more than 64 bits, 1e400, 0.10. The
// arguments of a call are the model's words, not ours.
#pragma once
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>

namespace penstock {

// As nlohmann::ordered_json parses it, but for such numbers: these are strings that only dump_exact reads. Nothing for what
// is no JSON.
std::optional<nlohmann::ordered_json> parse_exact(std::string_view text);
// A number as it is spelled; nothing for what is no number of JSON.
std::optional<nlohmann::ordered_json> exact_number(std::string_view text);
// Whether the value is a number, spelled or not.
bool is_number(const nlohmann::ordered_json& value);

// Without white space. Bytes that are not UTF-8 become U+FFFD.
std::string dump_exact(const nlohmann::ordered_json& value);

}  // namespace penstock
