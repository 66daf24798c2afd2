// The API server: models behind the endpoints of routes.cc.
#pragma once
#include <atomic>
#include <boost/asio/thread_pool.hpp>
#include <chrono>
#include <functional>
#include <map>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <span>
#include <string>
#include <vector>

#include "gateway/api_keys.h"
#include "gateway/store/stores.h"
#include "gateway/telemetry/otlp_exporter.h"
#include "gateway/usage.h"
#include "server/adapter_folders.h"
#include "server/audit_trail.h"
#include "server/background_runs.h"
#include "server/batch_runner.h"
#include "server/compile_queue.h"
#include "server/http/apart_threads.h"
#include "server/http/http_server.h"
#include "server/http/origins.h"
#include "server/http/spending.h"
#include "server/http/traffic.h"
#include "server/kept_replies.h"
#include "server/request_log.h"
#include "server/router.h"
#include "server/served_models.h"

namespace penstock {

// What holds for every constrained text besides what its request says.
struct StructuredDefaults {
  bool disable_any_whitespace = false, disable_additional_properties = false;
};

struct ServerConfig {
  HttpConfig http;
  bool listens =
      true;  // false: there is no socket and there are no keys, only answer() is used, after load()
  std::vector<ModelSettings>
      models;                       // at least one, the first is the default; without names: the file's name
  std::vector<RouteConfig> routes;  // names that leave the choice of a model to the server
  int64_t models_memory = 0;        // bytes for all of them together (served_models.h)
  bool any_model_name = false;      // requests may name whatever they like
  std::vector<std::string> adapter_folders;  // that adapters may be loaded from while the server runs
  std::string root_path;  // "/llm": where a proxy shows this server; paths are understood with it and without
  std::vector<std::string> api_keys;  // as clients send them; they may do everything
  std::string api_key_file;           // hashed keys with scopes and quotas; with neither: no authentication
  std::vector<std::string> cors_origins;  // whose pages a browser may let call this server; "*": anyone's
  // Names that Host may have, "*": any. Looked at only where a page could profit from another one (see origins.h):
  // without TLS and without keys.
  std::vector<std::string> allowed_hosts;
  StructuredDefaults structured;
  int max_choices = 128;                         // prompts * n of one call
  int64_t max_reply_bytes = int64_t{128} << 20;  // that a reply with vectors or log-probabilities may become
  int max_logprobs = 20;               // alternatives per token a request may ask for; -1 = any number
  bool ignore_unknown_fields = false;  // log fields of requests that no schema lists instead of refusing them
  std::chrono::milliseconds request_timeout{0};  // 0 = none
  std::chrono::milliseconds shutdown_timeout{30000};
  std::chrono::milliseconds keep_alive_interval{15000};  // between two comments of a silent stream
  std::string data_dir;                                  // what is kept between runs; "": nothing is
  StoreLimits store_limits;                              // for each API key
  bool prefix_cache_across_keys = false;  // requests of different API keys share cached prompts
  ReplyCacheConfig reply_cache;
  std::string
      reply_cache_embedder;  // name of the served model whose vectors tell which questions mean the same
  LogConfig log;
  OtlpConfig otlp;                   // where spans of requests go
  bool vllm_metrics = true;          // /metrics also under vLLM's names
  bool force_include_usage = false;  // every event of a stream tells the usage
};

class Server;

// Who may call a route as soon as there are keys.
enum class Access : uint8_t {
  kOpen,     // anyone
  kKey,      // keys with the inference scope
  kMetrics,  // keys with the metrics scope, and those with the inference scope
  kAdmin,    // keys with the admin scope (which may do everything)
};

using Handler = net::awaitable<void>(Server& server, Exchange& exchange);
using RouteSchema = const nlohmann::json&();  // a JSON schema (schemas.h)

// One endpoint. "{id}" in a path is one more segment, which may contain slashes. Of several paths that match, the first in
// the list counts.
struct Route {
  const char* method;
  const char* path;
  Access access;
  Handler* handler;
  const char* summary;
  RouteSchema* request;      // of the body, or null
  RouteSchema* reply;        // of a 200 reply, or null when it is not JSON
  bool streams = false;      // may also reply with server-sent events
  bool takes_forms = false;  // the body is multipart/form-data, not JSON
};
// THE list of endpoints.
std::span<const Route> routes();

class Server {
 public:
  // Reads the keys and binds the socket. Errors: of both.
  static Result<std::unique_ptr<Server>> open(const ServerConfig& config);

  ~Server();

  // Answers /health and /ready at once, loads the models, calls `on_ready`, serves until stop(). Blocks.
  // Errors: of loading, and of a model that can compute nothing any more.
  Status run(const std::function<void()>& on_ready);
  // REQUIRES: not config.listens. Loads the models. Errors: of loading.
  Status load() { return models_.load(); }
  // From any thread: drains, then run() returns.
  void stop();
  CompileQueue& compilations() { return compilations_; }
  // Threads for what reads and writes files and stores: short work that may wait for a disk.
  net::thread_pool& chores() { return chores_; }
  // Does what reads or writes about `n_bytes` for a client: at once where that is little, else apart from the
  // connections. Throws WorkEnded (base/work.h) when the client leaves or the server stops; answer() catches it.
  net::awaitable<void> run_apart(Exchange& exchange, size_t n_bytes, std::function<void()> work);
  // The same of a request's body.
  net::awaitable<void> run_apart(Exchange& exchange, std::function<void()> work) {
    return run_apart(exchange, exchange.request().body.size(), std::move(work));
  }

  const ServerConfig& config() const { return config_; }
  const ServedModels& models() const { return models_; }
  const AdapterFolders& adapter_folders() const { return adapter_folders_; }
  // On a thread for that. Errors: of loading.
  net::awaitable<Status> load(ServedModel& model, bool again = false);
  net::awaitable<Status> reload(ServedModel& model);
  // ServedModel::add_adapter() for a model that is loaded first if need be.
  net::awaitable<Status> add_adapter(ServedModel& model, const AdapterSettings& adapter, bool replace);
  net::awaitable<void> unload(ServedModel& model);
  // ServedModels::keep(). It never waits.
  void keep(ServedModel& model, std::optional<std::chrono::milliseconds> time) { models_.keep(model, time); }
  const HttpServer& http() const { return *http_; }
  uint16_t port() const { return http_->port(); }
  // 503 while models are loaded and while the server drains; nothing when requests are answered.
  std::optional<HttpReply> not_ready(const HttpRequest& request) const;
  int n_generating() const { return n_generating_; }  // requests under way on routes that generate
  const Traffic& traffic() const { return traffic_; }
  std::atomic<int64_t>& reply_bytes() { return reply_bytes_; }  // of replies with vectors, under way
  RequestLog& log() { return *log_; }
  const OtlpExporter* exporter() const { return exporter_.get(); }  // null: spans go nowhere
  bool needs_key() const { return keys_->required(); }
  // Errors: kNotFound without a data_dir, otherwise why it cannot be used.
  Result<Stores*> stores() const;
  BatchRunner& batch_runner() { return *batch_runner_; }  // REQUIRES: stores()
  BackgroundRuns& background() { return background_; }
  Usage& usage() { return *usage_; }
  bool keeps_use() const { return stores_ && *stores_ != nullptr; }  // else it is forgotten with the process
  // Counts what an exchange, which has ended, has used.
  void note_use(const Exchange& exchange, std::chrono::steady_clock::time_point start);
  // Of the API key of that id: the budget that keeps it from being used, if there is one.
  std::optional<BudgetState> spent_budget_of(const std::string& key) const;
  std::vector<BudgetState> budgets_of(const std::string& key) const;
  // Of a batch's line that the API key of that id pays for. Null: nobody counts.
  std::shared_ptr<Spending> spending_of(const std::string& payer) const;
  // Whether the API key that something was begun with may begin nothing any more. payer, owner: as it was noted then.
  bool is_revoked(const std::string& payer, const std::string& owner) const;
  // Whose things a request may see. REQUIRES: stores()
  std::string owner_of(const HttpRequest& request) const;
  KeptReplies& replies() const { return *replies_; }
  // Lets the route's handler answer, with the model that the request names. Never throws.
  net::awaitable<void> answer(const Route& route, Exchange& exchange);
  // The same with the model that is named, or set, even where the request leaves it to the server. It may throw.
  net::awaitable<void> respond(const Route& route, Exchange& exchange);
  const Router& router() const { return *router_; }

 private:
  explicit Server(const ServerConfig& config);
  // What the head of a request leads to: a route's handler, or the reply that refuses it.
  struct Decision {
    const Route* route = nullptr;
    std::shared_ptr<ApiKey> key;
    std::optional<HttpReply> refusal;
    std::chrono::steady_clock::time_point start;
  };
  Status open_store();
  void audit_at_reply(Exchange& exchange);
  net::awaitable<void> audit(Exchange& exchange);
  void write_acts();
  void note_key(std::string_view act, const ApiKeyRecord& record);
  void audit_key(std::string_view act, const ApiKeyRecord& record);
  // What the request's headers say about traces, and whether spans are made of it.
  void begin_trace(Exchange& exchange, const Route* route) const;
  Status open_replies();
  Status check_embedders();
  HttpPlan plan(Exchange& exchange);
  Decision decide(Exchange& exchange);
  net::awaitable<void> carry_out(Decision& decision, Exchange& exchange);
  // Loads the model that a request names. What it returns keeps it until the request is over; null where there is nothing
  // to load, or whoever reads the request refuses it. Errors: of loading.
  net::awaitable<Result<ModelLease>> load_named(const Route& route, Exchange& exchange);
  std::optional<HttpReply> check_access(Exchange& exchange, Decision& decision);
  std::optional<HttpReply> check_key(Exchange& exchange, Access access, std::shared_ptr<ApiKey>& key);

  ServerConfig config_;
  AdapterFolders adapter_folders_;
  std::unique_ptr<RequestLog> log_;
  std::unique_ptr<OtlpExporter> exporter_;  // after log_, which it uses
  Result<std::unique_ptr<Stores>> stores_;  // null without a data_dir
  AuditTrail acts_;                         // for the log of stores_
  std::unique_ptr<Usage> usage_;
  std::unique_ptr<ApiKeys> keys_;
  std::unique_ptr<KeptReplies> replies_;
  std::optional<Origins> origins_;
  Traffic traffic_;
  std::unique_ptr<Router> router_;
  ServedModels models_;          // before http_, whose exchanges refer to them
  const bool trusts_templates_;  // of requests: a body of any size may ask for much
  std::unique_ptr<HttpServer> http_;
  ApartThreads apart_;                         // their results go to handlers of http_
  CompileQueue compilations_;                  // the same
  net::thread_pool chores_{2};                 // the same
  net::thread_pool loads_{1};                  // of models, the same
  std::unique_ptr<BatchRunner> batch_runner_;  // with stores_; destroyed before all that its lines use
  BackgroundRuns background_;                  // likewise
  std::atomic<int> n_generating_ = 0;
  std::atomic<int64_t> reply_bytes_ = 0;
  std::atomic<bool> stopping_{false};
  const std::chrono::steady_clock::time_point started_ = std::chrono::steady_clock::now();
  std::atomic<std::chrono::steady_clock::duration> drain_end_{};  // since the clock's epoch
};

// The path of the route that `path` names: without `root_path` in front, and with the /v1 that clients may leave out.
std::string canonical_path(std::string_view path, std::string_view root_path);

}  // namespace penstock
