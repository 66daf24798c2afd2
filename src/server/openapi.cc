// GET /openapi.json, generated from the list of routes and the list of sampling parameters.
#include "frontend/params_json.h"
#include "penstock/version.h"
#include "server/api_request.h"
#include "server/endpoints.h"

namespace penstock {
namespace {

// The JSON schema of one sampling parameter, by its C++ type. Every optional field accepts null.
template <class T>
json field_schema(const T&) {
  if constexpr (std::is_same_v<T, bool>) return {{"type", {"boolean", "null"}}};
  if constexpr (std::is_integral_v<T> && !std::is_same_v<T, bool>) return {{"type", {"integer", "null"}}};
  if constexpr (std::is_floating_point_v<T>) return {{"type", {"number", "null"}}};
  if constexpr (std::is_same_v<T, std::optional<uint64_t>>) return {{"type", {"integer", "null"}}};
  if constexpr (std::is_same_v<T, std::optional<int>>) return {{"type", {"integer", "boolean", "null"}}};
  if constexpr (std::is_same_v<T, std::vector<std::string>>) {
    return {{"type", {"string", "array", "null"}}, {"items", {{"type", "string"}}}};
  }
  if constexpr (std::is_same_v<T, std::vector<TokenId>>) {
    return {{"type", {"array", "null"}}, {"items", {{"type", "integer"}}}};
  }
  return {{"type", {"object", "null"}}, {"additionalProperties", {{"type", "number"}}}};
}

json request_body(const Route& route) {
  json schema = json::parse(route.request_schema);
  if (std::string_view(route.path).starts_with("/v1/")) {
    const SamplingParams defaults;
    SamplingParams::visit(defaults, [&](const char* name, const auto& value, const char* help) {
      schema["properties"][name] = field_schema(value);
      schema["properties"][name]["description"] = help;
    });
  }
  return {{"required", true}, {"content", {{"application/json", {{"schema", schema}}}}}};
}

}  // namespace

net::awaitable<void> get_openapi(Server&, Exchange& exchange) {
  json paths = json::object();
  for (const Route& route : routes()) {
    std::string method = route.method;
    for (char& c : method) c = static_cast<char>(std::tolower(c));
    json operation = {{"summary", route.summary},
                      {"responses",
                       {{"200", {{"description", "success"}}}, {"default", {{"description", "an error object"}}}}}};
    if (route.request_schema != nullptr) operation["requestBody"] = request_body(route);
    if (std::string_view(route.path).find("{id}") != std::string_view::npos) {
      operation["parameters"] = json::array(
          {{{"name", "id"}, {"in", "path"}, {"required", true}, {"schema", {{"type", "string"}}}}});
    }
    paths[route.path][method] = std::move(operation);
  }
  const json document = {{"openapi", "3.1.0"},
                         {"info", {{"title", "Penstock"}, {"version", kVersion}}},
                         {"paths", paths}};
  co_await exchange.reply(json_reply(document));
}

}  // namespace penstock
