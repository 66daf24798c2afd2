// The server's log on stderr: a line per request, as text or as JSON. Prompts are logged only when
// asked for.
#pragma once
#include <memory>
#include <string>
#include <string_view>

#include "base/result.h"
#include "server/http/exchange.h"

namespace spdlog {
class logger;
namespace details {
class thread_pool;
}
}  // namespace spdlog

namespace penstock {

struct LogConfig {
  std::string format = "text";  // or "json"
  std::string level = "info";   // trace, debug, info, warn, error, off
  bool requests = true;         // a line per request
  // and the body it came with, cut after kMostLoggedBody bytes
  bool prompts = false;
};
inline constexpr size_t kMostLoggedBody = 16384;

// Any thread; never blocks: when stderr is not read, the oldest lines are lost.
class RequestLog {
 public:
  // Error: kInvalidArgument (format, level).
  static Result<std::unique_ptr<RequestLog>> open(const LogConfig& config);
  ~RequestLog();

  // key: id of the API key, or empty.
  void request(const Exchange& exchange, double seconds, std::string_view key);
  void info(std::string_view message);
  void warn(std::string_view message);
  void error(std::string_view message);

 private:
  explicit RequestLog(const LogConfig& config);

  LogConfig config_;
  bool json_;
  std::shared_ptr<spdlog::details::thread_pool> pool_;
  std::shared_ptr<spdlog::logger> logger_;
};

}  // namespace penstock
