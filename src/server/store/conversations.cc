#include "server/store/conversations.h"

#include <chrono>

namespace penstock {
namespace {

constexpr int64_t kRowBytes = 64;  // size of an item's row without its text

int64_t bytes_of(const ConversationItem& item) {
  return kRowBytes + static_cast<int64_t>(item.id.size() + item.item.size());
}

constexpr int64_t kSecond = 1'000'000;  // microseconds; times of use order conversations

int64_t now() {
  const auto since = std::chrono::system_clock::now().time_since_epoch();
  return std::chrono::duration_cast<std::chrono::microseconds>(since).count();
}

}  // namespace

Result<StoredConversations::Row> StoredConversations::row(const std::string& owner,
                                                          const std::string& id) {
  std::vector<Row> found;
  RETURN_IF_ERROR(database().run(
      "SELECT number, metadata, created, bytes FROM conversations"
      " WHERE owner = ?1 AND id = ?2 AND used > ?3",
      {owner, id, now() - limits_.seconds * kSecond}, [&](const DatabaseRow& row) {
        found.push_back({row.integer(0), {id, owner, row.text(1), row.integer(2), row.integer(3)}});
      }));
  if (found.empty()) return errorf(ErrorCode::kNotFound, "no such conversation: {}", id);
  return std::move(found.front());
}

// Evicts the owner's least recently used conversations, and expired ones of all owners.
Status StoredConversations::make_room(const Row& row) {
  RETURN_IF_ERROR(database().run("DELETE FROM conversations WHERE used <= ?1",
                                 {now() - limits_.seconds * kSecond}));
  return database().run(
      "DELETE FROM conversations WHERE number != ?4 AND number IN (SELECT number FROM ("
      "SELECT number, sum(bytes) OVER newest AS bytes, row_number() OVER newest AS place"
      " FROM conversations WHERE owner = ?1"
      " WINDOW newest AS (ORDER BY number = ?4 DESC, used DESC, number DESC))"
      " WHERE bytes > ?2 OR place > ?3)",
      {row.conversation.owner, limits_.bytes, limits_.responses, row.number});
}

// REQUIRES: a transaction.
Status StoredConversations::insert(const Row& row, std::span<const ConversationItem> items) {
  int64_t bytes = row.conversation.bytes, n_items = 0;
  for (const ConversationItem& item : items) bytes += bytes_of(item);
  if (bytes > limits_.bytes) {
    return errorf(ErrorCode::kInvalidArgument,
                  "items: expected a conversation of at most {} bytes, got {}", limits_.bytes,
                  bytes);
  }
  RETURN_IF_ERROR(database().run("SELECT count(*) FROM conversation_items WHERE conversation = ?1",
                                 {row.number},
                                 [&](const DatabaseRow& one) { n_items = one.integer(0); }));
  if (n_items + std::ssize(items) > kMostItems) {
    return errorf(ErrorCode::kInvalidArgument,
                  "items: expected a conversation of at most {} items, got {}", kMostItems,
                  n_items + std::ssize(items));
  }
  for (const ConversationItem& item : items) {
    if (number_of(row, item.id))
      return errorf(ErrorCode::kInvalidArgument, "items: {} has an item {} already",
                    row.conversation.id, item.id);
    RETURN_IF_ERROR(database().run(
        "INSERT INTO conversation_items (conversation, id, bytes, item) VALUES (?1, ?2, ?3, ?4)",
        {row.number, item.id, bytes_of(item), item.item}));
  }
  RETURN_IF_ERROR(database().run("UPDATE conversations SET bytes = ?2, used = ?3 WHERE number = ?1",
                                 {row.number, bytes, now()}));
  return make_room(row);
}

Status StoredConversations::add(StoredConversation conversation,
                                std::span<const ConversationItem> items) {
  if (limits_.responses == 0)
    return errorf(ErrorCode::kInvalidArgument,
                  "no conversations are kept (--max-stored-responses)");
  conversation.created = now() / kSecond;
  conversation.bytes = kRowBytes + static_cast<int64_t>(conversation.metadata.size());
  return database().transact([&]() -> Status {
    RETURN_IF_ERROR(
        database().run("INSERT INTO conversations (id, owner, bytes, created, used, metadata)"
                       " VALUES (?1, ?2, ?3, ?4, ?5, ?6)",
                       {conversation.id, conversation.owner, conversation.bytes,
                        conversation.created, now(), conversation.metadata}));
    ASSIGN_OR_RETURN(const Row added, row(conversation.owner, conversation.id));
    return insert(added, items);
  });
}

Result<StoredConversation> StoredConversations::find(const std::string& owner,
                                                     const std::string& id) {
  ASSIGN_OR_RETURN(Row found, row(owner, id));
  return std::move(found.conversation);
}

Status StoredConversations::set_metadata(const std::string& owner, const std::string& id,
                                         const std::string& metadata) {
  return database().transact([&]() -> Status {
    ASSIGN_OR_RETURN(const Row found, row(owner, id));
    const auto more = static_cast<int64_t>(metadata.size()) -
                      static_cast<int64_t>(found.conversation.metadata.size());
    return database().run(
        "UPDATE conversations SET metadata = ?2, bytes = bytes + ?3, used = ?4 WHERE number = ?1",
        {found.number, metadata, more, now()});
  });
}

Status StoredConversations::remove(const std::string& owner, const std::string& id) {
  return database().transact_removal([&]() -> Status {
    ASSIGN_OR_RETURN(const Row found, row(owner, id));
    return database().run("DELETE FROM conversations WHERE number = ?1", {found.number});
  });
}

Status StoredConversations::append(const std::string& owner, const std::string& id,
                                   std::span<const ConversationItem> items) {
  return database().transact([&]() -> Status {
    ASSIGN_OR_RETURN(const Row found, row(owner, id));
    return insert(found, items);
  });
}

Result<std::string> StoredConversations::all_items(const std::string& owner, const std::string& id,
                                                   int64_t most) {
  std::string list = "[";
  RETURN_IF_ERROR(database().transact([&]() -> Status {
    ASSIGN_OR_RETURN(const Row found, row(owner, id));
    if (found.conversation.bytes > most) {
      return errorf(ErrorCode::kInvalidArgument,
                    "conversation: expected one of at most {} bytes, got {}", most,
                    found.conversation.bytes);
    }
    return database().run(
        "SELECT item FROM conversation_items WHERE conversation = ?1 ORDER BY number",
        {found.number}, [&](const DatabaseRow& row) {
          if (list.size() > 1) list += ',';
          list += row.text(0);
        });
  }));
  return list + "]";
}

Result<int64_t> StoredConversations::number_of(const Row& row, const std::string& item) {
  int64_t number = -1;
  RETURN_IF_ERROR(
      database().run("SELECT number FROM conversation_items WHERE conversation = ?1 AND id = ?2",
                     {row.number, item}, [&](const DatabaseRow& one) { number = one.integer(0); }));
  if (number >= 0) return number;
  return errorf(ErrorCode::kNotFound, "{} has no item {}", row.conversation.id, item);
}

Result<std::vector<ConversationItem>> StoredConversations::items(const std::string& owner,
                                                                 const std::string& id,
                                                                 const ItemQuery& query,
                                                                 bool& more) {
  std::vector<ConversationItem> found;
  int64_t n_bytes = 0;
  more = false;
  // Of the items that are not taken the text is not read from the disk.
  const auto take = [&](const DatabaseRow& row) {
    n_bytes += row.integer(2);
    more = more || std::ssize(found) == query.limit || (!found.empty() && n_bytes > kMostPage);
    if (!more) found.push_back({row.text(0), row.text(1)});
  };
  RETURN_IF_ERROR(database().transact([&]() -> Status {
    ASSIGN_OR_RETURN(const Row conversation, row(owner, id));
    int64_t after = query.oldest_first ? -1 : INT64_MAX;
    if (!query.after.empty()) {
      ASSIGN_OR_RETURN(after, number_of(conversation, query.after));
    }
    const char* const sql = query.oldest_first ? "SELECT id, item, bytes FROM conversation_items "
                                                 "WHERE conversation = ?1 AND number > ?2"
                                                 " ORDER BY number LIMIT ?3"
                                               : "SELECT id, item, bytes FROM conversation_items "
                                                 "WHERE conversation = ?1 AND number < ?2"
                                                 " ORDER BY number DESC LIMIT ?3";
    return database().run(sql, {conversation.number, after, query.limit + 1}, take);
  }));
  return found;
}

Result<ConversationItem> StoredConversations::item(const std::string& owner, const std::string& id,
                                                   const std::string& item) {
  ASSIGN_OR_RETURN(const Row conversation, row(owner, id));
  ASSIGN_OR_RETURN(const int64_t number, number_of(conversation, item));
  ConversationItem found{item, {}};
  RETURN_IF_ERROR(database().run("SELECT item FROM conversation_items WHERE number = ?1", {number},
                                 [&](const DatabaseRow& row) { found.item = row.text(0); }));
  return found;
}

Status StoredConversations::remove_item(const std::string& owner, const std::string& id,
                                        const std::string& item) {
  return database().transact_removal([&]() -> Status {
    ASSIGN_OR_RETURN(const Row conversation, row(owner, id));
    ASSIGN_OR_RETURN(const int64_t number, number_of(conversation, item));
    RETURN_IF_ERROR(
        database().run("UPDATE conversations SET used = ?2,"
                       " bytes = bytes - (SELECT bytes FROM conversation_items WHERE number = ?3)"
                       " WHERE number = ?1",
                       {conversation.number, now(), number}));
    return database().run("DELETE FROM conversation_items WHERE number = ?1", {number});
  });
}

}  // namespace penstock
