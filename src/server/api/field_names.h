// Finds the listed field name that an unlisted name misspells.
#pragma once
#include <nlohmann/json_fwd.hpp>
#include <string_view>

namespace penstock {

// Whether `name` equals `listed` up to letter case, underscores and typing errors: one wrong letter
// in names of 6 to 11 letters, two in longer ones, or two transposed letters. Shorter names (top_a,
// top_k) and names of more than 64 bytes never count as misspelt.
bool misspells(std::string_view name, std::string_view listed);

// Returns the name in the object `properties` that `name` misspells; "": none.
std::string_view meant_name(const nlohmann::json& properties, std::string_view name);

}  // namespace penstock
