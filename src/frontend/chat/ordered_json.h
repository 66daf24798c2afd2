// Objects of nlohmann::ordered_json that are built in linear work: the library looks through all
// members of an object for each that is added.
#pragma once
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

namespace penstock {

// Parses as bounded_json() does.
nlohmann::ordered_json ordered_json_of(std::string_view text);

// Adds a member without looking whether there is one of its name.
nlohmann::ordered_json& add_member(nlohmann::ordered_json& object, std::string name,
                                   nlohmann::ordered_json value);
// Of members of one name keeps the first place and the last value.
void drop_repeated_members(nlohmann::ordered_json& object);

// Returns a count of the values of a JSON text, and an upper bound for other texts.
size_t count_values(std::string_view text);

}  // namespace penstock
