#include "server/services/client_warnings.h"

#include <algorithm>
#include <string>

#include "server/services/request_log.h"
#include "server/services/request_record.h"
#include "server/services/services.h"

namespace penstock {
namespace {

constexpr size_t kMostWarning = 200, kMostWarnings = 1000;  // bytes

std::string printable(std::string_view text, size_t most) {
  std::string result(text.substr(0, most));
  for (char& c : result) c = c >= ' ' && c <= '~' ? c : '?';
  if (text.size() > most) result.replace(most - 3, 3, "...");
  return result;
}

}  // namespace

void warn_client(const HttpRequest& request, std::string_view warning) {
  if (request.record == nullptr || warning.empty()) return;
  std::vector<std::string>& warnings = request.record->warnings;
  constexpr size_t kMostNoted = 64;  // more do not fit into the header
  if (warnings.size() >= kMostNoted) return;
  std::string text = printable(warning, kMostWarning);
  if (std::ranges::find(warnings, text) == warnings.end()) warnings.push_back(std::move(text));
}

void warn_client(const HttpRequest& request, const std::vector<std::string>& warnings) {
  for (const std::string& warning : warnings) warn_client(request, warning);
}

void tell_warnings(Services& services, Exchange& exchange) {
  const RequestRecord& record = record_of(std::as_const(exchange));
  if (record.warnings.empty()) return;
  std::string all;
  for (const std::string& one : record.warnings) {
    if (all.size() > kMostWarnings) break;
    all += (all.empty() ? "" : "; ") + one;
  }
  all = printable(all, kMostWarnings);
  auto& headers = exchange.reply_headers;
  const auto told =
      std::ranges::find(headers, kWarningHeader, &std::pair<std::string, std::string>::first);
  if (told != headers.end() && told->second == all) return;
  if (record.background) services.log.warn(exchange.request().id + ": " + all);
  if (told != headers.end())
    told->second = all;
  else
    headers.emplace_back(kWarningHeader, all);
}

}  // namespace penstock
