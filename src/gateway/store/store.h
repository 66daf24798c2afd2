// What a server keeps between runs: a folder with a database (penstock.db), the contents of files (files/), what was found
// and belongs to nobody (quarantine/) and a lock, which one process has at a time.
#pragma once
#include <filesystem>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

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
  // Moves files that the database does not know into folder()/quarantine, and logs that: nothing is deleted for want of a
  // row, since it is the database that may be missing. Errors: kIo.
  Status put_aside(const std::vector<std::filesystem::path>& files) const;

 private:
  explicit Store(std::filesystem::path folder) : folder_(std::move(folder)) {}
  Status lock();
  Status keep_log_of_missing_database() const;
  Status read_salt();

  std::filesystem::path folder_;
  int lock_ = -1;  // descriptor
  std::unique_ptr<Database> database_;
  std::string salt_;
};

}  // namespace penstock
