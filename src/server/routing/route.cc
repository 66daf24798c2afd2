#include "server/routing/route.h"

#include <algorithm>

namespace penstock {
namespace {

// Whether `path` matches a route's pattern. parts: receives the values of placeholders.
bool matches(std::string_view route, std::string_view path,
             std::vector<std::string>* parts = nullptr) {
  const size_t brace = route.find('{');
  if (brace == std::string_view::npos) return route == path;
  if (!path.starts_with(route.substr(0, brace))) return false;
  path.remove_prefix(brace);
  const std::string_view rest = route.substr(route.find('}') + 1);
  const size_t next = rest.find('{');
  const bool is_last = next == std::string_view::npos;
  if (is_last && !path.ends_with(rest)) return false;
  const size_t end = is_last ? path.size() - rest.size() : path.find(rest.substr(0, next));
  if (end == 0 || end == std::string_view::npos) return false;
  if (parts != nullptr) parts->emplace_back(path.substr(0, end));
  return is_last || matches(rest, path.substr(end), parts);
}

}  // namespace

const Route* find_route(const HttpRequest& request, std::string& allowed) {
  const std::string_view method =
      request.method == "HEAD" ? "GET" : std::string_view(request.method);
  std::string_view path;  // path of the routes to list
  for (const Route& route : routes()) {
    if (path.empty() ? !matches(route.path, request.path) : path != route.path) continue;
    path = route.path;
    if (route.method == method) return &route;
    allowed += (allowed.empty() ? "" : ", ") + std::string(route.method);
  }
  return nullptr;
}

std::vector<std::string> path_parts(std::string_view route, std::string_view path) {
  std::vector<std::string> parts;
  matches(route, path, &parts);
  return parts;
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
