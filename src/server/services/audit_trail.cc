#include "server/services/audit_trail.h"

#include <fmt/format.h>

#include <utility>

#include "server/services/request_log.h"
#include "server/services/request_record.h"

namespace penstock {

void AuditTrail::open(AuditLog* entries, RequestLog* log) {
  entries_ = entries;
  log_ = log;
}

void AuditTrail::note(AuditEntry entry) {
  const std::lock_guard lock(mutex_);
  waiting_.push_back(std::move(entry));
}

void AuditTrail::note_at_reply(Exchange& exchange) {
  if (!is_kept()) return;
  exchange.before_reply = [this, &request = exchange.request()](int status) {
    note({0, 0, record_of(request).payer, request.peer, request.method + " " + request.path,
          request.body, status});
  };
}

void AuditTrail::note_key(std::string_view act, const ApiKeyRecord& record) {
  if (!is_kept()) return;
  const std::string about =
      fmt::format("{} \"{}\" with {}", record.id, record.name, scope_names(record.scopes));
  note({0, 0, "", "", std::string(act), about, 0});
  write();
}

void AuditTrail::write(Exchange& exchange) {
  if (!is_kept()) return;
  if (exchange.before_reply) std::exchange(exchange.before_reply, nullptr)(exchange.status());
  write();
}

void AuditTrail::write() {
  const std::lock_guard in_order(writing_);
  for (;;) {
    AuditEntry entry;
    {
      const std::lock_guard lock(mutex_);
      if (waiting_.empty()) return;
      entry = std::move(waiting_.front());
      waiting_.pop_front();
    }
    if (const Status kept = entries_->add(std::move(entry)); !kept)
      log_->error("the audit log cannot be written: " + kept.error().message);
  }
}

}  // namespace penstock
