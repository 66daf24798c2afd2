// Converts conversations of all APIs to the form of chat completions, which chat templates expect.
#pragma once
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "base/result.h"
#include "frontend/chat/chat_setup.h"
#include "server/api/asked_tools.h"
#include "server/api/generation.h"

namespace penstock {

struct AskedConversation : Conversation {
  CallForms forms;
  std::vector<std::string> warnings;  // about what is left out
};

// Messages, tools and template variables are moved out of the body. REQUIRES: a checked body.
// Errors: kInvalidArgument (a tool, item or block that cannot be expressed).
Result<AskedConversation> conversation_of_chat(nlohmann::ordered_json& body);  // also for /tokenize
// n_earlier: number of leading items of the input list that come from earlier responses.
Result<AskedConversation> conversation_of_response(nlohmann::ordered_json& body,
                                                   size_t n_earlier = 0);
// Adds the items of a reply to the messages of a conversation. Errors: those of the items.
Status add_response_items(nlohmann::ordered_json items, nlohmann::ordered_json& messages);
Result<AskedConversation> conversation_of_messages(nlohmann::ordered_json& body);

// Tokenizes the conversation. call.params.structured_outputs is the form of the final answer; it is
// replaced by the form of the whole reply, reasoning and calls included. The pictures go into
// call.pictures: each conversation's prompt is the call's next one. Errors: those of
// ChatSetup::read().
Result<ChatTask> read_task(Conversation conversation, GenerationCall& call);

}  // namespace penstock
