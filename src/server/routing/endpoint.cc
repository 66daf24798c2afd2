#include "server/routing/endpoint.h"

#include <algorithm>

namespace penstock {
namespace {

// Whether `path` matches an endpoint's pattern. parts: receives the values of placeholders.
bool matches(std::string_view pattern, std::string_view path,
             std::vector<std::string>* parts = nullptr) {
  const size_t brace = pattern.find('{');
  if (brace == std::string_view::npos) return pattern == path;
  if (!path.starts_with(pattern.substr(0, brace))) return false;
  path.remove_prefix(brace);
  const std::string_view rest = pattern.substr(pattern.find('}') + 1);
  const size_t next = rest.find('{');
  const bool is_last = next == std::string_view::npos;
  if (is_last && !path.ends_with(rest)) return false;
  const size_t end = is_last ? path.size() - rest.size() : path.find(rest.substr(0, next));
  if (end == 0 || end == std::string_view::npos) return false;
  if (parts != nullptr) parts->emplace_back(path.substr(0, end));
  return is_last || matches(rest, path.substr(end), parts);
}

}  // namespace

const Endpoint* find_endpoint(const HttpRequest& request, std::string& allowed) {
  const std::string_view method =
      request.method == "HEAD" ? "GET" : std::string_view(request.method);
  std::string_view path;  // path of the endpoints to list
  for (const Endpoint& endpoint : endpoints()) {
    if (path.empty() ? !matches(endpoint.path, request.path) : path != endpoint.path) continue;
    path = endpoint.path;
    if (endpoint.method == method) return &endpoint;
    allowed += (allowed.empty() ? "" : ", ") + std::string(endpoint.method);
  }
  return nullptr;
}

std::vector<std::string> path_parts(std::string_view pattern, std::string_view path) {
  std::vector<std::string> parts;
  matches(pattern, path, &parts);
  return parts;
}

const Endpoint* find_post_endpoint(std::string_view path) {
  const auto found = std::ranges::find_if(endpoints(), [&](const Endpoint& endpoint) {
    return endpoint.path == path && std::string_view(endpoint.method) == "POST";
  });
  return found == endpoints().end() ? nullptr : &*found;
}

std::string canonical_path(std::string_view path, std::string_view root_path) {
  if (path.starts_with(root_path) &&
      (path.size() == root_path.size() || path[root_path.size()] == '/')) {
    path.remove_prefix(root_path.size());
  }
  const auto known = [](std::string_view one) {
    return std::ranges::any_of(
        endpoints(), [&](const Endpoint& endpoint) { return matches(endpoint.path, one); });
  };
  if (path.empty()) return "/";
  std::string versioned = "/v1" + std::string(path);
  return !known(path) && known(versioned) ? versioned : std::string(path);
}

}  // namespace penstock
