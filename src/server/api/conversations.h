// What the APIs call a conversation in chat completions' terms, which is what templates know.
#pragma once
#include <nlohmann/json_fwd.hpp>

#include "base/result.h"
#include "frontend/chat/chat_setup.h"
#include "server/api/generation.h"

namespace penstock {

// body: checked. Messages, tools and template variables are taken out of it, not copied. Errors: kInvalidArgument, the
// item or block that cannot be expressed.
Conversation conversation_of_chat(nlohmann::ordered_json& body);  // also that of /tokenize
Result<Conversation> conversation_of_response(nlohmann::ordered_json& body);
Result<Conversation> conversation_of_messages(nlohmann::ordered_json& body);

// Error: kUnsupported, the whole reply is constrained, and there is no place for reasoning that the prompt has begun or
// for calls.
Status check_constrained(const GenerationCall& call, const ChatTask& task);

}  // namespace penstock
