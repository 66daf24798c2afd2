// A connection to one MCP server, whatever carries its messages.
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

// How long somebody waits.
struct McpWait {
  std::chrono::steady_clock::time_point deadline;
  // The client has left, or this server stops.
  std::stop_token stop;
};

// What a connection tells its owner, on whichever thread.
struct McpNotices {
  std::function<void(std::string_view line)> log;
  std::function<void()> tools_changed;
};

// Any thread; requests of several threads are under way together.
class McpConnection {
 public:
  virtual ~McpConnection() = default;
  // Sends a request and waits for its result; where nobody waits any more the other side is told.
  // Errors: kUnsupported (the other side's own), kIo (the connection is lost, or what came is no
  // answer), kDeadlineExceeded, kCancelled, kNotFound (HTTP: the session is over).
  virtual Result<McpJson> request(std::string_view method, const McpJson& params,
                                  const McpWait& wait) = 0;
  virtual Status notify(std::string_view method, const McpJson& params, const McpWait& wait) = 0;
  // False: it is lost and stays so.
  virtual bool alive() const = 0;
  // Begins to close it, without waiting. The destructor ends it, within two seconds.
  virtual void leave() = 0;
};

inline tl::unexpected<Error> no_answer_in_time(std::string_view method, const McpWait& wait) {
  if (wait.stop.stop_requested()) return errorf(ErrorCode::kCancelled, "{}: cancelled", method);
  return errorf(ErrorCode::kDeadlineExceeded, "{}: no answer in time", method);
}

}  // namespace penstock
