// The audit trail of administrative acts, written in the order of their replies.
#pragma once
#include <deque>
#include <mutex>
#include <string_view>

#include "server/http/exchange.h"
#include "server/keys/ledger/api_keys.h"
#include "server/store/audit.h"

namespace penstock {

class RequestLog;

// Thread-safe. An act is recorded before its reply is sent and written afterwards, so that an act
// which a client performs after another's reply has the higher number.
class AuditTrail {
 public:
  // Starts recording to `entries`; write errors go to `log`. Without this call nothing is recorded.
  // REQUIRES: both outlive this object.
  void open(AuditLog* entries, RequestLog* log);

  // Records the request when its reply is sent.
  void note_at_reply(Exchange& exchange);
  // Records that a key was added, changed or revoked in the key file. Blocks on the disk.
  void note_key(std::string_view act, const ApiKeyRecord& record);
  // Writes the entries. Also records an act without a reply, whose client has left. Blocks on the
  // disk.
  void write(Exchange& exchange);
  // whether acts are recorded
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
