// The inputs of /v1/responses and /v1/messages in chat completions' terms, which is what templates know.
#pragma once
#include <nlohmann/json_fwd.hpp>

#include "server/api/chat_setup.h"

namespace penstock {

// body: checked. Errors: kInvalidArgument, the item or block that cannot be expressed.
Result<Conversation> conversation_of_response(const nlohmann::ordered_json& body);
Result<Conversation> conversation_of_messages(const nlohmann::ordered_json& body);

}  // namespace penstock
