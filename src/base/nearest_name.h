// Suggestions for misspelled names.
#pragma once
#include <span>
#include <string_view>

namespace penstock {

// Levenshtein distance: bytes to insert, delete or replace to turn a into b.
int edit_distance(std::string_view a, std::string_view b);

// Returns the known name with the least edit distance, the first among equals; empty when `known`
// is empty.
std::string_view nearest_name(std::string_view name, std::span<const std::string_view> known);

}  // namespace penstock
