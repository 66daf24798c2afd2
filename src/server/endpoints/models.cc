// GET /v1/models, /v1/models/{id}, POST /v1/models/load, /unload, /reload; GET /live, /health,
// /ready, /load, /version.
#include <algorithm>

#include "base/json_text.h"
#include "penstock/version.h"
#include "server/api/api_request.h"
#include "server/api/json_check.h"
#include "server/api/json_reader.h"
#include "server/api/ollama.h"
#include "server/api/schema_parts.h"
#include "server/routes/router.h"
#include "server/routing/client_reason.h"
#include "server/routing/endpoint.h"
#include "server/routing/errors.h"
#include "server/services/model_loads.h"
#include "server/services/readiness.h"
#include "server/services/request_record.h"
#include "server/services/served_models.h"
#include "server/services/services.h"

namespace penstock {

EndpointSchema model_admin_request, model_admin_reply;

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
    body["max_model_len"] = most;  // unknown before the first load
  if (runner != Runner::kAuto) {
    json& modalities = body["input_modalities"] = json::array({"text"});
    if (model.sees()) modalities.push_back("image");
    if (model.watches()) modalities.push_back("video");
    if (model.hears()) modalities.push_back("audio");
  }
  if (now.state == ModelState::kFailed) body["error"] = without_folders(now.failure.message);
  return body;
}

// key: of the request. File paths are shown only to administrators.
json adapter_json(const ServedModel& model, const ServedAdapter& adapter, const std::string& key) {
  json body = model_json(model, adapter.name);
  body["created"] = adapter.created, body["parent"] = model.name();
  body["root"] = key.empty() ? adapter.path : adapter.name;
  return body;
}

// Describes a router as a model.
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

// Adds the fields of Anthropic's model objects.
void add_anthropic_fields(json& model) {
  using std::chrono::system_clock;
  const json name = model["id"];
  model["type"] = "model";
  model["display_name"] = name;
  model["created_at"] =
      rfc3339(system_clock::time_point(std::chrono::seconds(model["created"].get<int64_t>())));
}

// Returns the model named in the body of an administrator's request.
Result<ServedModel*> read_model_name(Services& services, const HttpRequest& request) {
  constexpr size_t kMostBytes = 64 * 1024;
  ASSIGN_OR_RETURN(const json body, read_json(request.body, kMostBytes));
  RETURN_IF_ERROR(check_json(model_admin_request(), body));
  return services.models.find(body["model"].get<std::string>());
}

enum class ModelAction : uint8_t { kLoad, kUnload, kReload };

net::awaitable<void> change_model(Services& services, Exchange& exchange, ModelAction action) {
  const auto named = read_model_name(services, exchange.request());
  if (!named) co_return co_await exchange.reply(error_reply(named.error()));
  ServedModel& model = **named;
  const auto begin = std::chrono::steady_clock::now();
  Status done;
  if (action == ModelAction::kLoad) done = co_await services.loads.load(model, true);
  if (action == ModelAction::kReload) done = co_await services.loads.reload(model);
  if (action == ModelAction::kUnload) co_await services.loads.unload(model);
  if (!done) {
    const std::string why =
        fmt::format("{}: {}", model.name(), without_folders(done.error().message));
    co_return co_await exchange.reply(error_reply(exchange.request(), 503, why));
  }
  const std::chrono::duration<double> elapsed = std::chrono::steady_clock::now() - begin;
  const json body = {{"model", model.name()},
                     {"state", name_of(model.condition().state)},
                     {"seconds", elapsed.count()}};
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
  static const nlohmann::json value = schema::open(
      {{"model", plain("string")}, {"state", plain("string")}, {"seconds", plain("number")}},
      {"model", "state", "seconds"});
  return value;
}

net::awaitable<void> post_model_load(Services& services, Exchange& exchange) {
  co_await change_model(services, exchange, ModelAction::kLoad);
}

net::awaitable<void> post_model_unload(Services& services, Exchange& exchange) {
  co_await change_model(services, exchange, ModelAction::kUnload);
}

net::awaitable<void> post_model_reload(Services& services, Exchange& exchange) {
  co_await change_model(services, exchange, ModelAction::kReload);
}

net::awaitable<void> get_models(Services& services, Exchange& exchange) {
  json body = {{"object", "list"}, {"data", json::array()}};
  for (const auto& model : services.models.all()) {
    if (!model->serves(record_of(exchange).key)) continue;
    for (const std::string& name : model->names()) body["data"].push_back(model_json(*model, name));
    for (const ServedAdapterRef& adapter : model->adapters().all())
      body["data"].push_back(adapter_json(*model, *adapter, record_of(exchange).key));
  }
  for (const std::string& name : services.router->names(record_of(exchange).key))
    body["data"].push_back(route_json(name));
  json first, last;
  for (json& one : body["data"]) {
    add_anthropic_fields(one);
    last = one["id"];
    if (first.is_null()) first = last;
  }
  body["has_more"] = false;
  body["first_id"] = std::move(first), body["last_id"] = std::move(last);
  co_await exchange.reply(json_reply(body));
}

net::awaitable<void> get_model(Services& services, Exchange& exchange) {
  const std::string id = exchange.request().path.substr(std::string_view("/v1/models/").size());
  const std::vector<std::string> routes = services.router->names(record_of(exchange).key);
  if (std::ranges::find(routes, id) != routes.end()) {
    json body = route_json(id);
    add_anthropic_fields(body);
    co_return co_await exchange.reply(json_reply(body));
  }
  const auto model = services.models.find(id, record_of(exchange).key);
  if (!model) co_return co_await exchange.reply(error_reply(model.error()));
  const ServedAdapterRef adapter = (*model)->adapters().find(id);
  json body = adapter != nullptr ? adapter_json(**model, *adapter, record_of(exchange).key)
                                 : model_json(**model, id);
  add_anthropic_fields(body);
  co_await exchange.reply(json_reply(body));
}

net::awaitable<void> get_live(Services&, Exchange& exchange) {
  const json body = {{"status", "alive"}};
  co_await exchange.reply(json_reply(body));
}

net::awaitable<void> get_health(Services& services, Exchange& exchange) {
  std::optional<HttpReply> reply = services.readiness.not_ready(exchange.request());
  if (!reply) {
    const json body = {{"status", "healthy"}};
    co_return co_await exchange.reply(json_reply(body));
  }
  json body = bounded_json<json>(reply->body);
  const bool loading = services.readiness.state() == Readiness::State::kLoading;
  body["status"] = loading ? "loading" : "draining";
  reply->body = dump(body);
  co_await exchange.reply(*std::move(reply));
}

net::awaitable<void> get_ready(Services& services, Exchange& exchange) {
  if (auto reply = services.readiness.not_ready(exchange.request()))
    co_return co_await exchange.reply(std::move(*reply));
  if (services.models.sleeps())
    co_return co_await exchange.reply(error_reply(exchange.request(), 503, "asleep"));
  const json body = {{"status", "ready"}};
  co_await exchange.reply(json_reply(body));
}

net::awaitable<void> get_load(Services& services, Exchange& exchange) {
  const json body = {{"server_load", services.under_way.n_generating.load()}};
  co_await exchange.reply(json_reply(body));
}

net::awaitable<void> get_version(Services&, Exchange& exchange) {
  const json body = {{"version", kVersion}};
  co_await exchange.reply(json_reply(body));
}

}  // namespace penstock
