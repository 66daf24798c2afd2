#include "server/server.h"

#include <openssl/crypto.h>
#include <spdlog/spdlog.h>

#include <ctime>
#include <filesystem>

#include "server/chat_setup.h"
#include "server/errors.h"

namespace penstock {
namespace {

// Whether `path` is `route`'s, up to its "{id}".
bool matches(std::string_view route, std::string_view path) {
  const size_t brace = route.find('{');
  if (brace == std::string_view::npos) return route == path;
  return path.size() > brace && path.substr(0, brace) == route.substr(0, brace);
}

bool equal_in_constant_time(std::string_view a, std::string_view b) {
  return a.size() == b.size() && CRYPTO_memcmp(a.data(), b.data(), a.size()) == 0;
}

}  // namespace

std::string path_tail(const Route& route, const std::string& path) {
  return path.substr(std::min(std::string_view(route.path).find('{'), path.size()));
}

Result<std::unique_ptr<Server>> Server::open(const ServerConfig& config) {
  std::unique_ptr<Server> server(new Server());
  server->config_ = config;
  server->created_ = std::time(nullptr);
  server->model_name_ = config.model_name.empty()
                            ? std::filesystem::path(config.engine.model).filename().string()
                            : config.model_name;
  // The socket first: an address in use should not cost the loading of a model.
  ASSIGN_OR_RETURN(
      server->http_,
      HttpServer::open(
          config.http, [raw = server.get()](Exchange& exchange) { return raw->handle(exchange); },
          [](int status, std::string_view message) { return error_body(status, message); }));
  ASSIGN_OR_RETURN(server->session_, Session::open(config.engine));
  ASSIGN_OR_RETURN(server->chat_, ChatSetup::open(*server->session_, config.chat));
  return server;
}

Server::~Server() = default;

void Server::run() {
  session_->engine().start();
  http_->run();
  session_->engine().stop();
}

void Server::stop() {
  if (stopping_.exchange(true)) return;
  http_->stop(config_.shutdown_timeout);
}

bool Server::authorized(const HttpRequest& request) const {
  if (config_.api_keys.empty()) return true;
  std::string_view key = request.header("authorization");
  key = key.starts_with("Bearer ") ? key.substr(7) : request.header("x-api-key");
  bool found = false;
  for (const std::string& known : config_.api_keys) found |= equal_in_constant_time(known, key);
  return found;
}

net::awaitable<void> Server::handle(Exchange& exchange) {
  const auto start = std::chrono::steady_clock::now();
  std::string failure;
  try {
    co_await dispatch(exchange);
  } catch (const std::exception& error) {
    failure = error.what();
  }
  if (!failure.empty()) {
    spdlog::error("{} {} {}: {}", exchange.request().id, exchange.request().method, exchange.request().path,
                  failure);
    if (!exchange.replied()) co_await exchange.reply(error_reply(500, "internal error"));
  }
  if (config_.log_requests) {
    const std::chrono::duration<double> elapsed = std::chrono::steady_clock::now() - start;
    spdlog::info("{} {} {} {} {:.3f} s", exchange.request().id, exchange.request().peer,
                 exchange.request().method, exchange.request().path, elapsed.count());
  }
}

net::awaitable<void> Server::dispatch(Exchange& exchange) {
  const HttpRequest& request = exchange.request();
  std::string allowed;
  for (const Route& route : routes()) {
    if (!matches(route.path, request.path)) continue;
    if (route.method != request.method) {
      allowed += (allowed.empty() ? "" : ", ") + std::string(route.method);
      continue;
    }
    if (route.access == Access::kKey && !authorized(request)) {
      co_return co_await exchange.reply(error_reply(401, "missing or unknown API key"));
    }
    co_return co_await route.handler(*this, exchange);
  }
  if (allowed.empty()) {
    co_return co_await exchange.reply(
        error_reply(404, fmt::format("no such route: {} {}", request.method, request.path)));
  }
  HttpReply reply =
      error_reply(405, fmt::format("{}: expected {}, got {}", request.path, allowed, request.method));
  reply.headers.emplace_back("Allow", allowed);
  co_await exchange.reply(std::move(reply));
}

}  // namespace penstock
