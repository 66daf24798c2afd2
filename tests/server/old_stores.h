// Stores as older versions made them.
#pragma once
#include <gtest/gtest.h>
#include <sqlite3.h>

#include <filesystem>
#include <string>

namespace penstock {

inline constexpr const char* kStoreVersion1 =
    "CREATE TABLE settings (name TEXT PRIMARY KEY, value TEXT NOT NULL);CREATE TABLE files (number "
    "INTEGER PRIMARY KEY AUTOINCREMENT, id TEXT NOT NULL UNIQUE, owner TEXT NOT NULL, name TEXT "
    "NOT NULL, purpose TEXT NOT NULL, bytes INTEGER NOT NULL, created INTEGER NOT NULL);CREATE "
    "INDEX files_of_owner ON files (owner, number);PRAGMA application_id = 1347638320; PRAGMA "
    "user_version = 1;";
inline constexpr const char* kStoreVersion2 =
    "CREATE TABLE batches (number INTEGER PRIMARY KEY AUTOINCREMENT, id TEXT NOT NULL UNIQUE, "
    "owner TEXT NOT NULL, key TEXT NOT NULL, endpoint TEXT NOT NULL, input_file TEXT NOT NULL, "
    "window TEXT NOT NULL, metadata TEXT NOT NULL, errors TEXT NOT NULL DEFAULT '', output_file "
    "TEXT NOT NULL DEFAULT '', error_file TEXT NOT NULL DEFAULT '', status INTEGER NOT NULL "
    "DEFAULT 0, ended INTEGER NOT NULL DEFAULT 0, created INTEGER NOT NULL, expires INTEGER NOT "
    "NULL, since TEXT NOT NULL DEFAULT '[]', total INTEGER NOT NULL DEFAULT 0, completed INTEGER "
    "NOT NULL DEFAULT 0, failed INTEGER NOT NULL DEFAULT 0);CREATE INDEX batches_of_owner ON "
    "batches (owner, number);CREATE INDEX unfinished_batches ON batches (ended) WHERE ended = "
    "0;PRAGMA user_version = 2;";

// Runs SQL on the database of a folder, which is made when it is not there. Returns the first value
// of the last row.
inline std::string sql_on(const std::filesystem::path& folder, const std::string& sql) {
  std::filesystem::create_directories(folder / "files");
  std::string value;
  sqlite3* database = nullptr;
  EXPECT_EQ(sqlite3_open((folder / "penstock.db").c_str(), &database), SQLITE_OK);
  const auto take = [](void* to, int, char** values, char**) {
    *static_cast<std::string*>(to) = values[0] == nullptr ? "" : values[0];
    return 0;
  };
  EXPECT_EQ(sqlite3_exec(database, sql.c_str(), take, &value, nullptr), SQLITE_OK)
      << sqlite3_errmsg(database);
  sqlite3_close(database);
  return value;
}

}  // namespace penstock
