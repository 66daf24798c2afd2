// All configured MCP servers, and the threads that wait for them.
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

// Made where servers are configured. Methods that return an awaitable belong to the exchange's
// executor, which they do not hold up; the others may be called from any thread.
class McpServers {
 public:
  // warn: called on any thread with a line for the log.
  McpServers(McpConfig config, const std::function<void(std::string_view)>& warn);
  ~McpServers() { stop(); }

  const McpConfig& config() const { return config_; }
  // Null: there is none of that name that the key may use. key: its id, "" where there are no keys.
  McpServer* find(std::string_view name, const std::string& key) const;
  // Of those that the key may use.
  std::vector<std::string> names(const std::string& key) const;

  // Called now and then while something is waited for.
  struct Tick {
    std::chrono::milliseconds interval;
    std::function<void()> tell;
  };
  // Does `work` on one of the server's threads, in turns with what others want of them. It is told
  // to stop when the client leaves and when the servers are stopped. Errors: kResourceExhausted
  // (too much of this client's waits already), kCancelled.
  using WorkOnServer = std::function<void(const std::stop_token&)>;
  net::awaitable<Status> run(const McpServer& server, Exchange& exchange, const Tick& tick,
                             WorkOnServer work);

  // What is under way is told to stop, and nothing is started any more.
  void cancel_all();
  // Waits for that, and ends the servers.
  void stop();

 private:
  struct Job;
  // A server, and the threads that wait for it alone: a slow one holds up no other.
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
