// Who changed what of the server: a row of the database for each act.
#pragma once
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "gateway/store/store.h"

namespace penstock {

struct AuditEntry {
  int64_t number = 0;  // they count up
  int64_t time = 0;    // unix time, seconds
  std::string key;     // id of the API key that did it; "" where there are none
  std::string peer;    // address of the client
  std::string act;     // "POST /v1/models/load", "key added"
  std::string about;   // what it was done to, as it was said
  int status = 0;      // of the reply; 0: it was no request
};

// Error: of the database.
Result<std::vector<AuditEntry>> read_audit(Database& database, int64_t before, int64_t limit);

// Any thread.
class AuditLog {
 public:
  static constexpr int64_t kMostEntries = 100000;  // the oldest go
  static constexpr size_t kLongestAbout = 2048;    // bytes; more is cut

  explicit AuditLog(std::shared_ptr<Store> store) : store_(std::move(store)) {}

  // On the disk when it returns. Its number and time are made here.
  Status add(AuditEntry entry);
  // At most `limit` with a number below `before`, newest first.
  Result<std::vector<AuditEntry>> list(int64_t before, int64_t limit) {
    return read_audit(store_->database(), before, limit);
  }

 private:
  std::shared_ptr<Store> store_;
};

}  // namespace penstock
