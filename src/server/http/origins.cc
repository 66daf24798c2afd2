#include "server/http/origins.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <boost/asio/ip/address.hpp>

#include "base/ascii.h"

namespace penstock {
namespace {

std::string lower(std::string_view text) {
  std::string result(text);
  result = ascii_lower(result);
  return result;
}

struct Authority {
  std::string host, port;  // in lower case, without brackets; port may be empty
};

// Parses "name:8000", "[::1]:8000" or "name.".
Authority parse_authority(std::string_view text) {
  const size_t bracket = text.find(']');
  const size_t colon = text.find(':', bracket == std::string_view::npos ? 0 : bracket);
  Authority result{lower(text.substr(0, colon)), {}};
  if (colon != std::string_view::npos) result.port = std::string(text.substr(colon + 1));
  if (result.host.starts_with('[') && result.host.ends_with(']')) {
    result.host = result.host.substr(1, result.host.size() - 2);
  }
  if (result.host.size() > 1 && result.host.ends_with('.')) result.host.pop_back();
  return result;
}

// Whether `origin` has the same name and port as Host. Schemes may differ, since a proxy may
// terminate TLS.
bool same_authority(std::string_view origin, std::string_view host) {
  const size_t scheme = origin.find("://");
  if (scheme == std::string_view::npos || host.empty()) return false;
  const std::string default_port = lower(origin.substr(0, scheme)) == "https" ? "443" : "80";
  Authority page = parse_authority(origin.substr(scheme + 3)), ours = parse_authority(host);
  if (page.port.empty()) page.port = default_port;
  if (ours.port.empty()) ours.port = default_port;
  return page.host == ours.host && page.port == ours.port;
}

bool is_address(const std::string& host) {
  boost::system::error_code error;
  boost::asio::ip::make_address(host, error);
  return !error;
}

std::string machine_name() {
  char name[256] = "";
  return gethostname(name, sizeof(name) - 1) == 0 ? lower(name) : std::string();
}

bool has(const std::vector<std::string>& list, std::string_view value) {
  return std::ranges::find(list, value) != list.end();
}

// Whether a page may send the media type cross-origin without a preflight request
// (CORS-safelisted).
bool is_of_a_form(std::string_view content_type) {
  const std::string type = lower(content_type.substr(0, content_type.find_first_of("; ,")));
  return type == "application/x-www-form-urlencoded" || type == "multipart/form-data" ||
         type.starts_with("text/");
}

void allow_origin(Exchange& exchange, const std::string& origin) {
  exchange.reply_headers.emplace_back("Access-Control-Allow-Origin", origin);
  exchange.reply_headers.emplace_back(
      "Access-Control-Expose-Headers",
      "x-request-id, request-id, Retry-After, Server-Timing, traceresponse, "
      "x-structured-outputs-notes, X-Penstock-Warning");
  if (origin != "*") exchange.reply_headers.emplace_back("Vary", "Origin");
}

}  // namespace

Status check_cors_origin(std::string_view origin) {
  if (origin == "*" || origin == "null") return {};
  const size_t scheme = origin.find("://");
  const bool plain = origin.find_first_of(" \t\r\n\"") == std::string_view::npos;
  if (plain && scheme != std::string_view::npos && scheme > 0 && origin.size() > scheme + 3 &&
      origin.find('/', scheme + 3) == std::string_view::npos) {
    return {};
  }
  return errorf(ErrorCode::kInvalidArgument,
                "CORS origin: expected SCHEME://HOST[:PORT], null or *, got {}", origin);
}

Result<Origins> Origins::open(OriginConfig config) {
  for (const std::string& origin : config.allowed_origins)
    RETURN_IF_ERROR(check_cors_origin(origin));
  for (std::string& host : config.allowed_hosts) host = parse_authority(host).host;
  config.allowed_hosts.push_back(lower(config.listening_host));
  config.allowed_hosts.push_back(machine_name());
  return Origins(std::move(config));
}

bool Origins::may_have_host(const HttpRequest& request) const {
  const std::string_view host = request.header("host");
  const bool of_page =
      !request.header("origin").empty() || !request.header("sec-fetch-site").empty();
  const bool looks = config_.host_check == HostCheck::kEverybody ||
                     (config_.host_check == HostCheck::kPages && of_page);
  if (!looks || host.empty() || has(config_.allowed_hosts, "*")) return true;
  const std::string name = parse_authority(host).host;
  return name.find('.') == std::string::npos || name.ends_with(".localhost") || is_address(name) ||
         has(config_.allowed_hosts, name);
}

std::optional<HttpRefusal> Origins::check(Exchange& exchange, bool takes_forms) const {
  const HttpRequest& request = exchange.request();
  if (!may_have_host(request)) {
    return HttpRefusal{403, fmt::format("Host: {} is no name of this server (see --allowed-host)",
                                        request.header("host"))};
  }
  if (auto refusal = check_page(exchange)) return refusal;
  const std::string_view type = request.header("content-type");
  if (request.method != "POST" || takes_forms || !is_of_a_form(type)) return std::nullopt;
  return HttpRefusal{415, fmt::format("Content-Type: expected application/json, got {}", type)};
}

std::optional<HttpRefusal> Origins::check_page(Exchange& exchange) const {
  const HttpRequest& request = exchange.request();
  const std::string_view origin = request.header("origin"), site = request.header("sec-fetch-site");
  const bool any = has(config_.allowed_origins, "*");
  if (allows(origin)) {
    allow_origin(exchange, any ? "*" : std::string(origin));
    return std::nullopt;
  }
  // Behind a proxy only the browser knows that the page has this server's origin.
  if (site == "same-origin") return std::nullopt;
  if (!origin.empty() && !same_authority(origin, request.header("host"))) {
    return HttpRefusal{
        403, fmt::format("pages of {} may not call this server (see --cors-origin)", origin)};
  }
  const bool reads = request.method == "GET" || request.method == "HEAD";
  if (!any && !reads && (site == "cross-site" || site == "same-site")) {
    return HttpRefusal{403, "pages of other origins may not call this server (see --cors-origin)"};
  }
  return std::nullopt;
}

bool Origins::allows(std::string_view origin) const {
  return !origin.empty() &&
         (has(config_.allowed_origins, "*") || has(config_.allowed_origins, origin));
}

std::optional<HttpReply> Origins::preflight(const HttpRequest& request) const {
  if (request.method != "OPTIONS" || request.header("access-control-request-method").empty() ||
      !allows(request.header("origin"))) {
    return std::nullopt;
  }
  HttpReply reply;
  reply.status = 204;
  reply.headers.emplace_back("Access-Control-Allow-Methods", "GET, POST, DELETE");
  reply.headers.emplace_back("Access-Control-Max-Age", "600");
  if (const std::string_view wanted = request.header("access-control-request-headers");
      !wanted.empty()) {
    reply.headers.emplace_back("Access-Control-Allow-Headers", std::string(wanted));
  }
  return reply;
}

}  // namespace penstock
