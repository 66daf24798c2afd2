// What administrators did, in the order of the replies, until it is in the audit log.
#pragma once
#include <deque>
#include <mutex>
#include <utility>

#include "gateway/store/audit.h"

namespace penstock {

// Thread-safe. An act is noted before its reply is sent and written after it, so an act that a client does upon the reply to another
// has the later number whatever threads do.
class AuditTrail {
 public:
  void note(AuditEntry entry) {
    const std::lock_guard lock(mutex_);
    waiting_.push_back(std::move(entry));
  }

  // Adds every act noted so far to `log`. Blocks on the disk. Error: of the log; the act at fault is dropped.
  Status write(AuditLog& log) {
    const std::lock_guard in_order(writing_);
    for (;;) {
      AuditEntry entry;
      {
        const std::lock_guard lock(mutex_);
        if (waiting_.empty()) return {};
        entry = std::move(waiting_.front());
        waiting_.pop_front();
      }
      RETURN_IF_ERROR(log.add(std::move(entry)));
    }
  }

 private:
  std::mutex mutex_, writing_;
  std::deque<AuditEntry> waiting_;
};

}  // namespace penstock
