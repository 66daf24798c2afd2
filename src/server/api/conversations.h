// What the APIs call a conversation in chat completions' terms, which is what templates know.
#pragma once
#include <nlohmann/json_fwd.hpp>

#include "base/result.h"
#include "frontend/chat/chat_setup.h"

namespace penstock {

// From the body of a chat completion or of /tokenize, whose messages, tools and template variables it takes.
Conversation conversation_of_chat(nlohmann::ordered_json& body);
// body: checked. Errors: kInvalidArgument, the item or block that cannot be expressed.
Result<Conversation> conversation_of_response(const nlohmann::ordered_json& body);
Result<Conversation> conversation_of_messages(const nlohmann::ordered_json& body);

}  // namespace penstock
