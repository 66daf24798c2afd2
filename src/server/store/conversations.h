// The conversations of /v1/conversations: lists of items that responses go on from and add to. A
// database row for each conversation and each item.
#pragma once
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "server/store/responses.h"
#include "server/store/store.h"

namespace penstock {

struct StoredConversation {
  std::string id, owner;
  std::string metadata = "{}";  // JSON: an object
  int64_t created = 0;          // unix time, seconds
  int64_t bytes = 0;            // that count against the owner's limit
};

struct ConversationItem {
  std::string id;
  std::string item;  // JSON: an object
};

// Selects a page of items.
struct ItemQuery {
  std::string after;  // id of the item before the first one to list; "" = from the start
  int64_t limit = 20;
  bool oldest_first = false;
};

// Thread-safe. Another owner's conversation is kNotFound, like one that does not exist.
class StoredConversations {
 public:
  static constexpr int64_t kMostItems = 10000;            // of a conversation
  static constexpr int64_t kMostPage = int64_t{4} << 20;  // bytes of a page of items

  // limits: of one owner. The conversations that were used least recently are evicted above them;
  // `seconds` count from the last use.
  StoredConversations(std::shared_ptr<Store> store, ResponseLimits limits)
      : store_(std::move(store)), limits_(limits) {}

  // Adds a conversation. Errors: those of append().
  Status add(StoredConversation conversation, std::span<const ConversationItem> items);
  Result<StoredConversation> find(const std::string& owner, const std::string& id);
  Status set_metadata(const std::string& owner, const std::string& id, const std::string& metadata);
  Status remove(const std::string& owner, const std::string& id);

  // Adds items at the end, all or none. Errors: kInvalidArgument, when the conversation alone would
  // exceed the owner's limit of bytes or kMostItems, or has an item of that id.
  Status append(const std::string& owner, const std::string& id,
                std::span<const ConversationItem> items);
  // The items as a JSON list, the oldest first. Errors: kInvalidArgument, more than `most` bytes.
  Result<std::string> all_items(const std::string& owner, const std::string& id, int64_t most);
  // Returns at most query.limit items, at least one and then as many as have kMostPage bytes;
  // `more`: there are further ones. Errors: kNotFound (query.after).
  Result<std::vector<ConversationItem>> items(const std::string& owner, const std::string& id,
                                              const ItemQuery& query, bool& more);
  Result<ConversationItem> item(const std::string& owner, const std::string& id,
                                const std::string& item);
  Status remove_item(const std::string& owner, const std::string& id, const std::string& item);

 private:
  struct Row {  // what a statement needs of a conversation
    int64_t number = 0;
    StoredConversation conversation;
  };
  Database& database() { return store_->database(); }
  Result<Row> row(const std::string& owner, const std::string& id);
  Result<int64_t> number_of(const Row& row, const std::string& item);
  Status insert(const Row& row, std::span<const ConversationItem> items);
  Status make_room(const Row& row);

  std::shared_ptr<Store> store_;
  const ResponseLimits limits_;
};

}  // namespace penstock
