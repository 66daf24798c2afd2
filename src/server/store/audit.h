// The audit log: a database row for each administrative act.
#pragma once
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "server/store/store.h"

namespace penstock {

struct AuditEntry {
  int64_t number = 0;  // number of the entry, ascending
  int64_t time = 0;    // unix time, seconds
  // id of the acting API key; "": the server has no keys
  std::string key;
  std::string peer;   // address of the client
  std::string act;    // "POST /v1/models/load", "key added"
  std::string about;  // object of the act, as the client named it
  // HTTP status of the reply; 0: the act was no request
  int status = 0;
};

// Errors: those of the database.
Result<std::vector<AuditEntry>> read_audit(Database& database, int64_t before, int64_t limit);

// Thread-safe.
class AuditLog {
 public:
  static constexpr int64_t kMostEntries = 100000;  // the oldest entries are removed
  // maximum bytes of `about`; the rest is cut off
  static constexpr size_t kLongestAbout = 2048;

  explicit AuditLog(std::shared_ptr<Store> store) : store_(std::move(store)) {}

  // Adds an entry, which is on disk when it returns. Sets the entry's number and time.
  Status add(AuditEntry entry);
  // Returns at most `limit` entries with a number below `before`, newest first.
  Result<std::vector<AuditEntry>> list(int64_t before, int64_t limit) {
    return read_audit(store_->database(), before, limit);
  }

 private:
  std::shared_ptr<Store> store_;
};

}  // namespace penstock
