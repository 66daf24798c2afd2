// Access control for web pages: allowed origins, host names, and form content types.
//
// A page that a user visits can make the browser send requests to any reachable address, including
// this server. Browsers identify the page (Origin, Sec-Fetch-Site), and pages cannot change that;
// other clients send neither header.
#pragma once
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "server/http/exchange.h"

namespace penstock {

// Which requests have their Host header checked.
enum class HostCheck : uint8_t {
  kNobody,
  // requests from pages (Origin or Sec-Fetch-Site present); other clients may use any host name
  kPages,
  kEverybody,
};

struct OriginConfig {
  // "https://example.org", "null", or "*" for all
  std::vector<std::string> allowed_origins;
  std::vector<std::string> allowed_hosts;  // further host names, or "*" for all
  // A checked Host must be an IP address, a name without a dot, below localhost, this machine's
  // name, or in allowed_hosts. Other public names are refused: with DNS rebinding, a page under
  // such a name would count as same-origin.
  HostCheck host_check = HostCheck::kNobody;
  std::string listening_host;  // as configured; also allowed as Host
};

class Origins {
 public:
  // Errors: kInvalidArgument (a malformed origin).
  static Result<Origins> open(OriginConfig config);

  // Returns 403 for a page that may not use the server, 415 for content types that only forms send,
  // nullopt if the request may proceed. Adds CORS headers for an allowed origin to the reply.
  // takes_forms: the route accepts form bodies, so that only the origin is checked.
  std::optional<HttpRefusal> check(Exchange& exchange, bool takes_forms = false) const;
  // Returns the reply to a preflight request that passed check(); nullopt for other requests.
  std::optional<HttpReply> preflight(const HttpRequest& request) const;

 private:
  explicit Origins(OriginConfig config) : config_(std::move(config)) {}
  bool may_have_host(const HttpRequest& request) const;
  std::optional<HttpRefusal> check_page(Exchange& exchange) const;
  bool allows(std::string_view origin) const;

  OriginConfig config_;
};

// "https://example.org", "http://localhost:3000", "null" or "*". Error: kInvalidArgument.
Status check_cors_origin(std::string_view origin);

}  // namespace penstock
