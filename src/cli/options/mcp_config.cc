#include "cli/options/mcp_config.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <string>
#include <string_view>

#include "base/locale_free.h"
#include "cli/options/flags.h"

namespace penstock {
namespace {

using Item = CLI::ConfigItem;

tl::unexpected<Error> wrong(const Item& item, std::string_view expected) {
  return errorf(ErrorCode::kInvalidArgument, "[{}] {}: expected {}, got {}",
                fmt::join(item.parents, "."), item.name, expected, fmt::join(item.inputs, " "));
}

Result<std::string> text_of(const Item& item) {
  if (item.inputs.size() != 1) return wrong(item, "one text, in quotation marks");
  return item.inputs[0];
}

// With the value of a variable of this process in the place of each ${NAME}.
Result<std::string> expanded_text(const Item& item) {
  ASSIGN_OR_RETURN(std::string text, text_of(item));
  for (size_t at = 0; (at = text.find("${", at)) != std::string::npos;) {
    const size_t end = text.find('}', at);
    if (end == std::string::npos) return wrong(item, "a } behind ${");
    const std::string name = text.substr(at + 2, end - at - 2);
    const char* const value = std::getenv(name.c_str());  // NOLINT(concurrency-mt-unsafe)
    if (value == nullptr) {
      return errorf(ErrorCode::kInvalidArgument, "[{}] {}: the environment has no {}",
                    fmt::join(item.parents, "."), item.name, name);
    }
    text.replace(at, end + 1 - at, value);
    at += std::string_view(value).size();
  }
  return text;
}

bool is_plain(std::string_view text) {
  return std::ranges::all_of(text, [](char c) { return c >= ' ' && c != 0x7f; });
}

Status read_number(const Item& item, McpServerConfig& config) {
  ASSIGN_OR_RETURN(const std::string text, text_of(item));
  if (item.name == "timeout") {
    constexpr double kMost = 86400;
    char* end = nullptr;
    const double seconds = locale_free_strtod(text.c_str(), &end);
    if (text.empty() || *end != '\0' || !(seconds > 0 && seconds <= kMost))
      return wrong(item, "seconds, more than 0 and at most 86400");
    config.timeout = std::chrono::milliseconds(std::max<int64_t>(std::llround(seconds * 1000), 1));
    return {};
  }
  int64_t bytes = 0;
  constexpr int64_t kLeast = 256;
  const bool read = parse_bytes(text, bytes).empty();
  if (!read || bytes < kLeast || bytes > static_cast<int64_t>(kMostMcpMessage))
    return wrong(item, "a size of 256 bytes to 4 MiB");
  config.max_result_bytes = static_cast<size_t>(bytes);
  return {};
}

Status read_approval(const Item& item, McpApproval& approval) {
  ASSIGN_OR_RETURN(const std::string text, text_of(item));
  if (text != "never" && text != "always") return wrong(item, "never or always");
  approval = text == "never" ? McpApproval::kNever : McpApproval::kAlways;
  return {};
}

Status read_field(const Item& item, McpServerConfig& config) {
  if (item.name == "timeout" || item.name == "max_result_bytes") return read_number(item, config);
  if (item.name == "require_approval") return read_approval(item, config.approval);
  std::vector<std::string>* const lists[] = {&config.args, &config.allowed_tools, &config.keys};
  const char* const names_of_lists[] = {"args", "allowed_tools", "keys"};
  for (int i = 0; i < 3; ++i) {
    if (item.name != names_of_lists[i]) continue;
    *lists[i] = item.inputs;
    return {};
  }
  std::string* const text = item.name == "command" ? &config.command
                            : item.name == "url"   ? &config.url
                                                   : nullptr;
  if (text == nullptr)
    return errorf(ErrorCode::kInvalidArgument, "[{}] {}: there is no such field",
                  fmt::join(item.parents, "."), item.name);
  ASSIGN_OR_RETURN(*text, expanded_text(item));
  return {};
}

// Of [mcp.NAME.PART].
Status read_part(const Item& item, McpServerConfig& config) {
  const std::string& part = item.parents[2];
  if (part == "env" || part == "headers") {
    ASSIGN_OR_RETURN(std::string value, expanded_text(item));
    if (!is_plain(item.name) || !is_plain(value)) return wrong(item, "one line of text");
    (part == "env" ? config.env : config.headers).emplace_back(item.name, std::move(value));
    return {};
  }
  if (part == "approval" && (item.name == "always" || item.name == "never")) {
    (item.name == "always" ? config.always_approved : config.never_approved) = item.inputs;
    return {};
  }
  return errorf(ErrorCode::kInvalidArgument, "[{}] {}: there is no such field",
                fmt::join(item.parents, "."), item.name);
}

Status check(const McpServerConfig& config) {
  const auto fail = [&](std::string_view what) {
    return errorf(ErrorCode::kInvalidArgument, "[mcp.{}]: {}", config.name, what);
  };
  if (config.command.empty() == config.url.empty()) return fail("expected either command or url");
  if (config.url.empty() && !config.headers.empty()) return fail("headers belong to a url");
  if (config.command.empty() && (!config.args.empty() || !config.env.empty()))
    return fail("args and env belong to a command");
  const bool is_http = config.url.starts_with("http://") || config.url.starts_with("https://");
  if (!config.url.empty() && !is_http) return fail("url: expected http:// or https://");
  constexpr size_t kLongest = 64;
  const bool named =
      config.name.find_first_not_of(
          "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-") == std::string::npos;
  if (!named || config.name.empty() || config.name.size() > kLongest)
    return fail("the name: expected at most 64 letters, digits, _ and -");
  return {};
}

}  // namespace

Result<std::vector<McpServerConfig>> read_mcp_config(const std::vector<Item>& sections) {
  std::vector<McpServerConfig> servers;
  for (const Item& item : sections) {
    if (item.parents.size() < 2) {
      if (item.name == "++" || item.name == "--") continue;
      return errorf(ErrorCode::kInvalidArgument, "[mcp] {}: expected a section [mcp.NAME]",
                    item.name);
    }
    auto server = std::ranges::find(servers, item.parents[1], &McpServerConfig::name);
    if (server == servers.end()) {
      servers.emplace_back().name = item.parents[1];
      server = servers.end() - 1;
    }
    if (item.name == "++" || item.name == "--") continue;
    if (item.parents.size() > 3)
      return errorf(ErrorCode::kInvalidArgument, "[{}]: there is no such section",
                    fmt::join(item.parents, "."));
    RETURN_IF_ERROR(item.parents.size() == 3 ? read_part(item, *server)
                                             : read_field(item, *server));
  }
  for (const McpServerConfig& one : servers) RETURN_IF_ERROR(check(one));
  return servers;
}

}  // namespace penstock
