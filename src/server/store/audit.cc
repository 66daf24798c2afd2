#include "server/store/audit.h"

#include <ctime>

namespace penstock {

Result<std::vector<AuditEntry>> read_audit(Database& database, int64_t before, int64_t limit) {
  std::vector<AuditEntry> found;
  RETURN_IF_ERROR(database.run(
      "SELECT number, time, key, peer, act, about, status FROM audit WHERE number < ?1 ORDER BY "
      "number DESC LIMIT ?2",
      {before, limit}, [&](const DatabaseRow& row) {
        found.push_back({row.integer(0), row.integer(1), row.text(2), row.text(3), row.text(4),
                         row.text(5), static_cast<int>(row.integer(6))});
      }));
  return found;
}

Status AuditLog::add(AuditEntry entry) {
  if (entry.about.size() > kLongestAbout) {
    size_t end = kLongestAbout;
    while (end > 0 && (entry.about[end] & 0xc0) == 0x80) --end;  // cut at a character boundary
    entry.about.resize(end);
    entry.about += "...";
  }
  Database& database = store_->database();
  return database.transact([&]() -> Status {
    RETURN_IF_ERROR(database.run(
        "INSERT INTO audit (time, key, peer, act, about, status) VALUES (?1, ?2, ?3, ?4, ?5, ?6)",
        {int64_t{std::time(nullptr)}, entry.key, entry.peer, entry.act, entry.about,
         int64_t{entry.status}}));
    return database.run("DELETE FROM audit WHERE number <= (SELECT max(number) FROM audit) - ?1",
                        {kMostEntries});
  });
}

}  // namespace penstock
