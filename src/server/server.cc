#include "server/server.h"

#include <algorithm>
#include <boost/asio/ip/address.hpp>
#include <cmath>
#include <filesystem>
#include <thread>

#include "base/work.h"
#include "server/api/api_request.h"
#include "server/api/errors.h"
#include "server/client_reason.h"
#include "server/http/access.h"
#include "server/key_spending.h"
#include "server/request_spans.h"

namespace penstock {
namespace {

// Whether `path` is `route`'s, with anything for its "{id}".
bool matches(std::string_view route, std::string_view path) {
  const size_t brace = route.find('{');
  if (brace == std::string_view::npos) return route == path;
  const std::string_view end = route.substr(route.find('}') + 1);
  return path.size() > brace + end.size() && path.starts_with(route.substr(0, brace)) && path.ends_with(end);
}

// The route of a request, or null and the methods that its path has.
const Route* find_route(const HttpRequest& request, std::string& allowed) {
  const std::string_view method = request.method == "HEAD" ? "GET" : std::string_view(request.method);
  std::string_view path;  // of the routes that count
  for (const Route& route : routes()) {
    if (path.empty() ? !matches(route.path, request.path) : path != route.path) continue;
    path = route.path;
    if (route.method == method) return &route;
    allowed += (allowed.empty() ? "" : ", ") + std::string(route.method);
  }
  return nullptr;
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
  // A page has no key, and this server no certificate for the page's name.
  if (needs_key || !config.http.tls_certificate.empty()) return result;
  result.host_check = is_loopback(config.http.host) ? HostCheck::kEverybody : HostCheck::kPages;
  return result;
}

// Fills in the served name and brings root_path into the form "" or "/path".
Status check_config(ServerConfig& config) {
  for (ModelSettings& model : config.models) {
    if (model.names.empty()) model.names = {std::filesystem::path(model.engine.model).filename().string()};
  }
  std::string& root = config.root_path;
  while (root.ends_with('/')) root.pop_back();
  if (root.empty() || (root[0] == '/' && root.find_first_of(" ?#%\\\"<>") == std::string::npos)) return {};
  return errorf(ErrorCode::kInvalidArgument, "root path: expected a path such as /llm, got {}", root);
}

Status check_model_keys(const ServerConfig& config, bool needs_key) {
  for (const ModelSettings& model : config.models) {
    if (!model.keys.empty() && !needs_key) {
      return errorf(ErrorCode::kInvalidArgument,
                    "keys: {} is for some API keys only, and the server asks for none (--api-key-file)",
                    model.names.front());
    }
  }
  return {};
}

HttpReply moved_to(const std::string& path) {
  HttpReply reply;
  reply.status = 308;
  reply.headers.emplace_back("Location", path);
  return reply;
}

// One more as long as it lives.
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

std::string canonical_path(std::string_view path, std::string_view root_path) {
  if (path.starts_with(root_path) && (path.size() == root_path.size() || path[root_path.size()] == '/')) {
    path.remove_prefix(root_path.size());
  }
  const auto known = [](std::string_view one) {
    return std::ranges::any_of(routes(), [&](const Route& route) { return matches(route.path, one); });
  };
  if (path.empty()) return "/";
  std::string versioned = "/v1" + std::string(path);
  return !known(path) && known(versioned) ? versioned : std::string(path);
}

Server::Server(const ServerConfig& config)
    : config_(config),
      models_(config.any_model_name, config.models_memory),
      trusts_templates_(std::ranges::any_of(
          config.models, [](const ModelSettings& model) { return model.chat.trust_request_template; })),
      compilations_(std::clamp(std::thread::hardware_concurrency() / 2, 1u, 4u)) {}

Server::~Server() {
  if (keys_ != nullptr) keys_->stop_watching();  // what it tells uses everything below
  models_.stop();                                // their events go to exchanges of http_
}

Result<std::unique_ptr<Server>> Server::open(const ServerConfig& config) {
  std::unique_ptr<Server> server(new Server(config));
  RETURN_IF_ERROR(check_config(server->config_));
  for (const ModelSettings& model : server->config_.models)
    RETURN_IF_ERROR(server->models_.add(std::make_unique<ServedModel>(model)));
  ASSIGN_OR_RETURN(server->adapter_folders_, AdapterFolders::open(config.adapter_folders));
  ASSIGN_OR_RETURN(server->log_, RequestLog::open(config.log));
  if (!config.otlp.url.empty()) {
    server->exporter_ = std::make_unique<OtlpExporter>(
        config.otlp, [log = server->log_.get()](std::string_view message) { log->warn(message); });
  }
  RETURN_IF_ERROR(server->open_store());
  RETURN_IF_ERROR(server->open_replies());
  ASSIGN_OR_RETURN(server->router_, Router::open(*server, config.routes));
  if (!config.listens) {
    ASSIGN_OR_RETURN(server->keys_, ApiKeys::open("", {}));
    return server;
  }
  ASSIGN_OR_RETURN(server->keys_,
                   ApiKeys::open(config.api_key_file, config.api_keys,
                                 [raw = server.get()](std::string_view act, const ApiKeyRecord& record) {
                                   raw->note_key(act, record);
                                 }));
  if (!server->keeps_use() && server->keys_->any_budget())
    server->log_->warn("budgets of API keys count from the start of the server only: there is no --data-dir");
  RETURN_IF_ERROR(check_model_keys(server->config_, server->keys_->required()));
  ASSIGN_OR_RETURN(server->origins_, Origins::open(origin_config(config, server->keys_->required())));
  ASSIGN_OR_RETURN(
      server->http_,
      HttpServer::open(
          config.http, [raw = server.get()](Exchange& exchange) { return raw->plan(exchange); },
          [root = server->config_.root_path](std::string_view target, int status, std::string_view message) {
            return error_body_at(canonical_path(target, root), status, message);
          }));
  return server;
}

// A store that cannot be used keeps nothing from being served but what needs it.
Status Server::open_store() {
  if (!config_.data_dir.empty()) {
    stores_ = Stores::open(config_.data_dir, config_.store_limits);
    if (stores_) batch_runner_ = std::make_unique<BatchRunner>(*this, *(*stores_)->batches);
    if (!stores_) log_->error("nothing is kept: " + stores_.error().message);
  }
  const auto warn = [this](const std::string& text) { log_->error(text); };
  ASSIGN_OR_RETURN(usage_, Usage::open(keeps_use() ? (*stores_)->store : nullptr, warn));
  return {};
}

void Server::note_use(const Exchange& exchange, std::chrono::steady_clock::time_point start) {
  if (exchange.model().empty()) return;
  const std::chrono::duration<double, std::micro> elapsed = std::chrono::steady_clock::now() - start;
  UseCounts use{1,
                exchange.prompt_tokens(),
                exchange.cached_tokens(),
                exchange.completion_tokens(),
                static_cast<int64_t>(elapsed.count()),
                0};
  if (const auto model = models_.find(exchange.model()))
    use.nano_cost = nano_cost_of((*model)->settings().price, use);
  usage_->note(exchange.request().payer, exchange.model(), use);
}

std::vector<BudgetState> Server::budgets_of(const std::string& key) const {
  const auto known = keys_->with_id(key);
  if (known == nullptr) return {};
  return budget_states(known->record().budget, usage_->spent(key), usage_->now());
}

std::optional<BudgetState> Server::spent_budget_of(const std::string& key) const {
  const auto known = keys_->with_id(key);
  if (known == nullptr || !known->record().budget.limited()) return std::nullopt;
  return spent_budget(known->record().budget, usage_->spent(key), usage_->now());
}

void Server::write_acts() {
  if (const Status kept = acts_.write(*(*stores_)->audit); !kept)
    log_->error("the audit log cannot be written: " + kept.error().message);
}

void Server::audit_at_reply(Exchange& exchange) {
  if (!keeps_use()) return;
  exchange.before_reply = [this, &request = exchange.request()](int status) {
    acts_.note(
        {0, 0, request.payer, request.peer, request.method + " " + request.path, request.body, status});
  };
}

// After the reply: nobody waits for the disk.
net::awaitable<void> Server::audit(Exchange& exchange) {
  if (!keeps_use()) co_return;
  // A client that left has no reply, and the act is done.
  if (exchange.before_reply) std::exchange(exchange.before_reply, nullptr)(exchange.status());
  co_await run_on(chores_, [this] { write_acts(); });
}

// On the thread that watches the file of keys. Batches look for themselves.
void Server::note_key(std::string_view act, const ApiKeyRecord& record) {
  audit_key(act, record);
  if (is_revoked(record.id, "")) background_.cancel_those_of(record.id);
}

std::shared_ptr<Spending> Server::spending_of(const std::string& payer) const {
  auto key = keys_->with_id(payer);
  if (key == nullptr || !key->record().budget.limited()) return nullptr;
  return penstock::spending_of(std::move(key), *usage_, false);
}

bool Server::is_revoked(const std::string& payer, const std::string& owner) const {
  if (payer.empty() || !needs_key()) return false;
  if (payer == ApiKey::kPlainPayer) {
    return std::ranges::none_of(
        config_.api_keys, [&](const std::string& key) { return (*stores_)->store->owner_of(key) == owner; });
  }
  const auto key = keys_->with_id(payer);
  return key == nullptr || !key->may(Scope::kInference);
}

void Server::audit_key(std::string_view act, const ApiKeyRecord& record) {
  if (!keeps_use()) return;
  const std::string about =
      fmt::format("{} \"{}\" with {}", record.id, record.name, scope_names(record.scopes));
  acts_.note({0, 0, "", "", std::string(act), about, 0});
  write_acts();
}

// Of those that are loaded at the start: others are seen when they are asked for.
Status Server::check_embedders() {
  std::vector<std::string> names = {config_.reply_cache_embedder};
  for (const RouteConfig& route : config_.routes) names.push_back(route.embedder);
  for (const std::string& name : names) {
    ServedModel* const model = name.empty() ? nullptr : models_.named(name);
    const ModelLease lease = model == nullptr ? nullptr : model->lease(false);
    if (lease == nullptr || lease->pools()) continue;
    return errorf(
        ErrorCode::kInvalidArgument,
        "{} gives text and no vectors, which routes and the cache by meaning are to ask it for: its "
        "runner must be pooling",
        name);
  }
  return {};
}

// Kept in the data directory where that can be used: its lock is held then.
Status Server::open_replies() {
  const std::string& embedder = config_.reply_cache_embedder;
  if (!embedder.empty() && config_.reply_cache.bytes <= 0) {
    return errorf(ErrorCode::kInvalidArgument,
                  "--reply-cache-by-meaning: there is no cache, which --reply-cache SIZE makes");
  }
  if (const auto model = models_.find(embedder); !embedder.empty() && !model)
    return errorf(ErrorCode::kInvalidArgument, "--reply-cache-by-meaning: {}", model.error().message);
  const bool on_disk = keeps_use();
  replies_ = std::make_unique<KeptReplies>(config_.reply_cache, embedder,
                                           on_disk ? config_.data_dir + "/cache.db" : "");
  return {};
}

Result<Stores*> Server::stores() const {
  // Whatever it is, it is nothing about the request.
  if (!stores_) return errorf(ErrorCode::kInternal, "{}", stores_.error().message);
  if (*stores_ != nullptr) return stores_->get();
  return errorf(ErrorCode::kNotFound, "this server keeps nothing: it was started without --data-dir");
}

std::string Server::owner_of(const HttpRequest& request) const {
  return needs_key() ? (*stores_)->store->owner_of(presented_key(request)) : std::string();
}

Status Server::run(const std::function<void()>& on_ready) {
  http_->start();
  RETURN_IF_ERROR(models_.load());
  RETURN_IF_ERROR(check_embedders());
  if (batch_runner_ != nullptr) batch_runner_->start();
  if (on_ready) on_ready();
  Status failure;
  std::jthread watch([&](const std::stop_token& stop_watching) {
    constexpr auto kLook = std::chrono::milliseconds(200);
    for (; failure && !stop_watching.stop_requested(); std::this_thread::sleep_for(kLook))
      failure = models_.status();
    if (!failure) stop();
  });
  http_->wait();
  watch.request_stop();
  watch.join();
  batch_runner_.reset();  // before the threads that its lines use
  background_.drain(std::chrono::steady_clock::time_point(drain_end_.load()));
  apart_.stop();
  compilations_.stop();  // what these have begun uses the models
  for (net::thread_pool* threads : {&chores_, &loads_}) {
    threads->stop();
    threads->join();
  }
  models_.stop();
  return failure;
}

void Server::stop() {
  drain_end_.store((std::chrono::steady_clock::now() + config_.shutdown_timeout).time_since_epoch());
  if (stopping_.exchange(true)) return;
  if (batch_runner_ != nullptr) batch_runner_->stop();
  http_->stop(config_.shutdown_timeout, [this] {
    log_->warn("shutdown timeout: requests under way are cut");
    apart_.cancel_all();
    models_.stop();
  });
}

HttpPlan Server::plan(Exchange& exchange) {
  auto decision = std::make_shared<Decision>(decide(exchange));
  const bool reads_body = !decision->refusal;
  return {[this, decision](Exchange& one) { return carry_out(*decision, one); }, reads_body};
}

Server::Decision Server::decide(Exchange& exchange) {
  const HttpRequest& request = exchange.request();
  Decision decision;
  decision.start = std::chrono::steady_clock::now();
  // The page's files stand beside it: its address must end in a slash.
  const bool is_bare_root = !config_.root_path.empty() && request.path == config_.root_path;
  exchange.set_path(canonical_path(request.path, config_.root_path));
  std::string allowed;
  decision.route = find_route(request, allowed);
  begin_trace(exchange, decision.route);
  if (const auto refused =
          origins_->check(exchange, decision.route != nullptr && decision.route->takes_forms))
    decision.refusal = error_reply(request, *refused);
  if (!decision.refusal) decision.refusal = origins_->preflight(request);
  if (!decision.refusal && is_bare_root) decision.refusal = moved_to(config_.root_path + "/");
  if (!decision.refusal) decision.refusal = check_access(exchange, decision);
  if (decision.refusal || decision.route != nullptr) return decision;
  if (allowed.empty()) {
    decision.refusal =
        error_reply(request, 404, fmt::format("no such route: {} {}", request.method, request.path));
    return decision;
  }
  decision.refusal = error_reply(
      request, 405, fmt::format("{}: expected {}, got {}", request.path, allowed, request.method));
  decision.refusal->headers.emplace_back("Allow", allowed);
  return decision;
}

void Server::begin_trace(Exchange& exchange, const Route* route) const {
  const HttpRequest& request = exchange.request();
  auto context = read_trace(request.header("traceparent"), request.header("tracestate"));
  // What looks at the server is not looked at itself.
  const bool records = exporter_ != nullptr && route != nullptr &&
                       (route->access == Access::kKey || route->access == Access::kAdmin);
  if (!context && !records) return;
  const bool begins = !context;
  if (begins) context = new_trace();
  if (records && (begins || !exporter_->config().follow_parent))
    context->sampled = is_sampled(exporter_->config(), context->trace_id);
  RequestTrace& trace = exchange.trace.emplace();
  trace.context = std::move(*context);
  trace.notes_wanted = records && trace.context.sampled;
  exchange.reply_headers.emplace_back("traceresponse", trace.context.header());
}

net::awaitable<void> Server::run_apart(Exchange& exchange, size_t n_bytes, std::function<void()> work) {
  constexpr size_t kAtOnce = 4096;  // bytes: a millisecond of tokenizing
  if (n_bytes > kAtOnce || trusts_templates_)
    co_return co_await apart_.run(exchange, n_bytes, std::move(work));
  work();
}

net::awaitable<void> Server::answer(const Route& route, Exchange& exchange) {
  std::string failure;
  std::optional<Error> ended;
  try {
    if (const RouteConfig* choice = router_->asked_for(route, exchange.request()))
      co_await router_->answer(*choice, route, exchange);
    else
      co_await respond(route, exchange);
  } catch (const WorkEnded& work) {
    ended = work.error();
  } catch (const std::exception& error) {
    failure = error.what();
  }
  if (ended && !exchange.replied()) {
    // Cancelled for a client that is still there: the server stops.
    if (ended->code == ErrorCode::kCancelled) ended->message = "shutting down";
    co_return co_await exchange.reply(
        error_reply(exchange.request(), http_status(ended->code), ended->message));
  }
  if (failure.empty()) co_return;
  log_->error(fmt::format("{} {} {}: {}", exchange.request().id, exchange.request().method,
                          exchange.request().path, failure));
  if (!exchange.replied()) co_await exchange.reply(error_reply(exchange.request(), 500, "internal error"));
}

net::awaitable<void> Server::respond(const Route& route, Exchange& exchange) {
  const auto lease = co_await load_named(route, exchange);
  if (lease) co_return co_await route.handler(*this, exchange);
  co_await exchange.reply(error_reply(exchange.request(), 503, lease.error().message));
}

net::awaitable<void> Server::carry_out(Decision& decision, Exchange& exchange) {
  const Route* route = decision.route;
  const bool refused = decision.refusal.has_value();
  const bool is_act =
      route != nullptr && route->access == Access::kAdmin && !refused && exchange.request().method != "GET";
  if (is_act) audit_at_reply(exchange);
  if (refused) {
    co_await exchange.reply(std::move(*decision.refusal));
  } else {
    const CountedIn load(route->streams ? &n_generating_ : nullptr);
    co_await answer(*route, exchange);
  }
  const std::chrono::duration<double> elapsed = std::chrono::steady_clock::now() - decision.start;
  note_use(exchange, decision.start);
  exchange.spending.reset();  // it is used now, not held any more
  traffic_.note(route == nullptr ? "other" : route->path, route == nullptr ? "" : route->method,
                exchange.gone() ? 0 : exchange.status(), elapsed.count());
  const std::string_view key =
      decision.key == nullptr ? std::string_view() : std::string_view(decision.key->record().id);
  log_->request(exchange, elapsed.count(), key);
  if (exchange.trace && exchange.trace->notes_wanted)
    exporter_->add(spans_of_request(exchange, route->path, key));
  if (is_act) co_await audit(exchange);
}

net::awaitable<Result<ModelLease>> Server::load_named(const Route& route, Exchange& exchange) {
  if (route.access != Access::kKey || route.request == nullptr ||
      !route.request().contains("/properties/model"_json_pointer) || !models_.some_unloaded())
    co_return ModelLease();
  std::string name;
  co_await run_apart(exchange, [&] { name = model_named_in(*this, exchange.request()); });
  const auto model = models_.find(name, exchange.request().key);
  if (!model) co_return ModelLease();
  constexpr int kMostTries = 3;  // one that goes when nobody uses it may have gone again
  for (int tries = 0; tries < kMostTries; ++tries) {
    if (ModelLease lease = (*model)->lease()) co_return lease;
    const Status loaded = co_await load(**model);
    if (!loaded) {
      co_return errorf(loaded.error().code, "model: {} could not be loaded: {}", (*model)->name(),
                       without_folders(loaded.error().message));
    }
  }
  co_return (*model)->lease();
}

net::awaitable<Status> Server::load(ServedModel& model, bool again) {
  Status loaded;
  co_await run_on(loads_, [&] { loaded = models_.load(model, again); });
  co_return loaded;
}

net::awaitable<Status> Server::add_adapter(ServedModel& model, const AdapterSettings& adapter, bool replace) {
  Status added;
  co_await run_on(loads_, [&] {
    added = models_.load(model);
    if (!added) return;
    const ModelLease lease = model.lease();
    added = lease == nullptr
                ? Status(errorf(ErrorCode::kCancelled, "model: {} is not loaded: try again", model.name()))
                : lease->add_adapter(adapter, replace);
  });
  co_return added;
}

net::awaitable<Status> Server::reload(ServedModel& model) {
  Status loaded;
  co_await run_on(loads_, [&] { loaded = models_.reload(model); });
  co_return loaded;
}

net::awaitable<void> Server::unload(ServedModel& model) {
  co_await run_on(loads_, [&] { models_.unload(model); });
}

// Keys come first: who has none learns nothing, not even which routes there are.
std::optional<HttpReply> Server::check_access(Exchange& exchange, Decision& decision) {
  const Route* route = decision.route;
  const Access access = route == nullptr ? Access::kKey : route->access;
  if (access == Access::kOpen) return std::nullopt;
  if (auto refused = check_key(exchange, access, decision.key)) return refused;
  if (route == nullptr) return std::nullopt;
  if (models_.ready() && access == Access::kMetrics) return std::nullopt;
  return not_ready(exchange.request());
}

std::optional<HttpReply> Server::not_ready(const HttpRequest& request) const {
  const bool loading = !models_.ready();
  if (!loading && !stopping_.load()) return std::nullopt;
  HttpReply reply = error_reply(request, 503, loading ? "the model is being loaded" : "shutting down");
  const auto now = std::chrono::steady_clock::now().time_since_epoch();
  if (loading) {  // nothing says how far it is: as long again as it has taken so far
    set_retry_after(reply, std::chrono::duration<double>(now - started_.time_since_epoch()).count());
  } else {
    set_retry_after(reply, std::chrono::duration<double>(drain_end_.load() - now).count());
  }
  return reply;
}

std::optional<HttpReply> Server::check_key(Exchange& exchange, Access access, std::shared_ptr<ApiKey>& key) {
  if (!keys_->required()) return std::nullopt;
  const HttpRequest& request = exchange.request();
  key = keys_->find(presented_key(request));
  if (const std::string warning = keys_->warning(); !warning.empty()) log_->warn(warning);
  if (key == nullptr) {
    traffic_.note_unauthorized();
    return error_reply(request, unauthorized(request));
  }
  const bool may = access == Access::kMetrics
                       ? key->may(Scope::kMetrics) || key->may(Scope::kInference)
                       : key->may(access == Access::kAdmin ? Scope::kAdmin : Scope::kInference);
  if (!may) {
    return error_reply(
        request, 403,
        fmt::format("this API key has no {} scope, only {}", access == Access::kAdmin ? "admin" : "inference",
                    scope_names(key->record().scopes)));
  }
  const bool sees_all = key->may(Scope::kAdmin) || (access == Access::kMetrics && key->may(Scope::kMetrics));
  if (!sees_all) exchange.set_key(key->record().id);
  exchange.set_payer(key->payer(), key->tenant());
  if (access != Access::kKey || request.method != "POST") return std::nullopt;
  if (const auto spent = spent_budget_of(key->payer())) {
    traffic_.note_quota_refusal();
    return error_reply(request, over_budget(*spent, usage_->now()));
  }
  const auto now = std::chrono::steady_clock::now();
  const auto refused = key->admit(now);
  add_quota_headers(*key, exchange);
  if (refused) {
    traffic_.note_quota_refusal();
    return error_reply(request, over_quota(*key, *refused));
  }
  if (key->counts_tokens()) exchange.spending = penstock::spending_of(key, *usage_, true);
  return std::nullopt;
}

}  // namespace penstock
