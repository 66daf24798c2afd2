// The routes of the server: which method of which path is answered by whom.
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

// Who may call a route as soon as there are keys.
enum class Access : uint8_t {
  kOpen,     // anyone
  kKey,      // keys with the inference scope
  kMetrics,  // keys with the metrics scope, and those with the inference scope
  kAdmin,    // keys with the admin scope (which may do everything)
};

using Handler = net::awaitable<void>(Services& services, Exchange& exchange);
using RouteSchema = const nlohmann::json&();  // a JSON schema (schemas.h)

// One endpoint. "{id}" in a path is one more segment, or more where it is the path's last one that
// is not written out. Of several paths that match, the first in the list counts.
struct Route {
  const char* method;
  const char* path;
  Access access;
  Handler* handler;
  const char* summary;
  RouteSchema* request;      // of the body, or null
  RouteSchema* reply;        // of a 200 reply, or null when it is not JSON
  bool streams = false;      // may also reply with server-sent events
  bool takes_forms = false;  // the body is multipart/form-data, not JSON
};
// THE list of endpoints.
std::span<const Route> routes();

// The route of a request, or null and in `allowed` the methods that its path has ("GET, POST").
const Route* find_route(const HttpRequest& request, std::string& allowed);
// What stands in `path` for the placeholders of a route's path, in order. REQUIRES: it is the
// route's.
std::vector<std::string> path_parts(std::string_view route, std::string_view path);
// The route of POST `path`, or null.
const Route* find_post_route(std::string_view path);

// The path of the route that `path` names: without `root_path` in front, and with the /v1 that
// clients may leave out.
std::string canonical_path(std::string_view path, std::string_view root_path);

}  // namespace penstock
