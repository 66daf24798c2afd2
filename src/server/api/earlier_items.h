// What a response goes on from: the conversation of a stored response, or one of /v1/conversations.
#pragma once
#include <nlohmann/json_fwd.hpp>
#include <string>

#include "server/api/response_call.h"
#include "server/api/store_call.h"

namespace penstock {

// Both return the items, the oldest first, whose memory `call` holds. Errors: kInvalidArgument
// (there is no such thing, or it is larger than a body may be), kResourceExhausted (with others
// under way), of the store.
// id: of a response that is completed or incomplete.
Result<nlohmann::ordered_json> items_of_response(Services& services, const StoreCall& stored,
                                                 const std::string& id, ResponseCall& call);
Result<nlohmann::ordered_json> items_of_conversation(Services& services, const StoreCall& stored,
                                                     const std::string& id, ResponseCall& call);

// The id in a body's "conversation": a string or {"id": …}; "" without one.
std::string conversation_named_in(const nlohmann::ordered_json& body);

// Adds the call's new items and the output of its reply to its conversation. Blocks. Errors: those
// of StoredConversations::append.
Status extend_conversation(Stores& stores, const ResponseCall& call,
                           const nlohmann::ordered_json& reply);

}  // namespace penstock
