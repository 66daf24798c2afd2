// OpenAI's conversations, which responses go on from and add to: POST /v1/conversations, GET, POST
// and DELETE /v1/conversations/{id}, GET and POST …/items, GET and DELETE …/items/{item}.
#include <charconv>

#include "base/json_text.h"
#include "server/api/api_request.h"
#include "server/api/conversations.h"
#include "server/api/json_check.h"
#include "server/api/json_reader.h"
#include "server/api/response_call.h"
#include "server/api/schema_parts.h"
#include "server/api/store_call.h"
#include "server/http/apart_threads.h"
#include "server/routing/endpoint.h"
#include "server/routing/errors.h"
#include "server/services/services.h"

namespace penstock {

EndpointSchema conversation_request, conversation_update_request, conversation_items_request,
    conversation_reply, conversation_deleted_reply, conversation_item_reply;

namespace {

constexpr const char* kConversation = "/v1/conversations/{id}";
constexpr const char* kItems = "/v1/conversations/{id}/items";
constexpr const char* kItem = "/v1/conversations/{id}/items/{item}";
constexpr int kMostItems = 20;  // of one request, OpenAI's limit

json conversation_json(const StoredConversation& conversation) {
  return {{"id", conversation.id},
          {"object", "conversation"},
          {"created_at", conversation.created},
          {"metadata", bounded_json<json>(conversation.metadata)}};
}

Result<json> read_conversation_body(const HttpRequest& request, const nlohmann::json& schema) {
  constexpr size_t kAllowance = size_t{8} << 20;
  ASSIGN_OR_RETURN(json body, read_json(request.body, kAllowance));
  RETURN_IF_ERROR(check_json(schema, body));
  return body;
}

// Reads items that a response can continue. Errors: kInvalidArgument (the item that it cannot).
// Copies are released as soon as possible, since the items may be as large as a body.
Result<std::vector<ConversationItem>> read_items(json given) {
  std::vector<ConversationItem> items;
  if (!given.is_array() || given.empty()) return items;
  json listed = listed_items(given);
  {
    json probe = json::object();
    probe["input"] = std::move(given);
    if (const auto read = conversation_of_response(probe); !read) {
      std::string message = read.error().message;
      if (message.starts_with("input")) message.replace(0, 5, "items");
      return errorf(read.error().code, "{}", message);
    }
  }
  for (json& one : listed) {
    const json item = std::move(one);
    items.push_back({item["id"].get<std::string>(), dump(item)});
  }
  return items;
}

Result<ItemQuery> read_item_query(const HttpRequest& request) {
  ItemQuery query;
  for (const auto& [name, value] : request.query) {
    if (name == "after") {
      query.after = value;
    } else if (name == "limit") {
      const char* const end = value.data() + value.size();
      const auto read = std::from_chars(value.data(), end, query.limit);
      if (read.ec != std::errc() || read.ptr != end || query.limit < 1 || query.limit > 100)
        return errorf(ErrorCode::kInvalidArgument, "limit: expected 1 to 100, got {:.80}", value);
    } else if (name == "order") {
      if (value != "asc" && value != "desc")
        return errorf(ErrorCode::kInvalidArgument, "order: expected asc or desc, got {:.80}",
                      value);
      query.oldest_first = value == "asc";
    } else if (name != "include" && name != "include[]") {
      return errorf(ErrorCode::kInvalidArgument,
                    "{:.80}: unknown parameter, expected limit, order, after, include", name);
    }
  }
  return query;
}

json page_json(const std::vector<ConversationItem>& items, bool more) {
  json page = {{"object", "list"}, {"data", json::array()}};
  for (const ConversationItem& one : items) page["data"].push_back(bounded_json<json>(one.item));
  page["first_id"] = items.empty() ? json() : json(items.front().id);
  page["last_id"] = items.empty() ? json() : json(items.back().id);
  page["has_more"] = more;
  return page;
}

Result<json> create(const StoreCall& call, const HttpRequest& request) {
  ASSIGN_OR_RETURN(json body, read_conversation_body(request, conversation_request()));
  ASSIGN_OR_RETURN(const auto items, read_items(take_field(body, "items")));
  StoredConversation conversation{.id = random_id("conv_"), .owner = call.owner};
  if (const json& metadata = get_field(body, "metadata"); metadata.is_object())
    conversation.metadata = dump(metadata);
  StoredConversations& store = *call.stores->conversations;
  RETURN_IF_ERROR(store.add(conversation, items));
  ASSIGN_OR_RETURN(const StoredConversation added, store.find(call.owner, conversation.id));
  return conversation_json(added);
}

Result<json> update(const StoreCall& call, const HttpRequest& request) {
  ASSIGN_OR_RETURN(const json body, read_conversation_body(request, conversation_update_request()));
  StoredConversations& store = *call.stores->conversations;
  const json& metadata = get_field(body, "metadata");
  RETURN_IF_ERROR(
      store.set_metadata(call.owner, call.id, metadata.is_object() ? dump(metadata) : "{}"));
  ASSIGN_OR_RETURN(const StoredConversation found, store.find(call.owner, call.id));
  return conversation_json(found);
}

Result<json> add_items(const StoreCall& call, const HttpRequest& request) {
  ASSIGN_OR_RETURN(json body, read_conversation_body(request, conversation_items_request()));
  ASSIGN_OR_RETURN(const auto items, read_items(take_field(body, "items")));
  RETURN_IF_ERROR(call.stores->conversations->append(call.owner, call.id, items));
  return page_json(items, false);
}

}  // namespace

const nlohmann::json& conversation_request() {
  using namespace schema;  // NOLINT: a schema
  static const Json value = [] {
    Json items = list(plain("object"), "what it begins with: items as a response's input has them");
    items["maxItems"] = kMostItems;
    return closed({{"items", items}, {"metadata", metadata("texts by name, kept with it")}});
  }();
  return value;
}

const nlohmann::json& conversation_update_request() {
  using namespace schema;  // NOLINT: a schema
  static const Json value =
      closed({{"metadata", metadata("texts by name, instead of those it has")}}, {"metadata"});
  return value;
}

const nlohmann::json& conversation_items_request() {
  using namespace schema;  // NOLINT: a schema
  static const Json value = closed({{"items",
                                     {{"type", "array"},
                                      {"items", plain("object")},
                                      {"minItems", 1},
                                      {"maxItems", kMostItems}}}},
                                   {"items"});
  return value;
}

const nlohmann::json& conversation_reply() {
  using namespace schema;  // NOLINT: a schema
  static const Json value = open({{"id", plain("string")},
                                  {"object", {{"enum", {"conversation"}}}},
                                  {"created_at", plain("integer")},
                                  {"metadata", plain("object")}},
                                 {"id", "object", "created_at", "metadata"});
  return value;
}

const nlohmann::json& conversation_deleted_reply() {
  using namespace schema;  // NOLINT: a schema
  static const Json value = open({{"id", plain("string")},
                                  {"object", {{"enum", {"conversation.deleted"}}}},
                                  {"deleted", plain("boolean")}},
                                 {"id", "object", "deleted"});
  return value;
}

const nlohmann::json& conversation_item_reply() {
  using namespace schema;  // NOLINT: a schema
  static const Json value =
      open({{"id", plain("string")}, {"type", plain("string")}}, {"id", "type"});
  return value;
}

net::awaitable<void> post_conversation(Services& services, Exchange& exchange) {
  co_await answer_from_stores(services, exchange, "/v1/conversations", [&](const StoreCall& call) {
    return create(call, exchange.request());
  });
}

net::awaitable<void> get_conversation(Services& services, Exchange& exchange) {
  co_await answer_from_stores(
      services, exchange, kConversation, [](const StoreCall& call) -> Result<json> {
        ASSIGN_OR_RETURN(const StoredConversation found,
                         call.stores->conversations->find(call.owner, call.id));
        return conversation_json(found);
      });
}

net::awaitable<void> post_conversation_update(Services& services, Exchange& exchange) {
  co_await answer_from_stores(services, exchange, kConversation, [&](const StoreCall& call) {
    return update(call, exchange.request());
  });
}

net::awaitable<void> delete_conversation(Services& services, Exchange& exchange) {
  co_await answer_from_stores(
      services, exchange, kConversation, [](const StoreCall& call) -> Result<json> {
        RETURN_IF_ERROR(call.stores->conversations->remove(call.owner, call.id));
        return json{{"id", call.id}, {"object", "conversation.deleted"}, {"deleted", true}};
      });
}

net::awaitable<void> post_conversation_items(Services& services, Exchange& exchange) {
  co_await answer_from_stores(services, exchange, kItems, [&](const StoreCall& call) {
    return add_items(call, exchange.request());
  });
}

net::awaitable<void> get_conversation_items(Services& services, Exchange& exchange) {
  co_await answer_from_stores(
      services, exchange, kItems, [&](const StoreCall& call) -> Result<json> {
        ASSIGN_OR_RETURN(const ItemQuery query, read_item_query(exchange.request()));
        bool more = false;
        ASSIGN_OR_RETURN(const auto items,
                         call.stores->conversations->items(call.owner, call.id, query, more));
        return page_json(items, more);
      });
}

net::awaitable<void> get_conversation_item(Services& services, Exchange& exchange) {
  co_await answer_from_stores(services, exchange, kItem, [](const StoreCall& call) -> Result<json> {
    ASSIGN_OR_RETURN(const ConversationItem found,
                     call.stores->conversations->item(call.owner, call.id, call.item));
    return bounded_json<json>(found.item);
  });
}

net::awaitable<void> delete_conversation_item(Services& services, Exchange& exchange) {
  co_await answer_from_stores(services, exchange, kItem, [](const StoreCall& call) -> Result<json> {
    StoredConversations& store = *call.stores->conversations;
    RETURN_IF_ERROR(store.remove_item(call.owner, call.id, call.item));
    ASSIGN_OR_RETURN(const StoredConversation found, store.find(call.owner, call.id));
    return conversation_json(found);
  });
}

}  // namespace penstock
