// GET /v1/models, /v1/models/{id}, /health, /ready, /version.
#include "penstock/version.h"
#include "server/api_request.h"
#include "server/endpoints.h"
#include "server/errors.h"

namespace penstock {
namespace {

json model_json(Server& server) {
  return {{"id", server.model_name()},
          {"object", "model"},
          {"created", server.created()},
          {"owned_by", "penstock"},
          {"root", server.model_name()},
          {"parent", nullptr},
          {"max_model_len", server.session().engine().info().max_model_len}};
}

}  // namespace

net::awaitable<void> get_models(Server& server, Exchange& exchange) {
  json body = {{"object", "list"}};
  body["data"].push_back(model_json(server));
  co_await exchange.reply(json_reply(body));
}

net::awaitable<void> get_model(Server& server, Exchange& exchange) {
  const std::string id = exchange.request().path.substr(std::string_view("/v1/models/").size());
  if (id != server.model_name()) {
    co_return co_await exchange.reply(
        error_reply(404, fmt::format("model: expected {}, got {}", server.model_name(), id)));
  }
  co_await exchange.reply(json_reply(model_json(server)));
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

net::awaitable<void> get_version(Server&, Exchange& exchange) {
  const json body = {{"version", kVersion}};
  co_await exchange.reply(json_reply(body));
}

}  // namespace penstock
