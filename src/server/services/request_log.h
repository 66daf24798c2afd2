// The server's log on stderr: one line per request, as text or JSON. Prompts are logged only if
// configured.
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
  bool requests = true;         // log a line per request
  // log the bodies too, cut after kMostLoggedBody bytes
  bool prompts = false;
};
inline constexpr size_t kMostLoggedBody = 16384;

// Thread-safe; never blocks: if stderr is not read, the oldest lines are dropped.
class RequestLog {
 public:
  // Errors: kInvalidArgument (format or level).
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
