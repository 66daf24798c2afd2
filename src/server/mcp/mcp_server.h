// One configured MCP server: started or reached when it is needed, and again when it was lost.
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
  // As clients and templates see it: {name, description, input_schema, annotations}.
  McpJson listed;
  bool read_only = false;  // the server says that it changes nothing
};
using McpTools = std::shared_ptr<const std::vector<McpTool>>;

// Any thread; what waits for the server blocks the caller.
class McpServer {
 public:
  McpServer(McpServerConfig config, std::function<void(std::string_view)> warn);
  // REQUIRES: nobody waits for it.
  ~McpServer() { connection_.reset(); }
  McpServer(const McpServer&) = delete;
  McpServer& operator=(const McpServer&) = delete;

  const McpServerConfig& config() const { return config_; }
  // The tools that the operator allows. They are asked for again after some minutes, and when the
  // server says that they have changed. Errors: of connecting, of the server, kUnsupported (more
  // tools than kMostMcpTools).
  Result<McpTools> tools(const McpWait& wait);
  // Null: they have to be asked for.
  McpTools known_tools() const;
  // arguments: an object. Errors: of connecting, of the server.
  Result<McpResult> call(const std::string& tool, const McpJson& arguments, const McpWait& wait);

  // Begins to end, without waiting; nothing is started any more.
  void leave();

 private:
  using Time = std::chrono::steady_clock::time_point;
  using Connection = std::shared_ptr<McpConnection>;

  Result<Connection> connect(const McpWait& wait);
  Result<Connection> open();
  Result<Connection> open_now();
  Status greet(McpConnection& connection);
  // Once more where the session was over before the request came.
  Result<McpJson> request(std::string_view method, const McpJson& params, const McpWait& wait);
  Result<McpTools> list(const McpWait& wait);
  McpWait bounded(const McpWait& wait) const;
  static Status check_time(std::string_view method, const McpWait& wait);
  void note_failure(const std::string& why);
  void forget_tools();
  int64_t n_changes() const;

  const McpServerConfig config_;
  const std::function<void(std::string_view)> warn_;
  // Held while it is started.
  std::timed_mutex connecting_;
  mutable std::mutex mutex_;
  Connection connection_;
  McpTools tools_;
  int64_t n_changes_ = 0;  // how often the tools were forgotten
  Time listed_{}, connected_{}, next_try_{};
  int n_failures_ = 0;  // in a row
  std::string last_failure_;
  std::stop_source leaving_;
};

}  // namespace penstock
