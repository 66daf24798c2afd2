// A SQLite database in one file (https://sqlite.org): statements, transactions, the version of its tables.
//
// The journal is a write-ahead log and every commit is synced: what was committed survives SIGKILL and a power cut.
#pragma once
#include <cstdint>
#include <filesystem>
#include <functional>
#include <initializer_list>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <string_view>
#include <variant>

#include "base/result.h"

struct sqlite3;
struct sqlite3_stmt;

namespace penstock {

// One row of a result, as long as the call it is given to.
class DatabaseRow {
 public:
  explicit DatabaseRow(sqlite3_stmt* statement) : statement_(statement) {}
  int64_t integer(int column) const;
  std::string text(int column) const;
  std::string bytes(int column) const;  // of a BLOB

 private:
  sqlite3_stmt* statement_;
};

// Any thread; one statement or transaction at a time.
class Database {
 public:
  struct Bytes {  // for a BLOB
    std::string_view bytes;
  };
  using Value = std::variant<int64_t, std::string_view, Bytes>;
  using OnRow = std::function<void(const DatabaseRow&)>;

  // Opens or creates it and brings it to version schema.size(): schema[i] is the SQL that leads from version i to i + 1.
  // Errors: kIo (cannot be opened or written), kCorruptFile (no database, a damaged one, one of another program),
  // kUnsupported (of a newer version).
  static Result<std::unique_ptr<Database>> open(const std::filesystem::path& path,
                                                std::span<const char* const> schema);
  // One that is there and has this version already. Errors: kNotFound; of open().
  static Result<std::unique_ptr<Database>> open_existing(const std::filesystem::path& path, int64_t version);
  ~Database();

  // One statement with its parameters ?1, ?2, … Errors: kIo (disk full, …), kCorruptFile, kInternal.
  Status run(const char* sql, std::initializer_list<Value> values = {}, const OnRow& on_row = {});
  // All of `work` happens, or, when it returns an error, nothing. Not inside another one.
  Status transact(const std::function<Status()>& work);

 private:
  explicit Database(std::filesystem::path path) : path_(std::move(path)) {}
  Status connect(bool may_create);
  Status check();
  Status upgrade(std::span<const char* const> schema);
  Result<int64_t> number(const char* sql);
  Status script(const char* sql);
  tl::unexpected<Error> failure(int code, const char* sql) const;

  std::filesystem::path path_;
  sqlite3* database_ = nullptr;
  std::recursive_mutex mutex_;
};

}  // namespace penstock
