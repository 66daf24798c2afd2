// The data directory of a server: a database (penstock.db), contents of files (files/), files
// without a database row (quarantine/) and a lock file that admits one process at a time.
#pragma once
#include <filesystem>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "server/store/database.h"

namespace penstock {

// Thread-safe.
class Store {
 public:
  // Creates the folder if it is missing. Errors: kIo (also when another process uses the folder),
  // those of Database::open.
  static Result<std::unique_ptr<Store>> open(const std::filesystem::path& folder);
  ~Store();
  // Opens the database for reading while another process holds the folder. Errors: kNotFound, those
  // of Database::open_existing.
  static Result<std::unique_ptr<Database>> open_database(const std::filesystem::path& folder);

  Database& database() { return *database_; }
  const std::filesystem::path& folder() const { return folder_; }
  // Returns the owner id of an API key's data: a salted hash of the key, the same in every run; ""
  // for an empty key.
  std::string owner_of(std::string_view key) const;
  // Moves files without a database row to folder()/quarantine and logs that. They are not deleted,
  // since it may be the database that is missing. Errors: kIo.
  Status put_aside(const std::vector<std::filesystem::path>& files) const;

 private:
  explicit Store(std::filesystem::path folder) : folder_(std::move(folder)) {}
  Status lock();
  Status keep_log_of_missing_database() const;
  Status read_salt();

  std::filesystem::path folder_;
  int lock_ = -1;  // file descriptor of the lock file
  std::unique_ptr<Database> database_;
  std::string salt_;
};

}  // namespace penstock
