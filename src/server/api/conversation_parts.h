// Pieces of a conversation in chat completions' terms, made of the fields of other APIs.
#pragma once
#include <initializer_list>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "base/result.h"

namespace penstock {

// Moves a string out of the object; "" where the field is no string.
std::string take_string(nlohmann::ordered_json& object, const char* name);

// The error of a part that no text can be made of.
tl::unexpected<Error> cannot(const std::string& where, const std::string& type);

nlohmann::ordered_json text_part(std::string text);
// {type: text, text} of a part or block that has one, which is taken.
nlohmann::ordered_json text_part_of(nlohmann::ordered_json& part);
// A message, with room for calls and reasoning.
nlohmann::ordered_json message_of(const std::string& role, nlohmann::ordered_json content);
nlohmann::ordered_json tool_message(std::string call_id, nlohmann::ordered_json content);
nlohmann::ordered_json tool_call(std::string id, std::string name,
                                 nlohmann::ordered_json arguments);

// Text, or a list of text parts of the given types, as chat completions have it.
Result<nlohmann::ordered_json> text_parts(nlohmann::ordered_json content,
                                          std::initializer_list<std::string_view> types,
                                          const std::string& where);

}  // namespace penstock
