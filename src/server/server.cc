#include "server/server.h"

#include <algorithm>
#include <boost/asio/ip/address.hpp>
#include <cmath>
#include <filesystem>
#include <thread>

#include "server/routes/dispatch.h"
#include "server/routing/errors.h"
#include "server/services/request_record.h"
#include "server/services/request_spans.h"

namespace penstock {
namespace {

// Limits bodies of endpoints that take only a few names, and of clients that may not send a body.
size_t most_body_of(const Endpoint& endpoint) {
  constexpr size_t kFewNames = 64 * 1024;  // bytes
  const bool large =
      endpoint.takes_forms || (endpoint.request != nullptr && endpoint.access == Access::kKey &&
                               std::string_view(endpoint.path) != "/v1/batches");
  return large ? SIZE_MAX : kFewNames;
}

bool is_loopback(const std::string& host) {
  boost::system::error_code error;
  return host == "localhost" || net::ip::make_address(host, error).is_loopback();
}

OriginConfig origin_config(const ServerConfig& config, bool needs_key) {
  OriginConfig result;
  result.allowed_origins = config.cors_origins;
  result.allowed_hosts = config.allowed_hosts;
  result.listening_host = config.http.host;
  // With a key or a certificate, a foreign page cannot use the server under a false name.
  if (needs_key || !config.http.tls_certificate.empty()) return result;
  result.host_check = is_loopback(config.http.host) ? HostCheck::kEverybody : HostCheck::kPages;
  return result;
}

// Sets default model names and normalizes root_path to "" or "/path".
Status check_config(ServerConfig& config) {
  for (ModelSettings& model : config.models) {
    if (model.names.empty())
      model.names = {std::filesystem::path(model.engine.model).filename().string()};
  }
  std::string& root = config.root_path;
  while (root.ends_with('/')) root.pop_back();
  if (root.empty() || (root[0] == '/' && root.find_first_of(" ?#%\\\"<>") == std::string::npos))
    return {};
  return errorf(ErrorCode::kInvalidArgument, "root path: expected a path such as /llm, got {}",
                root);
}

HttpReply moved_to(const std::string& path) {
  HttpReply reply;
  reply.status = 308;
  reply.headers.emplace_back("Location", path);
  return reply;
}

// Increments a counter for the object's lifetime.
class CountedIn {
 public:
  explicit CountedIn(std::atomic<int>* count) : count_(count) {
    if (count_ != nullptr) count_->fetch_add(1);
  }
  ~CountedIn() {
    if (count_ != nullptr) count_->fetch_sub(1);
  }
  CountedIn(const CountedIn&) = delete;
  CountedIn& operator=(const CountedIn&) = delete;

 private:
  std::atomic<int>* count_;
};

}  // namespace

Server::Server(const ServerConfig& config, std::unique_ptr<RequestLog> log)
    : config_(config),
      log_(std::move(log)),
      models_(config.any_model_name, config.models_memory, config.unload_timeout),
      readiness_(models_),
      accounts_(config_, data_, models_, *log_, traffic_),
      compilations_(std::clamp(std::thread::hardware_concurrency() / 2, 1u, 4u)),
      loads_(models_),
      services_{.config = config_,
                .log = *log_,
                .models = models_,
                .loads = loads_,
                .adapter_folders = adapter_folders_,
                .data = data_,
                .accounts = accounts_,
                .readiness = readiness_,
                .traffic = traffic_,
                .apart = apart_,
                .compilations = compilations_,
                .chores = chores_,
                .background = background_,
                .under_way = under_way_} {
  services_.trusts_templates = std::ranges::any_of(
      config.models, [](const ModelSettings& model) { return model.chat.trust_request_template; });
}

Server::~Server() {
  accounts_.stop_watching();  // first: its callback uses the members below
  models_.stop();             // their events go to exchanges of http_
}

Result<std::unique_ptr<Server>> Server::open(const ServerConfig& config) {
  ASSIGN_OR_RETURN(auto log, RequestLog::open(config.log));
  std::unique_ptr<Server> server(new Server(config, std::move(log)));
  RETURN_IF_ERROR(check_config(server->config_));
  for (const ModelSettings& model : server->config_.models)
    RETURN_IF_ERROR(server->models_.add(std::make_unique<ServedModel>(model)));
  ASSIGN_OR_RETURN(server->adapter_folders_, AdapterFolders::open(config.adapter_folders));
  if (!config.otlp.url.empty()) {
    server->exporter_ = std::make_unique<OtlpExporter>(
        config.otlp, [log = server->log_.get()](std::string_view message) { log->warn(message); });
    server->services_.exporter = server->exporter_.get();
  }
  if (!config.mcp.servers.empty()) {
    server->mcp_ = std::make_unique<McpServers>(
        config.mcp, [log = server->log_.get()](std::string_view line) { log->warn(line); });
    server->services_.mcp = server->mcp_.get();
  }
  if (config.allow_image_urls) {
    server->image_urls_ = std::make_unique<ImageUrls>(ImageUrls::Limits());
    server->services_.image_urls = server->image_urls_.get();
  }
  server->open_data();
  RETURN_IF_ERROR(server->open_replies());
  ASSIGN_OR_RETURN(server->router_, Router::open(server->services_, config.routes));
  server->services_.router = server->router_.get();
  RETURN_IF_ERROR(server->accounts_.open(
      [raw = server.get()](std::string_view act, const ApiKeyRecord& record) {
        raw->note_key(act, record);
      }));
  if (config.listens) RETURN_IF_ERROR(server->listen());
  return server;
}

void Server::open_data() {
  data_.open(config_.data_dir, config_.store_limits, *log_);
  if (data_.get() == nullptr) return;
  acts_.open(data_.get()->audit.get(), log_.get());
  batches_ = std::make_unique<BatchRunner>(services_, *data_.get()->batches);
  services_.batches = batches_.get();
}

Status Server::listen() {
  ASSIGN_OR_RETURN(origins_, Origins::open(origin_config(config_, needs_key())));
  HttpConfig http = config_.http;
  constexpr size_t kLargestAtOnce = 4;
  http.max_total_reply_bytes = std::max(
      http.max_total_reply_bytes, kLargestAtOnce * static_cast<size_t>(config_.max_reply_bytes));
  ASSIGN_OR_RETURN(http_, HttpServer::open(
                              http, [this](Exchange& exchange) { return plan(exchange); },
                              [root = config_.root_path](std::string_view target, int status,
                                                         std::string_view message) {
                                return error_body_at(canonical_path(target, root), status, message);
                              }));
  services_.http = &http_->counters();
  return {};
}

// Called on the thread that watches the key file. Batches check for themselves.
void Server::note_key(std::string_view act, const ApiKeyRecord& record) {
  acts_.note_key(act, record);
  if (accounts_.is_revoked(record.id, "")) background_.cancel_those_of(record.id);
}

// Checks the embedders that are loaded at the start; others are checked on use.
Status Server::check_embedders() const {
  std::vector<std::string> names = {config_.reply_cache_embedder};
  for (const RouteConfig& route : config_.routes) names.push_back(route.embedder);
  for (const std::string& name : names) {
    ServedModel* const model = name.empty() ? nullptr : models_.named(name);
    const ModelLease lease = model == nullptr ? nullptr : model->lease(false);
    if (lease == nullptr || lease->pools()) continue;
    return errorf(ErrorCode::kInvalidArgument,
                  "{} gives text and no vectors, which routes and the cache by meaning are to ask "
                  "it for: its runner must be pooling",
                  name);
  }
  return {};
}

// Stored in the data directory if it is usable, since its lock is then held.
Status Server::open_replies() {
  const std::string& embedder = config_.reply_cache_embedder;
  if (!embedder.empty() && config_.reply_cache.bytes <= 0) {
    return errorf(ErrorCode::kInvalidArgument,
                  "--reply-cache-by-meaning: there is no cache, which --reply-cache SIZE makes");
  }
  if (const auto model = models_.find(embedder); !embedder.empty() && !model)
    return errorf(ErrorCode::kInvalidArgument, "--reply-cache-by-meaning: {}",
                  model.error().message);
  const bool on_disk = data_.get() != nullptr;
  replies_ = std::make_unique<KeptReplies>(config_.reply_cache, embedder,
                                           on_disk ? config_.data_dir + "/cache.db" : "");
  services_.replies = replies_.get();
  return {};
}

Status Server::run(const std::function<void()>& on_ready) {
  http_->start();
  RETURN_IF_ERROR(models_.load());
  RETURN_IF_ERROR(check_embedders());
  if (batches_ != nullptr) batches_->start();
  if (on_ready) on_ready();
  Status failure;
  std::jthread watch([&](const std::stop_token& stop_watching) {
    constexpr auto kLook = std::chrono::milliseconds(200);
    for (; failure && !stop_watching.stop_requested(); std::this_thread::sleep_for(kLook)) {
      try {
        failure = models_.status();
      } catch (const std::bad_alloc&) {  // retried the next time
      }
    }
    if (!failure) stop();
  });
  http_->wait();
  watch.request_stop();
  watch.join();
  batches_.reset();  // before the threads that its lines use
  background_.drain(readiness_.drain_end(), [this] {
    if (mcp_ != nullptr) mcp_->cancel_all();
  });
  if (mcp_ != nullptr) mcp_->stop();
  apart_.stop();
  compilations_.stop();  // running compilations use the models
  chores_.stop();
  loads_.stop();
  models_.stop();
  // The requests may have taken all the time: what is computed may still be written for a moment.
  models_.end_by(std::max(readiness_.drain_end(), Clock::now() + std::chrono::seconds(1)));
  return failure;
}

void Server::stop() {
  if (!readiness_.begin_drain(config_.shutdown_timeout)) return;
  if (batches_ != nullptr) batches_->stop();
  http_->stop(config_.shutdown_timeout, [this] {
    log_->warn("shutdown timeout: requests under way are cut");
    apart_.cancel_all();
    if (mcp_ != nullptr) mcp_->cancel_all();
    models_.stop();
  });
}

HttpPlan Server::plan(Exchange& exchange) {
  auto decision = std::make_shared<Decision>(decide(exchange));
  const bool reads_body = !decision->refusal;
  const size_t most_body = reads_body ? most_body_of(*decision->endpoint) : 0;
  return {[this, decision](Exchange& one) { return carry_out(*decision, one); }, reads_body,
          most_body};
}

Server::Decision Server::decide(Exchange& exchange) {
  const HttpRequest& request = exchange.request();
  Decision decision;
  decision.start = std::chrono::steady_clock::now();
  // The page uses relative addresses, so that its own must end in a slash.
  const bool is_bare_root = !config_.root_path.empty() && request.path == config_.root_path;
  exchange.set_path(canonical_path(request.path, config_.root_path));
  std::string allowed;
  decision.endpoint = find_endpoint(request, allowed);
  begin_trace(exporter_.get(), exchange, decision.endpoint);
  if (const auto refused =
          origins_->check(exchange, decision.endpoint != nullptr && decision.endpoint->takes_forms))
    decision.refusal = error_reply(request, *refused);
  if (!decision.refusal) decision.refusal = origins_->preflight(request);
  if (!decision.refusal && is_bare_root) decision.refusal = moved_to(config_.root_path + "/");
  if (!decision.refusal) decision.refusal = check_access(exchange, decision);
  if (decision.refusal || decision.endpoint != nullptr) return decision;
  if (allowed.empty()) {
    decision.refusal = error_reply(
        request, 404, fmt::format("no such route: {} {}", request.method, request.path));
    return decision;
  }
  decision.refusal = error_reply(
      request, 405, fmt::format("{}: expected {}, got {}", request.path, allowed, request.method));
  decision.refusal->headers.emplace_back("Allow", allowed);
  return decision;
}

net::awaitable<void> Server::carry_out(Decision& decision, Exchange& exchange) {
  const Endpoint* endpoint = decision.endpoint;
  const bool refused = decision.refusal.has_value();
  const bool is_act = endpoint != nullptr && endpoint->access == Access::kAdmin && !refused &&
                      exchange.request().method != "GET";
  if (is_act) acts_.note_at_reply(exchange);
  if (refused) {
    co_await exchange.reply(std::move(*decision.refusal));
  } else {
    const CountedIn load(endpoint->streams ? &under_way_.n_generating : nullptr);
    co_await answer(services_, *endpoint, exchange);
  }
  const std::chrono::duration<double> elapsed = std::chrono::steady_clock::now() - decision.start;
  RequestRecord& record = record_of(exchange);
  accounts_.note_use(exchange, decision.start);
  record.spending.reset();  // the reservation is converted to use
  traffic_.note(endpoint == nullptr ? "other" : endpoint->path,
                endpoint == nullptr ? "" : endpoint->method,
                exchange.gone() ? 0 : exchange.status(), elapsed.count());
  const std::string_view key =
      decision.key == nullptr ? std::string_view() : std::string_view(decision.key->record().id);
  log_->request(exchange, elapsed.count(), key);
  if (record.trace && record.trace->notes_wanted)
    exporter_->add(spans_of_request(exchange, endpoint->path, key));
  // After the reply, so that the client does not wait for the disk.
  if (is_act && acts_.is_kept()) co_await chores_.run("", [&] { acts_.write(exchange); });
}

// Keys are checked first, so that clients without one cannot even probe for endpoints.
std::optional<HttpReply> Server::check_access(Exchange& exchange, Decision& decision) {
  const Endpoint* endpoint = decision.endpoint;
  const Access access = endpoint == nullptr ? Access::kKey : endpoint->access;
  if (access == Access::kOpen) return std::nullopt;
  if (auto refused = accounts_.check_key(exchange, access, decision.key)) return refused;
  if (endpoint == nullptr) return std::nullopt;
  if (models_.ready() && access == Access::kMetrics) return std::nullopt;
  return readiness_.not_ready(exchange.request());
}

}  // namespace penstock
