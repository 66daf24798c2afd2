// The MCP servers whose tools a server may run, as the operator has configured them.
#pragma once
#include <chrono>
#include <cstddef>
#include <string>
#include <utility>
#include <vector>

namespace penstock {

// Whether a client has to agree to each call of a tool.
enum class McpApproval {
  kByRequest,  // as the request says; without a word of it, always
  kNever,      // only where the request asks for it
  kAlways,     // whatever the request says
};

// One MCP server: a program that is started here (command) or a service that is asked by HTTP
// (url).
struct McpServerConfig {
  using Pairs = std::vector<std::pair<std::string, std::string>>;

  // The label in requests.
  std::string name;
  // Found along PATH; "" with a url.
  std::string command;
  std::vector<std::string> args;
  // Of the program, beside HOME, LANG, LC_ALL, LOGNAME, PATH, SHELL, TERM, TMPDIR, TZ and USER of
  // this process.
  Pairs env;
  // http:// or https://; "" with a command.
  std::string url;
  Pairs headers;
  // Names of the tools that may be used; empty: all that the server has.
  std::vector<std::string> allowed_tools;
  // Ids of the API keys that may use it; empty: all.
  std::vector<std::string> keys;
  McpApproval approval = McpApproval::kByRequest;
  // Tools for which another rule holds.
  std::vector<std::string> always_approved, never_approved;
  // Of one exchange of messages: a start, a list, a call.
  std::chrono::milliseconds timeout{30000};
  // Of a result as the model gets it: what is longer is cut.
  size_t max_result_bytes = 64 * 1024;
};

struct McpConfig {
  std::vector<McpServerConfig> servers;
  // Of one response: how often its model may call tools and go on, and how long that may take.
  int max_rounds = 16;
  std::chrono::milliseconds max_time{300000};
};

// What nobody may exceed: bytes of one message and its values, tools of one server, bytes of all
// their descriptions and schemas.
inline constexpr size_t kMostMcpMessage = size_t{4} << 20, kMostMcpValues = size_t{1} << 18,
                        kMostMcpTools = 512, kMostMcpToolBytes = size_t{1} << 20;
// The same of one response: its calls, of which so many are those that the client agrees to, bytes
// of a call's arguments, and bytes of all results after which no call is made.
inline constexpr size_t kMostMcpCalls = 64, kMostMcpArguments = 64 * 1024,
                        kMostMcpResults = size_t{4} << 20;

}  // namespace penstock
