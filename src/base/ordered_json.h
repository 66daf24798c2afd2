// Objects of nlohmann::ordered_json that are built in linear work: the library looks through all
// members of an object for each that is added.
#pragma once
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

namespace penstock {

// Parses in work that is linear in the text; what base/json_text.h reads ordered values with. The
// text's nesting has been checked. A repeated name keeps its first place and gets its last value.
// The result is_discarded() when the text is not JSON.
nlohmann::ordered_json parse_ordered(std::string_view text);

// Reserves room for n members. Without it the library copies all values (whole conversations) when
// an object grows, since names are const and pairs cannot be moved. Invalidates pointers into the
// object.
void reserve_members(nlohmann::ordered_json& object, size_t n);
// Adds a member without looking whether there is one of its name.
nlohmann::ordered_json& add_member(nlohmann::ordered_json& object, std::string name,
                                   nlohmann::ordered_json value);
// Removes members whose name is repeated: the first one stays, with the value of the last.
void drop_repeated_members(nlohmann::ordered_json& object);

// Returns a count of the values of a JSON text, and an upper bound for other texts.
size_t count_values(std::string_view text);

}  // namespace penstock
