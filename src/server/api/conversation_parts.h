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
// Returns a part that is a picture. url: a data URL, or another that is refused later. where: its place
// in the request.
nlohmann::ordered_json image_part(std::string url, std::string where);
// Returns the data URL of a picture's base64. media_type: "": not told.
std::string data_url(std::string_view media_type, std::string_view base64);
// Returns a message to which calls and reasoning can be added.
nlohmann::ordered_json message_of(const std::string& role, nlohmann::ordered_json content);
nlohmann::ordered_json tool_message(std::string call_id, nlohmann::ordered_json content);
nlohmann::ordered_json tool_call(std::string id, std::string name,
                                 nlohmann::ordered_json arguments);

// Converts a string, or a list of parts of the given types, to the form of chat completions. Parts are
// texts, and pictures if "input_image" is one of the types.
Result<nlohmann::ordered_json> text_parts(nlohmann::ordered_json content,
                                          std::initializer_list<std::string_view> types,
                                          const std::string& where);

}  // namespace penstock
