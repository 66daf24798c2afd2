// A connection to one MCP server, independent of the transport.
#pragma once
#include <chrono>
#include <functional>
#include <memory>
#include <stop_token>
#include <string>
#include <string_view>

#include "base/result.h"
#include "server/mcp/json_rpc.h"
#include "server/mcp/mcp_config.h"

namespace penstock {

// How long a caller waits.
struct McpWait {
  std::chrono::steady_clock::time_point deadline;
  // stops when the client leaves or this server stops
  std::stop_token stop;
};

// Callbacks of a connection, called on any thread.
struct McpNotices {
  std::function<void(std::string_view line)> log;
  std::function<void()> tools_changed;
};

// Thread-safe; several requests may be in flight.
class McpConnection {
 public:
  virtual ~McpConnection() = default;
  // Sends a request and waits for its result; if the wait ends early, the other side is notified.
  // Errors: kUnsupported (an error of the other side), kIo (the connection is lost, or the message
  // is invalid), kDeadlineExceeded, kCancelled, kNotFound (HTTP: the session has expired).
  virtual Result<McpJson> request(std::string_view method, const McpJson& params,
                                  const McpWait& wait) = 0;
  virtual Status notify(std::string_view method, const McpJson& params, const McpWait& wait) = 0;
  // false: the connection is permanently lost.
  virtual bool alive() const = 0;
  // Starts to close without waiting. The destructor finishes within two seconds.
  virtual void leave() = 0;
};

inline tl::unexpected<Error> no_answer_in_time(std::string_view method, const McpWait& wait) {
  if (wait.stop.stop_requested()) return errorf(ErrorCode::kCancelled, "{}: cancelled", method);
  return errorf(ErrorCode::kDeadlineExceeded, "{}: no answer in time", method);
}

}  // namespace penstock
