// One configured MCP server, connected on demand and reconnected after a loss.
#pragma once
#include <functional>
#include <memory>
#include <mutex>
#include <stop_token>
#include <string>
#include <string_view>
#include <vector>

#include "server/mcp/connection.h"
#include "server/mcp/tool_result.h"

namespace penstock {

struct McpTool {
  std::string name;
  // as clients and templates see it: {name, description, input_schema, annotations}
  McpJson listed;
  bool read_only = false;  // annotated as read-only by the server
};
using McpTools = std::shared_ptr<const std::vector<McpTool>>;

// Thread-safe; methods with an McpWait block the caller.
class McpServer {
 public:
  McpServer(McpServerConfig config, std::function<void(std::string_view)> warn);
  // REQUIRES: no call is in progress.
  ~McpServer() { connection_.reset(); }
  McpServer(const McpServer&) = delete;
  McpServer& operator=(const McpServer&) = delete;

  const McpServerConfig& config() const { return config_; }
  // Returns the tools that the operator allows. The list is refreshed after some minutes and when
  // the server reports a change. Errors: those of connecting and of the server, kUnsupported (more
  // than kMostMcpTools tools).
  Result<McpTools> tools(const McpWait& wait);
  // null: tools() must be called first
  McpTools known_tools() const;
  // arguments: a JSON object. Errors: those of connecting and of the server.
  Result<McpResult> call(const std::string& tool, const McpJson& arguments, const McpWait& wait);

  // Starts to disconnect without waiting, and prevents reconnection.
  void leave();

 private:
  using Time = std::chrono::steady_clock::time_point;
  using Connection = std::shared_ptr<McpConnection>;

  Result<Connection> connect(const McpWait& wait);
  Result<Connection> open();
  Result<Connection> open_now();
  Status greet(McpConnection& connection);
  // Retries once if the session had expired before the request.
  Result<McpJson> request(std::string_view method, const McpJson& params, const McpWait& wait);
  Result<McpTools> list(const McpWait& wait);
  McpWait bounded(const McpWait& wait) const;
  static Status check_time(std::string_view method, const McpWait& wait);
  void note_failure(const std::string& why);
  void forget_tools();
  int64_t n_changes() const;

  const McpServerConfig config_;
  const std::function<void(std::string_view)> warn_;
  // held while connecting
  std::timed_mutex connecting_;
  mutable std::mutex mutex_;
  Connection connection_;
  McpTools tools_;
  int64_t n_changes_ = 0;  // number of times the tools were invalidated
  Time listed_{}, connected_{}, next_try_{};
  int n_failures_ = 0;  // consecutive failures
  std::string last_failure_;
  std::stop_source leaving_;
};

}  // namespace penstock
