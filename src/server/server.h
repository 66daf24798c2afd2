// The API server: serves models through the endpoints of endpoints.cc.
#pragma once
#include <boost/asio/thread_pool.hpp>
#include <chrono>
#include <functional>
#include <memory>
#include <optional>

#include "server/batches/batch_runner.h"
#include "server/http/apart_threads.h"
#include "server/http/http_server.h"
#include "server/http/origins.h"
#include "server/http/turn_threads.h"
#include "server/keys/accounts.h"
#include "server/mcp/mcp_servers.h"
#include "server/replies/cache/kept_replies.h"
#include "server/routes/router.h"
#include "server/services/adapter_folders.h"
#include "server/services/audit_trail.h"
#include "server/services/background_runs.h"
#include "server/services/compile_queue.h"
#include "server/services/config.h"
#include "server/services/data_folder.h"
#include "server/services/image_urls.h"
#include "server/services/model_loads.h"
#include "server/services/readiness.h"
#include "server/services/services.h"
#include "server/telemetry/otlp_exporter.h"

namespace penstock {

// Composes and owns the parts of a server. The logic of requests is in endpoints/, handlers/ and
// services/.
class Server {
 public:
  // Reads the keys and binds the socket. Errors: those of both.
  static Result<std::unique_ptr<Server>> open(const ServerConfig& config);

  ~Server();

  // Answers /live, /health and /ready immediately, loads the models, calls `on_ready`, and serves
  // until stop(). Blocks. Errors: those of loading, and of a model that has failed permanently.
  Status run(const std::function<void()>& on_ready);
  // Loads the models. Errors: those of loading. REQUIRES: !config.listens.
  Status load() { return models_.load(); }
  // Starts draining, after which run() returns. Thread-safe.
  void stop();

  const ServerConfig& config() const { return config_; }
  uint16_t port() const { return http_->port(); }
  bool needs_key() const { return accounts_.needs_key(); }
  Services& services() { return services_; }

 private:
  Server(const ServerConfig& config, std::unique_ptr<RequestLog> log);
  // The result of examining a request's head: an endpoint, or a refusal.
  struct Decision {
    const Endpoint* endpoint = nullptr;
    std::shared_ptr<ApiKey> key;
    std::optional<HttpReply> refusal;
    std::chrono::steady_clock::time_point start;
  };
  void open_data();
  Status open_replies();
  Status listen();
  Status check_embedders() const;
  void note_key(std::string_view act, const ApiKeyRecord& record);
  HttpPlan plan(Exchange& exchange);
  Decision decide(Exchange& exchange);
  net::awaitable<void> carry_out(Decision& decision, Exchange& exchange);
  std::optional<HttpReply> check_access(Exchange& exchange, Decision& decision);

  ServerConfig config_;
  std::unique_ptr<RequestLog> log_;
  std::unique_ptr<OtlpExporter> exporter_;  // after log_, which it uses
  AdapterFolders adapter_folders_;
  DataFolder data_;
  AuditTrail acts_;
  Traffic traffic_;
  UnderWay under_way_;
  ServedModels models_;  // before http_, whose exchanges refer to them
  Readiness readiness_;
  Accounts accounts_;
  std::unique_ptr<KeptReplies> replies_;
  std::unique_ptr<Router> router_;
  std::optional<Origins> origins_;
  std::unique_ptr<HttpServer> http_;
  // These parts post to handlers of http_ and are destroyed before it.
  ApartThreads apart_;
  CompileQueue compilations_;  // see apart_
  TurnThreads chores_{2, 1};   // see apart_; a client uses one thread at a time
  // see apart_; null: no MCP servers are configured
  std::unique_ptr<McpServers> mcp_;
  std::unique_ptr<ImageUrls> image_urls_;  // see apart_; null: URLs of pictures are refused
  ModelLoads loads_;                       // see apart_
  // set if data_ keeps anything; destroyed before everything that its lines use
  std::unique_ptr<BatchRunner> batches_;
  BackgroundRuns background_;  // destroyed before everything that its runs use
  Services services_;
};

}  // namespace penstock
