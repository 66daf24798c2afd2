// All configured MCP servers with their worker threads.
#pragma once
#include <functional>
#include <memory>
#include <stop_token>
#include <string>
#include <string_view>
#include <vector>

#include "server/http/exchange.h"
#include "server/http/turn_threads.h"
#include "server/mcp/mcp_server.h"

namespace penstock {

// Methods that return an awaitable run on the exchange's executor without blocking it; the others
// are thread-safe.
class McpServers {
 public:
  // warn: called on any thread with a line for the log.
  McpServers(McpConfig config, const std::function<void(std::string_view)>& warn);
  ~McpServers() { stop(); }

  const McpConfig& config() const { return config_; }
  // key: id of the API key; "": the server has no keys. null: there is no such server, or the key
  // may not use it.
  McpServer* find(std::string_view name, const std::string& key) const;
  // names of the servers that the key may use
  std::vector<std::string> names(const std::string& key) const;

  // a callback that is called periodically while waiting
  struct Tick {
    std::chrono::milliseconds interval;
    std::function<void()> tell;
  };
  // Runs `work` on one of the server's threads, in turns with other clients. Its stop token is set
  // when the client leaves or the servers are stopped. Errors: kResourceExhausted (too many waiting
  // jobs of this client), kCancelled.
  using WorkOnServer = std::function<void(const std::stop_token&)>;
  net::awaitable<Status> run(const McpServer& server, Exchange& exchange, const Tick& tick,
                             WorkOnServer work);

  // Requests all work to stop and prevents new work.
  void cancel_all();
  // As cancel_all(), and waits for the end.
  void stop();

 private:
  struct Job;
  // A server with threads of its own, so that a slow server delays no other.
  struct Served {
    Served(const McpServerConfig& config, const std::function<void(std::string_view)>& warn);
    McpServer server;
    TurnThreads threads;
  };

  const McpConfig config_;
  std::vector<std::unique_ptr<Served>> servers_;
  std::stop_source stopping_;
};

}  // namespace penstock
