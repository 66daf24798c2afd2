// A SQLite database in one file (https://sqlite.org): statements, transactions, schema version.
//
// The journal is a write-ahead log and every commit is synced: committed changes survive SIGKILL
// and a power failure.
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

// One row of a result; valid only during the callback.
class DatabaseRow {
 public:
  explicit DatabaseRow(sqlite3_stmt* statement) : statement_(statement) {}
  int64_t integer(int column) const;
  std::string text(int column) const;
  std::string bytes(int column) const;  // value of a BLOB column

 private:
  sqlite3_stmt* statement_;
};

// Thread-safe; statements and transactions are serialized.
class Database {
 public:
  struct Bytes {  // value for a BLOB column
    std::string_view bytes;
  };
  using Value = std::variant<int64_t, std::string_view, Bytes>;
  using OnRow = std::function<void(const DatabaseRow&)>;

  // Opens or creates the database and upgrades it to version schema.size(): schema[i] is the SQL
  // that upgrades version i to i + 1. Errors: kIo (cannot be opened or written), kCorruptFile (not
  // a database, damaged, or of another program), kUnsupported (a newer version).
  // reserve: bytes of a file beside the database, whose space transact_removal() and open() use on
  // a full disk, since deleting a row takes space in the write-ahead log; less is kept where the
  // disk has less.
  static Result<std::unique_ptr<Database>> open(const std::filesystem::path& path,
                                                std::span<const char* const> schema,
                                                int64_t reserve = 0);
  // Opens an existing database of this version. Errors: kNotFound; those of open().
  static Result<std::unique_ptr<Database>> open_existing(const std::filesystem::path& path,
                                                         int64_t version);
  ~Database();

  // Runs one statement with its parameters ?1, ?2, …; calls on_row for each row. Errors: kIo (disk
  // full, …), kCorruptFile, kInternal.
  Status run(const char* sql, std::initializer_list<Value> values = {}, const OnRow& on_row = {});
  // Runs `work` in a transaction, which is rolled back when `work` returns an error. Transactions
  // do not nest.
  Status transact(const std::function<Status()>& work);
  // As transact(), for work that removes: on a full disk it is done once more with the space of the
  // reserve. `work` may then run twice.
  Status transact_removal(const std::function<Status()>& work);

 private:
  explicit Database(std::filesystem::path path) : path_(std::move(path)) {}
  Status connect(bool may_create);
  Status check();
  Status upgrade(std::span<const char* const> schema);
  Result<int64_t> number(const char* sql);
  Status script(const char* sql);
  tl::unexpected<Error> failure(int code, const char* sql);
  void release_reserve() const;
  void fill_reserve();
  std::string reserve_path() const { return path_.string() + "-reserve"; }

  std::filesystem::path path_;
  int64_t reserve_ = 0;            // bytes
  bool reserve_is_short_ = false;  // the disk had no room for all of them
  sqlite3* database_ = nullptr;
  bool full_ = false;  // whether the last failure was for want of space
  std::recursive_mutex mutex_;
};

}  // namespace penstock
