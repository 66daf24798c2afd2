#include "server/mcp/http_connection.h"

#include <algorithm>
#include <optional>

#include "frontend/json_fields.h"
#include "server/mcp/http_transfer.h"

namespace penstock {
namespace {

using Steady = std::chrono::steady_clock;

constexpr std::chrono::seconds kToSay(2);  // timeout of messages without an answer
constexpr int kMostAnswers = 16;           // answers to server requests in one stream

}  // namespace

McpHttpConnection::~McpHttpConnection() {
  if (session_.id.empty() || over_) return;
  constexpr std::chrono::milliseconds kToLeave(1000);
  try {
    HttpTransfer(config_, session_.id, session_.version).remove(kToLeave);
  } catch (const std::bad_alloc&) {  // the session ends by its own time
  }
}

McpHttpConnection::Session McpHttpConnection::session() const {
  const std::lock_guard lock(mutex_);
  return session_;
}

Status McpHttpConnection::post(const std::string& body, const McpWait& wait,
                               std::function<bool(std::string_view)> take) {
  const Session session = this->session();
  HttpTransfer transfer(config_, session.id, session.version);
  const Status posted = transfer.post(body, wait, std::move(take));
  if (!posted) {
    if (posted.error().code == ErrorCode::kNotFound && !session.id.empty()) over_ = true;
    return posted;
  }
  if (session.id.empty() && !transfer.new_session().empty()) {
    const std::lock_guard lock(mutex_);
    session_.id = transfer.new_session();
  }
  return {};
}

// Sent beside the stream, whose other side may wait for the answer. wait: of the stream.
void McpHttpConnection::answer(const McpJson& request, const McpWait& wait) {
  (void)post(rpc_answer(request), {std::min(wait.deadline, Steady::now() + kToSay), wait.stop},
             [](std::string_view) { return false; });
}

Result<McpJson> McpHttpConnection::request(std::string_view method, const McpJson& params,
                                           const McpWait& wait) {
  const int64_t id = next_id_++;
  std::optional<Result<McpJson>> outcome;
  int n_answers = 0;
  const Status posted = post(rpc_request(id, method, params), wait, [&](std::string_view text) {
    const auto received = read_rpc(text);
    if (received.is_discarded()) {  // the answer has no other messages than this request's
      outcome = unreadable_rpc();
      return false;
    }
    return for_each_rpc(received, [&](const McpJson& message) {
      if (!message.is_object()) return true;
      if (is_rpc_request(message) && ++n_answers <= kMostAnswers) answer(message, wait);
      if (message.value("method", McpJson()) == "notifications/tools/list_changed")
        notices_.tools_changed();
      const bool is_answer = is_rpc_response(message) && rpc_id(message) == id;
      if (!is_answer && !is_rpc_error_without_id(message)) return true;
      outcome = rpc_outcome(message);
      return false;
    });
  });
  if (!posted) {
    const ErrorCode code = posted.error().code;
    const bool gave_up = code == ErrorCode::kCancelled || code == ErrorCode::kDeadlineExceeded;
    if (gave_up && method != "initialize") {
      (void)notify("notifications/cancelled",
                   {{"requestId", id}, {"reason", "nobody waits for it"}},
                   {Steady::now() + kToSay, {}});
    }
    return errorf(code, "{}: {}", method, posted.error().message);
  }
  if (!outcome) return errorf(ErrorCode::kIo, "{}: the answer has no response to it", method);
  if (*outcome && method == "initialize") {
    const std::lock_guard lock(mutex_);
    session_.version = get_string(**outcome, "protocolVersion");
  }
  return *std::move(outcome);
}

Status McpHttpConnection::notify(std::string_view method, const McpJson& params,
                                 const McpWait& wait) {
  return post(rpc_notification(method, params), wait, [](std::string_view) { return false; });
}

}  // namespace penstock
