// GET /v1/models, /v1/models/{id}, POST /v1/models/load, /unload, /reload; GET /health, /ready, /load, /version.
#include <algorithm>

#include "penstock/version.h"
#include "server/api/api_request.h"
#include "server/api/errors.h"
#include "server/api/json_check.h"
#include "server/api/json_reader.h"
#include "server/api/schema_parts.h"
#include "server/client_reason.h"
#include "server/server.h"

namespace penstock {

RouteSchema model_admin_request, model_admin_reply;

namespace {

json model_json(const ServedModel& model, const std::string& name) {
  const ServedModel::Condition now = model.condition();
  json body = {{"id", name},
               {"object", "model"},
               {"created", model.created()},
               {"owned_by", "penstock"},
               {"root", model.name()},
               {"parent", nullptr},
               {"max_model_len", nullptr},
               {"state", name_of(now.state)},
               {"runner", nullptr}};
  const Runner runner = model.runner();
  if (runner != Runner::kAuto) body["runner"] = runner == Runner::kPooling ? "pooling" : "generate";
  if (const int most = model.max_model_len(); most > 0)
    body["max_model_len"] = most;  // else it is not known yet
  if (now.state == ModelState::kFailed) body["error"] = without_folders(now.failure.message);
  return body;
}

json adapter_json(const ServedModel& model, const ServedAdapter& adapter) {
  json body = model_json(model, adapter.name);
  body["created"] = adapter.created, body["root"] = adapter.path, body["parent"] = model.name();
  return body;
}

// A name that leaves the choice to the server.
json route_json(const std::string& name) {
  return {{"id", name},
          {"object", "model"},
          {"created", 0},
          {"owned_by", "penstock"},
          {"root", name},
          {"parent", nullptr},
          {"max_model_len", nullptr},
          {"state", "loaded"}};
}

// The model that the body of an admin's request names.
Result<ServedModel*> read_model_name(Server& server, const HttpRequest& request) {
  constexpr size_t kMostBytes = 64 * 1024;
  ASSIGN_OR_RETURN(const json body, read_json(request.body, kMostBytes));
  RETURN_IF_ERROR(check_json(model_admin_request(), body));
  return server.models().find(body["model"].get<std::string>());
}

enum class ModelAction : uint8_t { kLoad, kUnload, kReload };

net::awaitable<void> change_model(Server& server, Exchange& exchange, ModelAction action) {
  const auto named = read_model_name(server, exchange.request());
  if (!named) co_return co_await exchange.reply(error_reply(named.error()));
  ServedModel& model = **named;
  const auto begin = std::chrono::steady_clock::now();
  Status done;
  if (action == ModelAction::kLoad) done = co_await server.load(model, true);
  if (action == ModelAction::kReload) done = co_await server.reload(model);
  if (action == ModelAction::kUnload) co_await server.unload(model);
  if (!done) {
    const std::string why = fmt::format("{}: {}", model.name(), without_folders(done.error().message));
    co_return co_await exchange.reply(error_reply(exchange.request(), 503, why));
  }
  const std::chrono::duration<double> elapsed = std::chrono::steady_clock::now() - begin;
  const json body = {
      {"model", model.name()}, {"state", name_of(model.condition().state)}, {"seconds", elapsed.count()}};
  co_await exchange.reply(json_reply(body));
}

}  // namespace

const nlohmann::json& model_admin_request() {
  static const nlohmann::json value = schema::closed(
      {{"model", {{"type", "string"}, {"description", "the served model's name"}}}}, {"model"});
  return value;
}

const nlohmann::json& model_admin_reply() {
  using schema::plain;
  static const nlohmann::json value =
      schema::open({{"model", plain("string")}, {"state", plain("string")}, {"seconds", plain("number")}},
                   {"model", "state", "seconds"});
  return value;
}

net::awaitable<void> post_model_load(Server& server, Exchange& exchange) {
  co_await change_model(server, exchange, ModelAction::kLoad);
}

net::awaitable<void> post_model_unload(Server& server, Exchange& exchange) {
  co_await change_model(server, exchange, ModelAction::kUnload);
}

net::awaitable<void> post_model_reload(Server& server, Exchange& exchange) {
  co_await change_model(server, exchange, ModelAction::kReload);
}

net::awaitable<void> get_models(Server& server, Exchange& exchange) {
  json body = {{"object", "list"}, {"data", json::array()}};
  for (const auto& model : server.models().all()) {
    if (!model->serves(exchange.request().key)) continue;
    for (const std::string& name : model->names()) body["data"].push_back(model_json(*model, name));
    for (const ServedAdapterRef& adapter : model->adapters().all())
      body["data"].push_back(adapter_json(*model, *adapter));
  }
  for (const std::string& name : server.router().names(exchange.request().key))
    body["data"].push_back(route_json(name));
  co_await exchange.reply(json_reply(body));
}

net::awaitable<void> get_model(Server& server, Exchange& exchange) {
  const std::string id = exchange.request().path.substr(std::string_view("/v1/models/").size());
  const std::vector<std::string> routes = server.router().names(exchange.request().key);
  if (std::ranges::find(routes, id) != routes.end()) {
    const json body = route_json(id);
    co_return co_await exchange.reply(json_reply(body));
  }
  const auto model = server.models().find(id, exchange.request().key);
  if (!model) co_return co_await exchange.reply(error_reply(model.error()));
  const ServedAdapterRef adapter = (*model)->adapters().find(id);
  const json body = adapter != nullptr ? adapter_json(**model, *adapter) : model_json(**model, id);
  co_await exchange.reply(json_reply(body));
}

net::awaitable<void> get_health(Server&, Exchange& exchange) {
  const json body = {{"status", "healthy"}};
  co_await exchange.reply(json_reply(body));
}

net::awaitable<void> get_ready(Server& server, Exchange& exchange) {
  if (auto reply = server.not_ready(exchange.request())) co_return co_await exchange.reply(std::move(*reply));
  const json body = {{"status", "ready"}};
  co_await exchange.reply(json_reply(body));
}

net::awaitable<void> get_load(Server& server, Exchange& exchange) {
  const json body = {{"server_load", server.n_generating()}};
  co_await exchange.reply(json_reply(body));
}

net::awaitable<void> get_version(Server&, Exchange& exchange) {
  const json body = {{"version", kVersion}};
  co_await exchange.reply(json_reply(body));
}

}  // namespace penstock
