#include "server/store/database.h"

#include <fcntl.h>
#include <sqlite3.h>
#include <unistd.h>

#include "base/regular_file.h"

namespace penstock {
namespace {

// another process (the sqlite3 shell) may lock the file
constexpr int kBusyMilliseconds = 5000;
constexpr int64_t kApplicationId = 0x50535430;  // "PST0", in the file header

ErrorCode code_of(int sqlite_code) {
  switch (sqlite_code & 0xff) {
    case SQLITE_CORRUPT:
    case SQLITE_NOTADB: return ErrorCode::kCorruptFile;
    case SQLITE_FULL:
    case SQLITE_IOERR:
    case SQLITE_CANTOPEN:
    case SQLITE_READONLY:
    case SQLITE_BUSY:
    case SQLITE_LOCKED:
    case SQLITE_PERM: return ErrorCode::kIo;
    default: return ErrorCode::kInternal;
  }
}

// Whether the disk has no space, or none for this process.
bool is_full(int extended_code) {
  return extended_code == SQLITE_FULL || extended_code == SQLITE_IOERR_WRITE ||
         extended_code == SQLITE_IOERR_SHMSIZE;
}

struct Finalize {
  void operator()(sqlite3_stmt* statement) const { sqlite3_finalize(statement); }
};

int bind_value(sqlite3_stmt* statement, int index, const Database::Value& value) {
  if (const auto* number = std::get_if<int64_t>(&value))
    return sqlite3_bind_int64(statement, index, *number);
  if (const auto* blob = std::get_if<Database::Bytes>(&value)) {
    return sqlite3_bind_blob64(statement, index, blob->bytes.empty() ? "" : blob->bytes.data(),
                               blob->bytes.size(), SQLITE_STATIC);
  }
  const auto text = std::get<std::string_view>(value);
  // An empty text must have a non-null pointer, since null means NULL. REQUIRES: the text outlives
  // the statement.
  return sqlite3_bind_text64(statement, index, text.empty() ? "" : text.data(), text.size(),
                             SQLITE_STATIC, SQLITE_UTF8);
}

}  // namespace

int64_t DatabaseRow::integer(int column) const { return sqlite3_column_int64(statement_, column); }

std::string DatabaseRow::text(int column) const {
  const auto* bytes = reinterpret_cast<const char*>(sqlite3_column_text(statement_, column));
  return bytes == nullptr
             ? std::string()
             : std::string(bytes, static_cast<size_t>(sqlite3_column_bytes(statement_, column)));
}

std::string DatabaseRow::bytes(int column) const {
  const auto* bytes = static_cast<const char*>(sqlite3_column_blob(statement_, column));
  return bytes == nullptr
             ? std::string()
             : std::string(bytes, static_cast<size_t>(sqlite3_column_bytes(statement_, column)));
}

Result<std::unique_ptr<Database>> Database::open(const std::filesystem::path& path,
                                                 std::span<const char* const> schema,
                                                 int64_t reserve) {
  std::unique_ptr<Database> database(new Database(path));
  database->reserve_ = reserve;
  database->release_reserve();
  RETURN_IF_ERROR(database->connect(true));
  RETURN_IF_ERROR(database->check());
  RETURN_IF_ERROR(database->upgrade(schema));
  database->fill_reserve();
  return database;
}

Result<std::unique_ptr<Database>> Database::open_existing(const std::filesystem::path& path,
                                                          int64_t version) {
  std::error_code none;
  if (!std::filesystem::exists(path, none))
    return errorf(ErrorCode::kNotFound, "{}: there is no store", path.string());
  std::unique_ptr<Database> database(new Database(path));
  RETURN_IF_ERROR(database->connect(false));
  RETURN_IF_ERROR(database->check());
  ASSIGN_OR_RETURN(const int64_t found, database->number("PRAGMA user_version"));
  if (found == version) return database;
  return errorf(ErrorCode::kUnsupported, "{}: expected a store of version {}, got {}{}",
                path.string(), version, found,
                found < version ? ": a server that uses it brings it up" : "");
}

Database::~Database() { sqlite3_close(database_); }

Status Database::connect(bool may_create) {
  if (const Status file = check_regular_file(path_);
      !file && file.error().code != ErrorCode::kNotFound)
    return file;
  const int flags =
      SQLITE_OPEN_READWRITE | SQLITE_OPEN_FULLMUTEX | (may_create ? SQLITE_OPEN_CREATE : 0);
  const int code = sqlite3_open_v2(path_.c_str(), &database_, flags, nullptr);
  if (code != SQLITE_OK) return failure(code, "open");
  sqlite3_busy_timeout(database_, kBusyMilliseconds);
  return {};
}

// Checks that the file belongs to this program and is undamaged, before anything is written.
Status Database::check() {
  ASSIGN_OR_RETURN(const int64_t application, number("PRAGMA application_id"));
  ASSIGN_OR_RETURN(const int64_t tables, number("SELECT count(*) FROM sqlite_master"));
  if (application != kApplicationId && (application != 0 || tables != 0)) {
    return errorf(ErrorCode::kCorruptFile, "{}: a SQLite database of another program",
                  path_.string());
  }
  std::string found;
  RETURN_IF_ERROR(
      run("PRAGMA quick_check(1)", {}, [&](const DatabaseRow& row) { found = row.text(0); }));
  if (found == "ok") return {};
  return errorf(ErrorCode::kCorruptFile, "{}: the database is damaged: {}", path_.string(), found);
}

Status Database::upgrade(std::span<const char* const> schema) {
  ASSIGN_OR_RETURN(const int64_t version, number("PRAGMA user_version"));
  const auto known = static_cast<int64_t>(schema.size());
  if (version < 0 || version > known) {
    return errorf(ErrorCode::kUnsupported,
                  "{}: expected a store of version {} or older, got {}: a newer Penstock wrote it",
                  path_.string(), known, version);
  }
  RETURN_IF_ERROR(script("PRAGMA journal_mode = WAL"));
  RETURN_IF_ERROR(script("PRAGMA synchronous = FULL"));
  RETURN_IF_ERROR(script("PRAGMA foreign_keys = ON"));
  if (version == known) return {};
  return transact([&]() -> Status {
    for (int64_t step = version; step < known; ++step) {
      RETURN_IF_ERROR(script(schema[static_cast<size_t>(step)]));
    }
    RETURN_IF_ERROR(script(fmt::format("PRAGMA application_id = {}", kApplicationId).c_str()));
    return script(fmt::format("PRAGMA user_version = {}", known).c_str());
  });
}

Result<int64_t> Database::number(const char* sql) {
  int64_t value = 0;
  RETURN_IF_ERROR(run(sql, {}, [&](const DatabaseRow& row) { value = row.integer(0); }));
  return value;
}

Status Database::script(const char* sql) {
  const std::scoped_lock lock(mutex_);
  const int code = sqlite3_exec(database_, sql, nullptr, nullptr, nullptr);
  if (code != SQLITE_OK) return failure(code, sql);
  return {};
}

Status Database::run(const char* sql, std::initializer_list<Value> values, const OnRow& on_row) {
  const std::scoped_lock lock(mutex_);
  sqlite3_stmt* made = nullptr;
  int code = sqlite3_prepare_v2(database_, sql, -1, &made, nullptr);
  const std::unique_ptr<sqlite3_stmt, Finalize> statement(made);
  int index = 0;
  for (const Value& value : values) {
    if (code == SQLITE_OK) code = bind_value(made, ++index, value);
  }
  if (code != SQLITE_OK) return failure(code, sql);
  while ((code = sqlite3_step(made)) == SQLITE_ROW) {
    if (on_row) on_row(DatabaseRow(made));
  }
  if (code != SQLITE_DONE) return failure(code, sql);
  return {};
}

Status Database::transact(const std::function<Status()>& work) {
  const std::scoped_lock lock(mutex_);
  RETURN_IF_ERROR(script("BEGIN IMMEDIATE"));
  Status done = work();
  if (done) done = script("COMMIT");
  // SQLite may have rolled back already (disk full).
  if (!done && sqlite3_get_autocommit(database_) == 0) {
    sqlite3_exec(database_, "ROLLBACK", nullptr, nullptr, nullptr);
  }
  return done;
}

void Database::release_reserve() const {
  if (reserve_ > 0) ::unlink(reserve_path().c_str());
}

void Database::fill_reserve() {
  constexpr int64_t kLeast = 64 << 10;
  if (reserve_ < kLeast) return;
  reserve_is_short_ = true;
  const FileDescriptor file(::open(reserve_path().c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0600));
  if (file.number() < 0) return;
  for (int64_t bytes = reserve_; bytes >= kLeast; bytes /= 2) {
    if (posix_fallocate(file.number(), 0, bytes) != 0) continue;
    reserve_is_short_ = bytes < reserve_;
    return;
  }
}

Status Database::transact_removal(const std::function<Status()>& work) {
  const std::scoped_lock lock(mutex_);
  full_ = false;
  Status done = transact(work);
  if (done && reserve_is_short_) fill_reserve();
  if (done || !full_ || reserve_ == 0) return done;
  release_reserve();
  done = transact(work);
  // Writes the log's pages back to the database, so that the log begins anew in the same space.
  (void)script("PRAGMA wal_checkpoint(PASSIVE)");
  fill_reserve();
  return done;
}

tl::unexpected<Error> Database::failure(int code, const char* sql) {
  full_ = is_full(database_ == nullptr ? code : sqlite3_extended_errcode(database_));
  const char* reason = database_ == nullptr ? sqlite3_errstr(code) : sqlite3_errmsg(database_);
  if (code_of(code) == ErrorCode::kInternal) {
    return errorf(ErrorCode::kInternal, "{}: {} ({})", path_.string(), reason, sql);
  }
  return errorf(code_of(code), "{}: {}", path_.string(), reason);
}

}  // namespace penstock
