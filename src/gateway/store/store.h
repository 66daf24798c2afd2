// What a server keeps between runs: a folder with a database (penstock.db), the contents of files (files/) and a lock,
// which one process has at a time.
#pragma once
#include <filesystem>
#include <memory>
#include <string>
#include <string_view>

#include "base/result.h"
#include "gateway/store/database.h"

namespace penstock {

// Any thread.
class Store {
 public:
  // Makes the folder when it is not there. Errors: kIo (also: another process uses it), those of Database::open.
  static Result<std::unique_ptr<Store>> open(const std::filesystem::path& folder);
  ~Store();
  // To read the database beside the process that has the folder. Errors: kNotFound, those of Database::open_existing.
  static Result<std::unique_ptr<Database>> open_database(const std::filesystem::path& folder);

  Database& database() { return *database_; }
  const std::filesystem::path& folder() const { return folder_; }
  // Whose things those of an API key are: a salted hash of the key, the same in every run. "" without a key.
  std::string owner_of(std::string_view key) const;

 private:
  explicit Store(std::filesystem::path folder) : folder_(std::move(folder)) {}
  Status lock();
  Status read_salt();

  std::filesystem::path folder_;
  int lock_ = -1;  // descriptor
  std::unique_ptr<Database> database_;
  std::string salt_;
};

}  // namespace penstock
