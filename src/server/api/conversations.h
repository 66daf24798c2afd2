// What the APIs call a conversation in chat completions' terms, which is what templates know.
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
  std::vector<std::string> warnings;  // of what is left out
};

// body: checked. Messages, tools and template variables are taken out of it, not copied. Errors:
// kInvalidArgument, the tool, item or block that cannot be expressed.
Result<AskedConversation> conversation_of_chat(nlohmann::ordered_json& body);  // also /tokenize's
// n_earlier: so many items of the input's list are of responses before this one.
Result<AskedConversation> conversation_of_response(nlohmann::ordered_json& body,
                                                   size_t n_earlier = 0);
// Adds items of a reply to the messages of such a conversation. Errors: those of an item.
Status add_response_items(nlohmann::ordered_json items, nlohmann::ordered_json& messages);
Result<AskedConversation> conversation_of_messages(nlohmann::ordered_json& body);

// The conversation as tokens, with call.params.structured_outputs as the form of its answer; they
// become what the whole reply is held to, reasoning and calls included. Errors: of ChatSetup::read.
Result<ChatTask> read_task(Conversation conversation, GenerationCall& call);

}  // namespace penstock
