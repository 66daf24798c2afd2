// Names of fields that a schema does not list: which listed name they misspell.
#pragma once
#include <nlohmann/json_fwd.hpp>
#include <string_view>

namespace penstock {

// Whether `name` is `listed` but for letter case, underscores and a slip: one letter in six to
// eleven, two in more, or two letters that changed places. Shorter names are words of their own
// (top_a, top_k), and so is a name of more than 64 bytes.
bool misspells(std::string_view name, std::string_view listed);

// Returns the name of `properties`, an object, that `name` misspells; "" where there is none.
std::string_view meant_name(const nlohmann::json& properties, std::string_view name);

}  // namespace penstock
