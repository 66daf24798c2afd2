// Configuration of the MCP servers whose tools may be run.
#pragma once
#include <chrono>
#include <cstddef>
#include <string>
#include <utility>
#include <vector>

namespace penstock {

// Whether clients must approve each call of a tool.
enum class McpApproval {
  kByRequest,  // as the request says; default: always
  kNever,      // never, unless the request demands it
  kAlways,     // always, whatever the request says
};

// One MCP server: a program to start (command) or an HTTP service (url).
struct McpServerConfig {
  using Pairs = std::vector<std::pair<std::string, std::string>>;

  // label in requests
  std::string name;
  // searched along PATH; "" with a url
  std::string command;
  std::vector<std::string> args;
  // Environment of the program, in addition to this process's HOME, LANG, LC_ALL, LOGNAME, PATH,
  // SHELL, TERM, TMPDIR, TZ and USER.
  Pairs env;
  // http:// or https://; "" with a command.
  std::string url;
  Pairs headers;
  // tools that may be used; empty: all
  std::vector<std::string> allowed_tools;
  // ids of the API keys that may use it; empty: all
  std::vector<std::string> keys;
  McpApproval approval = McpApproval::kByRequest;
  // tools that override `approval`
  std::vector<std::string> always_approved, never_approved;
  // for one exchange of messages: start, list or call
  std::chrono::milliseconds timeout{30000};
  // longer results are cut before the model sees them
  size_t max_result_bytes = 64 * 1024;
};

struct McpConfig {
  std::vector<McpServerConfig> servers;
  // limits of one response: rounds of tool calls, and their total time
  int max_rounds = 16;
  std::chrono::milliseconds max_time{300000};
};

// Hard limits of one server: bytes and values of one message, number of tools, bytes of their
// descriptions and schemas.
inline constexpr size_t kMostMcpMessage = size_t{4} << 20, kMostMcpValues = size_t{1} << 18,
                        kMostMcpTools = 512, kMostMcpToolBytes = size_t{1} << 20;
// Greatest depth of a message: half of what is read of a stored response, in which its values lie deeper.
inline constexpr int kMostMcpNesting = 128;
// Hard limits of one response: calls (also the maximum number of approved ones), bytes of a call's
// arguments, and bytes of all results, after which no call is made.
inline constexpr size_t kMostMcpCalls = 64, kMostMcpArguments = 64 * 1024,
                        kMostMcpResults = size_t{4} << 20;

}  // namespace penstock
