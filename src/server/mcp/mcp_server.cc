#include "server/mcp/mcp_server.h"

#include <algorithm>
#include <array>

#include "frontend/json_fields.h"
#include "penstock/version.h"
#include "server/mcp/http_connection.h"
#include "server/mcp/stdio_connection.h"

namespace penstock {
namespace {

using Steady = std::chrono::steady_clock;

constexpr std::chrono::minutes kFresh(5);  // age after which tools are listed again
// a connection that lasts this long resets the failure count
constexpr std::chrono::seconds kLivesWell(60);
constexpr std::chrono::seconds kLongestRest(60);

size_t bytes_of(const McpJson& value) {
  return value.dump(-1, ' ', false, McpJson::error_handler_t::replace).size();
}

// nullopt: the tool's name is invalid.
std::optional<McpTool> read_tool(const McpJson& given) {
  constexpr size_t kLongestName = 128;
  McpTool tool;
  tool.name = get_string(given, "name");
  if (tool.name.empty() || tool.name.size() > kLongestName) return std::nullopt;
  const McpJson& schema = get_field(given, "inputSchema");
  const McpJson& annotations = get_field(given, "annotations");
  tool.read_only = annotations.is_object() && get_bool(annotations, "readOnlyHint");
  tool.listed = {{"name", tool.name},
                 {"description", get_string(given, "description")},
                 {"input_schema", schema.is_object() ? schema : McpJson{{"type", "object"}}},
                 {"annotations", annotations.is_object() ? annotations : McpJson()}};
  return tool;
}

}  // namespace

McpServer::McpServer(McpServerConfig config, std::function<void(std::string_view)> warn)
    : config_(std::move(config)), warn_([name = config_.name, warn = std::move(warn)](auto line) {
        warn(fmt::format("mcp {}: {}", name, line));
      }) {}

McpWait McpServer::bounded(const McpWait& wait) const {
  return {std::min(wait.deadline, Steady::now() + config_.timeout), wait.stop};
}

// Returns an error if the caller no longer waits.
Status McpServer::check_time(std::string_view method, const McpWait& wait) {
  if (wait.stop.stop_requested()) return errorf(ErrorCode::kCancelled, "{}: cancelled", method);
  if (Steady::now() < wait.deadline) return {};
  return errorf(ErrorCode::kDeadlineExceeded, "{}: the time was up before it was sent", method);
}

void McpServer::forget_tools() {
  const std::lock_guard lock(mutex_);
  tools_ = nullptr;
  ++n_changes_;
}

void McpServer::leave() {
  leaving_.request_stop();
  const std::lock_guard lock(mutex_);
  if (connection_ != nullptr) connection_->leave();
}

// Records a failure to start or run; each doubles the pause before the next attempt.
void McpServer::note_failure(const std::string& why) {
  const std::lock_guard lock(mutex_);
  constexpr int kMostDoublings = 6;
  const std::chrono::seconds pause(1 << std::min(n_failures_++, kMostDoublings));
  next_try_ = Steady::now() + std::min(pause, kLongestRest);
  last_failure_ = why;
}

Result<McpServer::Connection> McpServer::connect(const McpWait& wait) {
  {
    const std::lock_guard lock(mutex_);
    if (connection_ != nullptr && connection_->alive()) return connection_;
  }
  constexpr std::chrono::milliseconds kLook(50);  // polling interval for stop requests
  std::unique_lock lock(connecting_, std::defer_lock);
  while (!lock.try_lock_for(kLook)) RETURN_IF_ERROR(check_time("start", wait));
  return open();
}

// Connects without regard to the caller's deadline, since later callers need the connection too.
// REQUIRES: connecting_.
Result<McpServer::Connection> McpServer::open() {
  Connection lost;
  bool died_young = false;
  {
    const std::lock_guard lock(mutex_);
    if (leaving_.stop_requested()) return errorf(ErrorCode::kCancelled, "this server stops");
    if (connection_ != nullptr && connection_->alive()) return connection_;
    lost = std::exchange(connection_, nullptr);
    tools_ = nullptr;
    died_young = lost != nullptr && Steady::now() - connected_ < kLivesWell;
    if (lost != nullptr && !died_young) n_failures_ = 0;
  }
  lost.reset();
  if (died_young && !config_.command.empty()) note_failure("it had ended");
  {
    const std::lock_guard lock(mutex_);
    const auto left = std::chrono::ceil<std::chrono::seconds>(next_try_ - Steady::now()).count();
    // The first failure is retried immediately.
    if (left > 0 && n_failures_ > 1)
      return errorf(ErrorCode::kIo, "it is tried again in {} s: {}", left, last_failure_);
  }
  auto opened = open_now();
  const Status greeted = opened ? greet(**opened) : Status(tl::unexpected(opened.error()));
  if (!greeted) {
    if (greeted.error().code != ErrorCode::kCancelled) note_failure(greeted.error().message);
    return tl::unexpected(greeted.error());
  }
  const std::lock_guard lock(mutex_);
  if (leaving_.stop_requested()) return errorf(ErrorCode::kCancelled, "this server stops");
  connected_ = Steady::now();
  if (config_.command.empty()) n_failures_ = 0;
  return connection_ = *std::move(opened);
}

Result<McpServer::Connection> McpServer::open_now() {
  McpNotices notices{warn_, [this] { forget_tools(); }};
  if (config_.command.empty())
    return std::make_shared<McpHttpConnection>(config_, std::move(notices));
  ASSIGN_OR_RETURN(auto connection, StdioConnection::open(config_, std::move(notices)));
  return connection;
}

Status McpServer::greet(McpConnection& connection) {
  constexpr std::array<std::string_view, 4> kKnown = {"2025-11-25", kMcpVersion, "2025-03-26",
                                                      "2024-11-05"};
  const McpJson params = {{"protocolVersion", kMcpVersion},
                          {"capabilities", McpJson::object()},
                          {"clientInfo", {{"name", "penstock"}, {"version", kVersion}}}};
  const McpWait until{Steady::now() + config_.timeout, leaving_.get_token()};
  ASSIGN_OR_RETURN(const McpJson hello, connection.request("initialize", params, until));
  const std::string version = get_string(hello, "protocolVersion");
  if (std::ranges::find(kKnown, version) == kKnown.end()) {
    return errorf(ErrorCode::kUnsupported, "initialize: expected protocol version {}, got \"{}\"",
                  kMcpVersion, version);
  }
  return connection.notify("notifications/initialized", nullptr, until);
}

Result<McpJson> McpServer::request(std::string_view method, const McpJson& params,
                                   const McpWait& wait) {
  for (int i = 0;; ++i) {
    RETURN_IF_ERROR(check_time(method, wait));
    ASSIGN_OR_RETURN(const Connection connection, connect(wait));
    RETURN_IF_ERROR(check_time(method, wait));  // connecting may have taken long
    auto result = connection->request(method, params, bounded(wait));
    const bool session_over = !result && result.error().code == ErrorCode::kNotFound;
    if (!session_over || i > 0) return result;
  }
}

int64_t McpServer::n_changes() const {
  const std::lock_guard lock(mutex_);
  return n_changes_;
}

McpTools McpServer::known_tools() const {
  const std::lock_guard lock(mutex_);
  const bool usable = connection_ != nullptr && connection_->alive();
  return usable && Steady::now() - listed_ < kFresh ? tools_ : nullptr;
}

Result<McpTools> McpServer::tools(const McpWait& wait) {
  if (McpTools known = known_tools()) return known;
  return list(wait);
}

Result<McpTools> McpServer::list(const McpWait& wait) {
  std::vector<McpTool> tools;
  McpJson params = McpJson::object();
  const int64_t n_changes = this->n_changes();
  size_t n_seen = 0, n_bytes = 0;
  for (bool more = true; more;) {
    ASSIGN_OR_RETURN(const McpJson page, request("tools/list", params, wait));
    const McpJson& given = get_field(page, "tools");
    for (const McpJson& one : given.is_array() ? given : McpJson::array()) {
      auto tool = read_tool(one);
      const auto& allowed = config_.allowed_tools;
      n_bytes += bytes_of(one);
      if (++n_seen > kMostMcpTools || n_bytes > kMostMcpToolBytes) {
        return errorf(ErrorCode::kUnsupported,
                      "tools/list: expected at most {} tools of {} bytes together", kMostMcpTools,
                      kMostMcpToolBytes);
      }
      if (!tool) continue;
      if (allowed.empty() || std::ranges::find(allowed, tool->name) != allowed.end())
        tools.push_back(*std::move(tool));
    }
    const std::string next = get_string(page, "nextCursor");
    more = !next.empty() && given.is_array() && !given.empty();
    params = {{"cursor", next}};
  }
  const auto listed = std::make_shared<const std::vector<McpTool>>(std::move(tools));
  const std::lock_guard lock(mutex_);
  // A change during listing invalidates the result for later calls.
  if (n_changes == n_changes_) tools_ = listed, listed_ = Steady::now();
  return McpTools(listed);
}

Result<McpResult> McpServer::call(const std::string& tool, const McpJson& arguments,
                                  const McpWait& wait) {
  ASSIGN_OR_RETURN(const McpJson result,
                   request("tools/call", {{"name", tool}, {"arguments", arguments}}, wait));
  return read_tool_result(result, config_.max_result_bytes);
}

}  // namespace penstock
