// GET /openapi.json, generated from the list of endpoints and their schemas.
#include "server/endpoints/openapi.h"

#include "base/ascii.h"
#include "penstock/version.h"
#include "server/api/api_request.h"
#include "server/api/schemas.h"
#include "server/routing/endpoint.h"
#include "server/services/config.h"
#include "server/services/services.h"

namespace penstock {
namespace {

json content(const char* type, json schema) { return {{type, {{"schema", std::move(schema)}}}}; }

json error_response(const char* description) {
  return {{"description", description},
          {"content", content("application/json", {{"$ref", "#/components/schemas/Error"}})}};
}

json responses(const Endpoint& endpoint) {
  json success = {{"description", "success"}};
  if (endpoint.reply != nullptr) {
    success["content"] = content("application/json", endpoint.reply());
  } else if (std::string_view(endpoint.path).ends_with(".json") ||
             std::string_view(endpoint.method) == "POST") {
    success["content"] = content("application/json", {{"type", "object"}});
  } else {
    success["content"] = content("text/plain", {{"type", "string"}});
  }
  const bool is_ollamas = std::string_view(endpoint.path).starts_with("/api/");
  const char* stream = is_ollamas ? "application/x-ndjson" : "text/event-stream";
  // Streams: events are described by schema, lines of JSON as text.
  if (endpoint.streams)
    success["content"][stream] = {
        {"schema", is_ollamas ? json{{"type", "string"}} : json::object()}};
  json result = {{"200", success}};
  result["401"] = error_response("a key is needed, or it is unknown");
  if (endpoint.request != nullptr) {
    result["400"] = error_response(
        "the body is not what the schema says, or asks for what the model cannot do");
    result["404"] = error_response("another model's name");
    result["413"] = error_response("the body is too large");
    result["429"] = error_response("the queue is full or a quota is used up");
  }
  if (std::string_view(endpoint.path).find('{') != std::string_view::npos)
    result["404"] = error_response("no such thing");
  result["503"] = error_response("shutting down");
  result["default"] = error_response("an error");
  for (auto one = result.begin(); is_ollamas && one != result.end(); ++one) {
    if (one.key() != "200")
      (*one)["content"] =
          content("application/json", {{"$ref", "#/components/schemas/OllamaError"}});
  }
  return result;
}

json operation(const Endpoint& endpoint) {
  json result = {{"summary", endpoint.summary}, {"responses", responses(endpoint)}};
  if (endpoint.access == Access::kOpen) result["security"] = json::array();
  if (endpoint.request != nullptr) {
    result["requestBody"] = {{"required", true},
                             {"content", content("application/json", endpoint.request())}};
  }
  const std::string_view path = endpoint.path;
  for (size_t at = path.find('{'); at != std::string_view::npos; at = path.find('{', at + 1)) {
    const std::string_view name = path.substr(at + 1, path.find('}', at) - at - 1);
    const json schema = {{"type", "string"}, {"minLength", 1}};
    result["parameters"].push_back(
        {{"name", name}, {"in", "path"}, {"required", true}, {"schema", schema}});
  }
  return result;
}

// Allows fields that the schemas do not list.
void open_objects(json& value) {
  if (value.is_object()) {
    const auto others = value.find("additionalProperties");
    if (others != value.end() && *others == false) value.erase(others);
  }
  if (!value.is_structured()) return;
  for (json& inner : value) open_objects(inner);
}

json document(bool strict) {
  json paths = json::object();
  for (const Endpoint& endpoint : endpoints()) {
    // endpoints of the web page are not part of the API
    if (endpoint.access == Access::kOpen && endpoint.reply == nullptr) continue;
    std::string method = endpoint.method;
    for (char& c : method) c = ascii_lower(c);
    paths[endpoint.path][method] = operation(endpoint);
  }
  const json ollama_error = {{"type", "object"},
                             {"properties", {{"error", {{"type", "string"}}}}},
                             {"required", json::array({"error"})}};
  const json schemes = {{"key", {{"type", "http"}, {"scheme", "bearer"}}}};
  if (!strict) open_objects(paths);
  return {{"openapi", "3.1.0"},
          {"info", {{"title", "Penstock"}, {"version", kVersion}}},
          {"paths", paths},
          {"components",
           {{"schemas", {{"Error", error_reply_schema()}, {"OllamaError", ollama_error}}},
            {"securitySchemes", schemes}}},
          {"security", json::array({{{"key", json::array()}}, json::object()})}};
}

}  // namespace

const std::string& api_description(bool strict) {
  // As long as it takes to make it, once: a process may have servers of both kinds.
  static const std::string open = dump(document(false)), closed = dump(document(true));
  return strict ? closed : open;
}

net::awaitable<void> get_openapi(Services& services, Exchange& exchange) {
  HttpReply reply;
  reply.body = api_description(services.config.strict_fields);
  if (const std::string& root = services.config.root_path; !root.empty()) {
    reply.body.pop_back();
    reply.body += R"(,"servers":[{"url":)" + dump(json(root)) + "}]}";
  }
  co_await exchange.reply(std::move(reply));
}

}  // namespace penstock
