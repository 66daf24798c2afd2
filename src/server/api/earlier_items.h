// The items that a response continues: those of a stored response, or of a conversation of
// /v1/conversations.
#pragma once
#include <nlohmann/json_fwd.hpp>
#include <string>

#include "server/api/response_call.h"
#include "server/api/store_call.h"

namespace penstock {

// id: a response that is completed or incomplete.
Result<nlohmann::ordered_json> items_of_response(Services& services, const StoreCall& stored,
                                                 const std::string& id, ResponseCall& call);
Result<nlohmann::ordered_json> items_of_conversation(Services& services, const StoreCall& stored,
                                                     const std::string& id, ResponseCall& call);

// Returns the id in a body's "conversation", which is a string or {"id": …}; "": absent.
std::string conversation_named_in(const nlohmann::ordered_json& body);

// Appends the call's new items and the output of its reply to its conversation. Blocks on the disk.
// Errors: those of StoredConversations::append().
Status extend_conversation(Stores& stores, const ResponseCall& call,
                           const nlohmann::ordered_json& reply);

}  // namespace penstock
