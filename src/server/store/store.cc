#include "server/store/store.h"

#include <fcntl.h>
#include <spdlog/spdlog.h>
#include <sys/file.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>

#include "base/log.h"
#include "base/sha256.h"

namespace penstock {
namespace {

// The schema versions. A change appends a row; released rows are never edited.
constexpr const char* kSchema[] = {
    // 1: the salt of owners; files, whose contents are files/<id>
    "CREATE TABLE settings (name TEXT PRIMARY KEY, value TEXT NOT NULL);CREATE TABLE files (number "
    "INTEGER PRIMARY KEY AUTOINCREMENT, id TEXT NOT NULL UNIQUE, owner TEXT NOT NULL, name TEXT "
    "NOT NULL, purpose TEXT NOT NULL, bytes INTEGER NOT NULL, created INTEGER NOT NULL);CREATE "
    "INDEX files_of_owner ON files (owner, number);",
    // 2: batches, whose results are batches/<id>.*.jsonl until they end
    "CREATE TABLE batches (number INTEGER PRIMARY KEY AUTOINCREMENT, id TEXT NOT NULL UNIQUE, "
    "owner TEXT NOT NULL, key TEXT NOT NULL, endpoint TEXT NOT NULL, input_file TEXT NOT NULL, "
    "window TEXT NOT NULL, metadata TEXT NOT NULL, errors TEXT NOT NULL DEFAULT '', output_file "
    "TEXT NOT NULL DEFAULT '', error_file TEXT NOT NULL DEFAULT '', status INTEGER NOT NULL "
    "DEFAULT 0, ended INTEGER NOT NULL DEFAULT 0, created INTEGER NOT NULL, expires INTEGER NOT "
    "NULL, since TEXT NOT NULL DEFAULT '[]', total INTEGER NOT NULL DEFAULT 0, completed INTEGER "
    "NOT NULL DEFAULT 0, failed INTEGER NOT NULL DEFAULT 0);CREATE INDEX batches_of_owner ON "
    "batches (owner, number);CREATE INDEX unfinished_batches ON batches (ended) WHERE ended = 0;",
    // 3: responses; the large columns last, so that bounds are computed without them
    "CREATE TABLE responses (number INTEGER PRIMARY KEY AUTOINCREMENT, id TEXT NOT NULL UNIQUE, "
    "owner TEXT NOT NULL, bytes INTEGER NOT NULL, created INTEGER NOT NULL, expires INTEGER NOT "
    "NULL, ended INTEGER NOT NULL, input TEXT NOT NULL, reply TEXT NOT NULL, events TEXT NOT NULL "
    "DEFAULT '');CREATE INDEX responses_of_owner ON responses (owner, number, bytes);CREATE INDEX "
    "expiring_responses ON responses (expires);CREATE INDEX unfinished_responses ON responses "
    "(ended) WHERE ended = 0;",
    // 4: what keys have used, who pays for a batch, what administrators did
    "CREATE TABLE usage (day INTEGER NOT NULL, key TEXT NOT NULL, model TEXT NOT NULL, requests "
    "INTEGER NOT NULL, input_tokens INTEGER NOT NULL, cached_tokens INTEGER NOT NULL, "
    "output_tokens INTEGER NOT NULL, microseconds INTEGER NOT NULL, nano_cost INTEGER NOT NULL, "
    "PRIMARY KEY (day, key, model)) WITHOUT ROWID;ALTER TABLE batches ADD COLUMN payer TEXT NOT "
    "NULL DEFAULT '';CREATE TABLE audit (number INTEGER PRIMARY KEY AUTOINCREMENT, time INTEGER "
    "NOT NULL, key TEXT NOT NULL, peer TEXT NOT NULL, act TEXT NOT NULL, about TEXT NOT NULL, "
    "status INTEGER NOT NULL);",
    // 5: conversations and their items
    "CREATE TABLE conversations (number INTEGER PRIMARY KEY AUTOINCREMENT, id TEXT NOT NULL "
    "UNIQUE, owner TEXT NOT NULL, bytes INTEGER NOT NULL, created INTEGER NOT NULL,"
    " used INTEGER NOT NULL, metadata TEXT NOT NULL);"
    "CREATE INDEX conversations_of_owner ON conversations (owner, used, number, bytes);"
    "CREATE INDEX expiring_conversations ON conversations (used);"
    "CREATE TABLE conversation_items (number INTEGER PRIMARY KEY AUTOINCREMENT,"
    " conversation INTEGER NOT NULL REFERENCES conversations (number) ON DELETE CASCADE,"
    " id TEXT NOT NULL, bytes INTEGER NOT NULL, item TEXT NOT NULL, UNIQUE (conversation, id));"
    "CREATE INDEX items_of_conversation ON conversation_items (conversation, number);",
};

// More than the log and what it makes the database grow by when it is written back: some 1000 pages
// of 4 KiB.
constexpr int64_t kReserve = 8 << 20;

}  // namespace

Result<std::unique_ptr<Store>> Store::open(const std::filesystem::path& folder) {
  std::error_code error;
  std::filesystem::create_directories(folder / "files", error);
  if (error) return errorf(ErrorCode::kIo, "{}: {}", (folder / "files").string(), error.message());
  std::unique_ptr<Store> store(new Store(folder));
  RETURN_IF_ERROR(store->lock());
  RETURN_IF_ERROR(store->keep_log_of_missing_database());
  ASSIGN_OR_RETURN(store->database_, Database::open(folder / "penstock.db", kSchema, kReserve));
  RETURN_IF_ERROR(store->read_salt());
  return store;
}

Result<std::unique_ptr<Database>> Store::open_database(const std::filesystem::path& folder) {
  return Database::open_existing(folder / "penstock.db", std::size(kSchema));
}

Store::~Store() {
  database_.reset();
  if (lock_ >= 0) ::close(lock_);
}

Status Store::lock() {
  const std::string path = folder_ / "lock";
  lock_ = ::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
  if (lock_ < 0) return errorf(ErrorCode::kIo, "{}: {}", path, std::strerror(errno));
  if (flock(lock_, LOCK_EX | LOCK_NB) == 0) return {};
  return errorf(ErrorCode::kIo, "{}: another process uses this folder", folder_.string());
}

// SQLite deletes the write-ahead log when it creates a new database, and the last changes may be
// only there: keep the log.
Status Store::keep_log_of_missing_database() const {
  std::error_code none;
  const std::filesystem::path database = folder_ / "penstock.db";
  if (std::filesystem::file_size(database, none) > 0 && !none) return {};
  std::vector<std::filesystem::path> logs;
  for (const char* suffix : {"-wal", "-journal"}) {
    const std::filesystem::path log = database.string() + suffix;
    if (std::filesystem::exists(log, none) && std::filesystem::file_size(log, none) > 0)
      logs.push_back(log);
  }
  return put_aside(logs);
}

Status Store::put_aside(const std::vector<std::filesystem::path>& files) const {
  if (files.empty()) return {};
  const std::filesystem::path aside = folder_ / "quarantine";
  std::error_code error;
  std::filesystem::create_directories(aside, error);
  for (const auto& file : files) {
    std::filesystem::path place = aside / file.filename();
    for (int n = 1; !error && std::filesystem::exists(place, error); ++n)
      place = aside / fmt::format("{}.{}", file.filename().string(), n);
    if (!error) std::filesystem::rename(file, place, error);
    if (error) return errorf(ErrorCode::kIo, "{}: {}", file.string(), error.message());
  }
  log().error(
      "{}: {} files that penstock.db does not know, {} among them, were moved to {}: they are what "
      "a killed process had not finished, or the database is not the one that they were kept with",
      folder_.string(), files.size(), files.front().filename().string(), aside.string());
  return {};
}

Status Store::read_salt() {
  RETURN_IF_ERROR(
      database_->run("INSERT OR IGNORE INTO settings VALUES ('owner_salt', hex(randomblob(16)))"));
  return database_->run("SELECT value FROM settings WHERE name = 'owner_salt'", {},
                        [&](const DatabaseRow& row) { salt_ = row.text(0); });
}

std::string Store::owner_of(std::string_view key) const {
  if (key.empty()) return {};
  return sha256_hex(salt_ + std::string(key));
}

}  // namespace penstock
