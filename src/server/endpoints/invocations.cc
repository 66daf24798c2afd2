// POST /invocations (vLLM's, for SageMaker): dispatches any request to the route that its fields
// imply.
#include "server/api/api_request.h"
#include "server/api/schema_parts.h"
#include "server/handlers/respond.h"
#include "server/http/apart_threads.h"
#include "server/routing/endpoint.h"
#include "server/routing/errors.h"
#include "server/services/request_record.h"
#include "server/services/served_models.h"
#include "server/services/services.h"

namespace penstock {

EndpointSchema invocations_request;

namespace {

struct ShapeRow {
  const char* first;   // fields that the body must have
  const char* second;  // null: only `first`
  const char* path;    // path of the POST route
};
// The list of body shapes: the first matching row wins.
constexpr ShapeRow kShapes[] = {{"messages", nullptr, "/v1/chat/completions"},
                                {"prompt", nullptr, "/v1/completions"},
                                {"query", "documents", "/v1/rerank"},
                                {"query", "texts", "/v1/rerank"},
                                {"text_1", "text_2", "/v1/score"},
                                {"queries", "documents", "/v1/score"},
                                {"queries", "items", "/v1/score"},
                                {"data_1", "data_2", "/v1/score"},
                                {"input", "task", "/pooling"},
                                {"input", nullptr, "/v1/embeddings"}};

// Whether the model is a classifier, whose vectors are class scores.
bool classifies(const Services& services, const HttpRequest& request, const json& body) {
  const auto model = lease_named(services, request, get_string(body, "model"));
  return model && (*model)->pools() && (*model)->pooling().model().info().labels.size() > 1;
}

Result<const char*> path_for(const Services& services, const HttpRequest& request) {
  ASSIGN_OR_RETURN(const json body, read_json_body(services, request));
  for (const ShapeRow& row : kShapes) {
    const auto is_there = [&](const char* name) {
      return name == nullptr || !get_field(body, name).is_null();
    };
    if (!is_there(row.first) || !is_there(row.second)) continue;
    const bool is_input = row.path == std::string_view("/v1/embeddings");
    return is_input && classifies(services, request, body) ? "/classify" : row.path;
  }
  return errorf(ErrorCode::kInvalidArgument,
                "body: expected messages, prompt, input, query and documents, or two lists of "
                "texts to score (text_1 and text_2)");
}

}  // namespace

const nlohmann::json& invocations_request() {
  using namespace schema;  // NOLINT: a schema
  static const Json value =
      open({{"model", text("the served model's name; the other fields are those of the route "
                           "that the body's fields choose")}});
  return value;
}

net::awaitable<void> post_invocations(Services& services, Exchange& exchange) {
  Result<const char*> path;
  co_await services.run_apart(exchange, [&] { path = path_for(services, exchange.request()); });
  if (!path) co_return co_await exchange.reply(error_reply(path.error()));
  exchange.set_path(*path);
  co_await respond(services, *find_post_endpoint(*path), exchange);
}

}  // namespace penstock
