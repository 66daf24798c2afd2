// Which name somebody may have meant.
#pragma once
#include <span>
#include <string_view>

namespace penstock {

// Letters to insert, delete or replace until a is b.
int edit_distance(std::string_view a, std::string_view b);

// The known name with the fewest letters to change; of equals the first. Empty: none is known.
std::string_view nearest_name(std::string_view name, std::span<const std::string_view> known);

}  // namespace penstock
