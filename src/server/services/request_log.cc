#include "server/services/request_log.h"

#include <pthread.h>
#include <spdlog/async.h>
#include <spdlog/async_logger.h>
#include <spdlog/pattern_formatter.h>
#include <spdlog/sinks/stdout_sinks.h>

#include <nlohmann/json.hpp>

#include "base/log.h"
#include "server/services/request_record.h"

namespace penstock {
namespace {

constexpr size_t kMostLines = 8192;  // waiting to be written

std::string json_string(std::string_view text) {
  return nlohmann::json(text).dump(-1, ' ', true, nlohmann::json::error_handler_t::replace);
}

// Replaces control characters, so that request data cannot forge log lines.
std::string one_line(std::string_view text) {
  std::string result;
  for (size_t i = 0; i < text.size(); ++i) {
    const auto byte = static_cast<unsigned char>(text[i]);
    // Terminals also interpret U+0080 to U+009F as controls, some of them even the single bytes.
    const bool begins_control =
        byte == 0xc2 && i + 1 < text.size() && static_cast<unsigned char>(text[i + 1]) < 0xa0;
    const bool alone =
        byte >= 0x80 && byte < 0xa0 && (i == 0 || static_cast<unsigned char>(text[i - 1]) < 0x80);
    // U+2028 to U+202E and U+2066 to U+2069 end lines or turn the direction of what follows.
    const std::string_view three = text.substr(i, 3);
    const bool turns = three.starts_with("\xe2\x80") || three.starts_with("\xe2\x81");
    const auto last = turns && three.size() == 3 ? static_cast<unsigned char>(three[2]) : 0;
    const bool misleads = last != 0 && (three[1] == '\x80' ? last >= 0xa8 && last <= 0xae
                                                           : last >= 0xa6 && last <= 0xa9);
    if (byte < 32 || byte == 127 || begins_control || alone) {
      result += fmt::format("\\x{:02x}", byte);
    } else if (misleads) {
      result += fmt::format("\\u20{:02x}", three[1] == '\x80' ? last - 0x80 : last - 0x40);
      i += 2;
    } else {
      result += text[i];
    }
  }
  return result;
}

// Pattern flag %*: the message as a JSON string.
class QuotedMessage final : public spdlog::custom_flag_formatter {
 public:
  void format(const spdlog::details::log_msg& message, const std::tm&,
              spdlog::memory_buf_t& out) override {
    const std::string text = json_string({message.payload.data(), message.payload.size()});
    out.append(text.data(), text.data() + text.size());
  }
  std::unique_ptr<custom_flag_formatter> clone() const override {
    return std::make_unique<QuotedMessage>();
  }
};

std::unique_ptr<spdlog::formatter> json_formatter(const char* rest) {
  auto formatter = std::make_unique<spdlog::pattern_formatter>();
  formatter->add_flag<QuotedMessage>('*');
  formatter->set_pattern(
      fmt::format(R"({{"time":"%Y-%m-%dT%H:%M:%S.%e%z","level":"%l",{}}})", rest));
  return formatter;
}

}  // namespace

Result<std::unique_ptr<RequestLog>> RequestLog::open(const LogConfig& config) {
  if (config.format != "text" && config.format != "json") {
    return errorf(ErrorCode::kInvalidArgument, "log format: expected text or json, got {}",
                  config.format);
  }
  if (config.level != "off" && spdlog::level::from_str(config.level) == spdlog::level::off) {
    return errorf(ErrorCode::kInvalidArgument,
                  "log level: expected trace, debug, info, warn, error or off, got {}",
                  config.level);
  }
  return std::unique_ptr<RequestLog>(new RequestLog(config));
}

RequestLog::RequestLog(const LogConfig& config) : config_(config), json_(config.format == "json") {
  pool_ = std::make_shared<spdlog::details::thread_pool>(
      kMostLines, 1, [] { pthread_setname_np(pthread_self(), "penstock-log"); });
  logger_ = std::make_shared<spdlog::async_logger>(
      "server", std::make_shared<spdlog::sinks::stderr_sink_mt>(), pool_,
      spdlog::async_overflow_policy::overrun_oldest);
  logger_->set_level(spdlog::level::from_str(config.level));
  if (json_) {
    logger_->set_formatter(json_formatter("%v"));
    log().set_formatter(json_formatter(R"("event":"log","message":%*)"));
  } else {
    logger_->set_pattern("%Y-%m-%dT%H:%M:%S.%e%z %l %v");
  }
}

RequestLog::~RequestLog() {
  logger_->flush();
  // flushes pending lines, which hold the logger and must not destroy it last
  pool_.reset();
  logger_.reset();
}

void RequestLog::request(const Exchange& exchange, double seconds, std::string_view key) {
  if (!config_.requests || !logger_->should_log(spdlog::level::info)) return;
  const HttpRequest& request = exchange.request();
  const RequestRecord& record = record_of(request);
  const bool left = exchange.gone();
  if (json_) {
    std::string line = fmt::format(
        R"("event":"request","id":{},"peer":{},"method":{},"path":{},"status":{},"client_left":{},"seconds":{:.6f})",
        json_string(request.id), json_string(request.peer), json_string(request.method),
        json_string(request.path), exchange.status(), left, seconds);
    if (!key.empty()) line += fmt::format(R"(,"key":{})", json_string(key));
    if (record.trace) {
      const TraceContext& context = record.trace->context;
      line += fmt::format(R"(,"trace_id":"{}","span_id":"{}","trace_sampled":{})", context.trace_id,
                          context.span_id, context.sampled);
    }
    if (record.use.prompt_tokens > 0) {
      line += fmt::format(R"(,"prompt_tokens":{},"completion_tokens":{})", record.use.prompt_tokens,
                          record.use.completion_tokens);
    }
    if (config_.prompts && !request.body.empty()) {
      line += fmt::format(R"(,"body":{})", json_string(request.body.substr(0, kMostLoggedBody)));
    }
    logger_->info(line);
    return;
  }
  std::string line =
      fmt::format("{} {} {} {} {}{} {:.3f} s", request.id, request.peer, one_line(request.method),
                  one_line(request.path), exchange.status(), left ? " (client left)" : "", seconds);
  if (!key.empty()) line += fmt::format(" key {}", key);
  if (record.trace) line += fmt::format(" trace {}", record.trace->context.trace_id);
  if (record.use.prompt_tokens > 0) {
    line += fmt::format(" tokens {}+{}", record.use.prompt_tokens, record.use.completion_tokens);
  }
  if (config_.prompts && !request.body.empty()) {
    line += fmt::format(" {}", one_line(request.body.substr(0, kMostLoggedBody)));
  }
  logger_->info(line);
}

void RequestLog::info(std::string_view message) {
  logger_->info(json_ ? fmt::format(R"("event":"server","message":{})", json_string(message))
                      : one_line(message));
}
void RequestLog::warn(std::string_view message) {
  logger_->warn(json_ ? fmt::format(R"("event":"server","message":{})", json_string(message))
                      : one_line(message));
}
void RequestLog::error(std::string_view message) {
  logger_->error(json_ ? fmt::format(R"("event":"server","message":{})", json_string(message))
                       : one_line(message));
}

}  // namespace penstock
