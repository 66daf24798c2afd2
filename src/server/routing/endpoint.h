// The HTTP endpoints of the server: method, path and handler.
#pragma once
#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "server/http/exchange.h"

namespace penstock {

struct Services;

// Who may call an endpoint if the server has keys.
enum class Access : uint8_t {
  kOpen,     // anyone
  kKey,      // keys with the inference scope
  kMetrics,  // keys with the metrics scope, and those with the inference scope
  // keys with the admin scope, which includes all others
  kAdmin,
};

using Handler = net::awaitable<void>(Services& services, Exchange& exchange);
using EndpointSchema = const nlohmann::json&();  // a JSON schema (schemas.h)

// One endpoint. "{id}" in a path matches one segment, or several if it is the last variable one. If
// several paths match, the first in the list wins.
struct Endpoint {
  const char* method;
  const char* path;
  Access access;
  Handler* handler;
  const char* summary;
  EndpointSchema* request;   // schema of the body, or null
  EndpointSchema* reply;     // schema of a 200 reply; null: not JSON
  bool streams = false;      // may also reply with server-sent events
  bool takes_forms = false;  // the body is multipart/form-data, not JSON
};
// The list of all endpoints. A new endpoint is a row here.
std::span<const Endpoint> endpoints();

// Returns the endpoint of a request, or null; `allowed` is then set to the methods of its path ("GET,
// POST").
const Endpoint* find_endpoint(const HttpRequest& request, std::string& allowed);
// Returns the parts of `path` that match the placeholders of an endpoint's path, in order. REQUIRES:
// the path matches.
std::vector<std::string> path_parts(std::string_view pattern, std::string_view path);
// Returns the endpoint of POST `path`, or null.
const Endpoint* find_post_endpoint(std::string_view path);

// Normalizes a path: removes `root_path` and adds the /v1 that clients may omit.
std::string canonical_path(std::string_view path, std::string_view root_path);

}  // namespace penstock
