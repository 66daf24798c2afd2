// Builds parts of a conversation in the form of chat completions from the fields of other APIs.
#pragma once
#include <initializer_list>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "base/result.h"

namespace penstock {

// Moves a string out of the object; "": the field is not a string.
std::string take_string(nlohmann::ordered_json& object, const char* name);

// Returns the error for a part that cannot be converted to text.
tl::unexpected<Error> cannot(const std::string& where, const std::string& type);

nlohmann::ordered_json text_part(std::string text);
// Moves the text of a part or block into {type: text, text}.
nlohmann::ordered_json text_part_of(nlohmann::ordered_json& part);
// Returns a message to which calls and reasoning can be added.
nlohmann::ordered_json message_of(const std::string& role, nlohmann::ordered_json content);
nlohmann::ordered_json tool_message(std::string call_id, nlohmann::ordered_json content);
nlohmann::ordered_json tool_call(std::string id, std::string name,
                                 nlohmann::ordered_json arguments);

// Converts a string, or a list of text parts of the given types, to the form of chat completions.
Result<nlohmann::ordered_json> text_parts(nlohmann::ordered_json content,
                                          std::initializer_list<std::string_view> types,
                                          const std::string& where);

}  // namespace penstock
