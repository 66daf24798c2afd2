#include "server/replies/cache/reply_table.h"

#include <cstring>
#include <string_view>
#include <system_error>

namespace penstock {
namespace {

// The schema versions. A change appends a row; released rows are never edited.
constexpr const char* kReplySchema[] = {
    "CREATE TABLE replies (key BLOB PRIMARY KEY, model TEXT NOT NULL, record BLOB NOT NULL, scope "
    "BLOB NOT NULL, question TEXT NOT NULL, meaning BLOB NOT NULL, created INTEGER NOT NULL, "
    "expires INTEGER NOT NULL) WITHOUT ROWID;CREATE INDEX replies_by_age ON replies "
    "(created);CREATE INDEX replies_by_model ON replies (model);",
};

}  // namespace

Result<std::unique_ptr<ReplyTable>> ReplyTable::open(const std::filesystem::path& file) {
  ASSIGN_OR_RETURN(auto database, Database::open(file, kReplySchema));
  return std::unique_ptr<ReplyTable>(new ReplyTable(file, std::move(database)));
}

void ReplyTable::remove(std::unique_ptr<ReplyTable> table) {
  const std::string file = table->file_.string();
  table.reset();
  std::error_code ignored;
  for (const char* end : {"", "-wal", "-shm"}) std::filesystem::remove(file + end, ignored);
}

Status ReplyTable::write(const Changes& changes) {
  return database_->transact([&]() -> Status {
    for (const std::string& model : changes.forgotten) {
      RETURN_IF_ERROR(model.empty() ? database_->run("DELETE FROM replies")
                                    : database_->run("DELETE FROM replies WHERE model = ?1",
                                                     {std::string_view(model)}));
    }
    for (const std::string& key : changes.removed)
      RETURN_IF_ERROR(database_->run("DELETE FROM replies WHERE key = ?1", {Database::Bytes{key}}));
    for (const auto& [one, meaning] : changes.added) {
      const std::string_view floats{reinterpret_cast<const char*>(meaning.data()),
                                    meaning.size() * sizeof(float)};
      RETURN_IF_ERROR(database_->run(
          "INSERT OR REPLACE INTO replies VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)",
          {Database::Bytes{one->key}, std::string_view(one->model), Database::Bytes{one->record},
           Database::Bytes{one->scope}, std::string_view(one->question), Database::Bytes{floats},
           one->created, one->expires}));
    }
    return {};
  });
}

Status ReplyTable::read(int64_t now,
                        const std::function<void(CachedReply, std::vector<float> meaning)>& take) {
  RETURN_IF_ERROR(database_->run("DELETE FROM replies WHERE expires <= ?1", {now}));
  return database_->run(
      "SELECT key, model, record, scope, question, meaning, created, expires FROM replies ORDER BY "
      "created",
      {}, [&](const DatabaseRow& row) {
        const std::string bytes = row.bytes(5);
        std::vector<float> meaning(bytes.size() / sizeof(float));
        std::memcpy(meaning.data(), bytes.data(), meaning.size() * sizeof(float));
        take({.key = row.bytes(0),
              .model = row.text(1),
              .record = row.bytes(2),
              .scope = row.bytes(3),
              .question = row.text(4),
              .created = row.integer(6),
              .expires = row.integer(7)},
             std::move(meaning));
      });
}

}  // namespace penstock
