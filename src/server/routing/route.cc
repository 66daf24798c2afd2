#include "server/routing/route.h"

#include <algorithm>

namespace penstock {
namespace {

// Whether `path` is `route`'s, with anything for its "{id}".
bool matches(std::string_view route, std::string_view path) {
  const size_t brace = route.find('{');
  if (brace == std::string_view::npos) return route == path;
  const std::string_view end = route.substr(route.find('}') + 1);
  return path.size() > brace + end.size() && path.starts_with(route.substr(0, brace)) &&
         path.ends_with(end);
}

}  // namespace

const Route* find_route(const HttpRequest& request, std::string& allowed) {
  const std::string_view method =
      request.method == "HEAD" ? "GET" : std::string_view(request.method);
  std::string_view path;  // of the routes that count
  for (const Route& route : routes()) {
    if (path.empty() ? !matches(route.path, request.path) : path != route.path) continue;
    path = route.path;
    if (route.method == method) return &route;
    allowed += (allowed.empty() ? "" : ", ") + std::string(route.method);
  }
  return nullptr;
}

const Route* find_post_route(std::string_view path) {
  const auto found = std::ranges::find_if(routes(), [&](const Route& route) {
    return route.path == path && std::string_view(route.method) == "POST";
  });
  return found == routes().end() ? nullptr : &*found;
}

std::string canonical_path(std::string_view path, std::string_view root_path) {
  if (path.starts_with(root_path) &&
      (path.size() == root_path.size() || path[root_path.size()] == '/')) {
    path.remove_prefix(root_path.size());
  }
  const auto known = [](std::string_view one) {
    return std::ranges::any_of(routes(),
                               [&](const Route& route) { return matches(route.path, one); });
  };
  if (path.empty()) return "/";
  std::string versioned = "/v1" + std::string(path);
  return !known(path) && known(versioned) ? versioned : std::string(path);
}

}  // namespace penstock
