#include "server/api/earlier_items.h"

#include "base/json_text.h"
#include "base/ordered_json.h"
#include "server/api/api_request.h"
#include "server/services/config.h"

namespace penstock {
namespace {

// A small body may continue megabytes of stored items, which are limited like bodies: individually,
// in total, and per client to three quarters of the total.
Status hold(Services& services, const std::string& asker, const char* field, size_t bytes,
            ResponseCall& call) {
  const size_t most = services.config.http.max_body_bytes;
  if (bytes > most) {
    return errorf(ErrorCode::kInvalidArgument,
                  "{}: expected a conversation of at most {} bytes, got {}", field, most, bytes);
  }
  call.held = std::make_shared<BodyBudget>();
  call.held->attach(services.under_way.conversation_bytes,
                    static_cast<int64_t>(services.config.http.max_total_body_bytes));
  call.held->share(services.under_way.conversation_shares, asker);
  if (call.held->take(static_cast<int64_t>(bytes))) return {};
  return errorf(ErrorCode::kResourceExhausted,
                "{}: stored conversations under way hold as much as this server allows, {} bytes "
                "of all clients together and three quarters of one",
                field, services.config.http.max_total_body_bytes);
}

// Reads stored items, whose values are bounded as those of a body are.
Result<json> read_items(const Services& services, const char* field, const std::string& text) {
  constexpr size_t kOfValue = 48;  // bytes
  const size_t most = (most_values(services) + 2 * text.size()) / kOfValue, n = count_values(text);
  if (n > most) {
    return errorf(ErrorCode::kInvalidArgument,
                  "{}: expected a conversation of at most {} values in {} bytes, got {}", field,
                  most, text.size(), n);
  }
  json items = bounded_json<json>(text);
  if (items.is_array()) return items;
  return errorf(ErrorCode::kInternal, "{}: what is stored of it cannot be read", field);
}

// Maps kNotFound of an object named in the body to an error of the body.
tl::unexpected<Error> named_wrongly(const char* field, Error error) {
  if (error.code != ErrorCode::kNotFound) return tl::unexpected(std::move(error));
  return errorf(ErrorCode::kInvalidArgument, "{}: {}", field, error.message);
}

}  // namespace

Result<json> items_of_response(Services& services, const StoreCall& stored, const std::string& id,
                               ResponseCall& call) {
  constexpr const char* kField = "previous_response_id";
  auto found = stored.stores->responses->find(stored.owner, id);
  if (!found) return named_wrongly(kField, std::move(found.error()));
  found->events = {};
  RETURN_IF_ERROR(
      hold(services, stored.asker, kField, found->input.size() + found->reply.size(), call));
  const json reply = bounded_json<json>(found->reply);
  const std::string status = found->ended ? get_string(reply, "status") : "in_progress";
  if (status != "completed" && status != "incomplete") {
    return errorf(ErrorCode::kInvalidArgument,
                  "{}: expected a response that is completed, {} is {}", kField, id, status);
  }
  ASSIGN_OR_RETURN(json items, read_items(services, kField, found->input));
  for (const json& item : get_field(reply, "output")) items.push_back(item);
  return items;
}

Result<json> items_of_conversation(Services& services, const StoreCall& stored,
                                   const std::string& id, ResponseCall& call) {
  constexpr const char* kField = "conversation";
  StoredConversations& conversations = *stored.stores->conversations;
  auto found = conversations.find(stored.owner, id);
  if (!found) return named_wrongly(kField, std::move(found.error()));
  RETURN_IF_ERROR(hold(services, stored.asker, kField, static_cast<size_t>(found->bytes), call));
  // The conversation may have grown since it was looked up.
  auto text = conversations.all_items(stored.owner, id, found->bytes);
  if (!text) return named_wrongly(kField, std::move(text.error()));
  return read_items(services, kField, *text);
}

std::string conversation_named_in(const json& body) {
  const json& given = get_field(body, "conversation");
  if (given.is_string()) return given.get<std::string>();
  return given.is_object() ? get_string(given, "id") : "";
}

Status extend_conversation(Stores& stores, const ResponseCall& call, const json& reply) {
  std::vector<ConversationItem> items;
  const auto add = [&](const json& list) {
    for (const json& item : list) items.push_back({get_string(item, "id"), dump(item)});
  };
  add(bounded_json<json>(call.new_items));
  add(get_field(reply, "output"));
  return stores.conversations->append(call.owner, call.conversation_id, items);
}

}  // namespace penstock
