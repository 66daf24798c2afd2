// Which web pages may use the server: their origins, the names that it is called by, and what their
// forms can send.
//
// A page that somebody visits can make the browser send requests to any address the browser
// reaches, this server's too. Browsers say which page it was (Origin, Sec-Fetch-Site), and a page
// cannot change that; other clients send neither.
#pragma once
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "server/http/exchange.h"

namespace penstock {

// Whose Host is looked at.
enum class HostCheck : uint8_t {
  kNobody,
  // requests that tell of a page (Origin, Sec-Fetch-Site): other clients may use any name of a
  // network
  kPages,
  kEverybody,
};

struct OriginConfig {
  // "https://example.org", "null", or "*": anyone's
  std::vector<std::string> allowed_origins;
  std::vector<std::string> allowed_hosts;  // names in Host besides those below, or "*"
  // Host must then be an address, a name without a dot, one below localhost, this machine's or an
  // allowed one. A public name that somebody else points at this machine is none (DNS rebinding):
  // with it a page of that name would count as this server's own.
  HostCheck host_check = HostCheck::kNobody;
  std::string listening_host;  // as configured; a name of the server too
};

class Origins {
 public:
  // Error: kInvalidArgument, an origin that is none.
  static Result<Origins> open(OriginConfig config);

  // 403 for a page that may not call the server, 415 for a body such as only a form would send;
  // nothing for what may go on. Adds the headers of an allowed origin to the reply.
  // takes_forms: the route reads bodies of forms itself; that a page may not send them is then for
  // its origin to tell.
  std::optional<HttpRefusal> check(Exchange& exchange, bool takes_forms = false) const;
  // The answer to a preflight request that check() lets go on; nothing for every other request.
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
