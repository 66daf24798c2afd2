// GET /v1/models, /v1/models/{id}, /health, /ready, /load, /version.
#include "penstock/version.h"
#include "server/api/api_request.h"
#include "server/api/errors.h"
#include "server/server.h"

namespace penstock {
namespace {

json model_json(const ServedModel& model, const std::string& name) {
  return {{"id", name},
          {"object", "model"},
          {"created", model.created()},
          {"owned_by", "penstock"},
          {"root", model.name()},
          {"parent", nullptr},
          {"max_model_len", model.max_model_len()}};
}

}  // namespace

net::awaitable<void> get_models(Server& server, Exchange& exchange) {
  json body = {{"object", "list"}};
  for (const auto& model : server.models().all()) {
    for (const std::string& name : model->names()) body["data"].push_back(model_json(*model, name));
  }
  co_await exchange.reply(json_reply(body));
}

net::awaitable<void> get_model(Server& server, Exchange& exchange) {
  const std::string id = exchange.request().path.substr(std::string_view("/v1/models/").size());
  const auto model = server.models().find(id);
  if (!model) co_return co_await exchange.reply(error_reply(model.error()));
  co_await exchange.reply(json_reply(model_json(**model, id)));
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
