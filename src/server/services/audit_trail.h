// What administrators did: noted in the order of the replies, written to the audit log behind them.
#pragma once
#include <deque>
#include <mutex>
#include <string_view>

#include "server/http/exchange.h"
#include "server/keys/ledger/api_keys.h"
#include "server/store/audit.h"

namespace penstock {

class RequestLog;

// Thread-safe. An act is noted before its reply is sent and written after it, so an act that a
// client does upon the reply to another has the later number whatever threads do.
class AuditTrail {
 public:
  // What is noted goes to `entries`; errors of writing go to `log`. Both outlive it. Without this,
  // nothing is noted.
  void open(AuditLog* entries, RequestLog* log);

  // Notes the request of `exchange` when its reply is sent.
  void note_at_reply(Exchange& exchange);
  // A key was added, changed or revoked in its file. Blocks on the disk.
  void note_key(std::string_view act, const ApiKeyRecord& record);
  // Notes what note_at_reply() left for want of a reply, to a client that left: the act is done.
  // Blocks on the disk.
  void write(Exchange& exchange);
  // Whether anything is noted.
  bool is_kept() const { return entries_ != nullptr; }

 private:
  void note(AuditEntry entry);
  void write();

  AuditLog* entries_ = nullptr;
  RequestLog* log_ = nullptr;
  std::mutex mutex_, writing_;
  std::deque<AuditEntry> waiting_;
};

}  // namespace penstock
