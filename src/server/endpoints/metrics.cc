// GET /metrics (Prometheus text) and /v1/metrics (JSON), both made from Metrics::visit; POST
// /reset_prefix_cache.
#include <prometheus/text_serializer.h>

#include "server/api/api_request.h"
#include "server/api/json_check.h"
#include "server/api/json_reader.h"
#include "server/api/schema_parts.h"
#include "server/batches/batch_runner.h"
#include "server/endpoints/metrics_text.h"
#include "server/http/gzip.h"
#include "server/http/http_server.h"
#include "server/http/traffic.h"
#include "server/replies/cache/kept_replies.h"
#include "server/routes/router.h"
#include "server/routing/endpoint.h"
#include "server/routing/errors.h"
#include "server/services/config.h"
#include "server/services/data_folder.h"
#include "server/services/request_record.h"
#include "server/services/served_models.h"
#include "server/services/services.h"
#include "server/telemetry/otlp_exporter.h"

namespace penstock {

EndpointSchema reset_replies_request, reset_replies_reply;

namespace {

double mean(const Histogram& histogram) {
  return histogram.count > 0 ? histogram.sum / static_cast<double>(histogram.count) : 0;
}

uint64_t total(const Traffic::Snapshot& traffic, const auto& wanted) {
  uint64_t n = 0;
  for (const auto& [key, count] : traffic.requests) n += wanted(std::get<2>(key)) ? count : 0;
  return n;
}

// Returns the counts of route tables and models that the key may use.
std::map<std::string, Router::Counts> route_counts(Services& services, const std::string& key) {
  std::map<std::string, Router::Counts> counts = services.router->counts();
  const std::vector<std::string> names = services.router->names(key);
  std::erase_if(
      counts, [&](const auto& one) { return std::ranges::find(names, one.first) == names.end(); });
  for (auto& [name, of_route] : counts) {
    std::erase_if(of_route.decisions, [&](const auto& one) {
      const ServedModel* const model = services.models.named(one.first.first);
      return model == nullptr || !model->serves(key);
    });
  }
  return counts;
}

HttpReply metrics_reply(Services& services, const std::string& key) {
  std::vector<prometheus::MetricFamily> families;
  for (const auto& one : services.models.all()) {
    if (!one->serves(key)) continue;
    const ModelLease model = one->lease(false);
    if (model == nullptr) continue;
    for (int engine = 0; engine < model->n_engines(); ++engine) {
      const MetricsSource source{model->metrics_of(engine), &model->info_of(engine),
                                 &model->config(), model->name(), engine};
      std::vector<prometheus::MetricFamily> of_engine;
      add_own_families(source, of_engine);
      if (services.config.vllm_metrics) add_vllm_families(source, of_engine);
      join_families(std::move(of_engine), families);
    }
  }
  add_http_families((*services.http), services.traffic.snapshot(), families);
  if (services.data.stores()) {
    const BatchRunner::Counts& lines = services.batches->counts();
    add_batch_families(lines.lines_completed, lines.lines_failed, lines.lines_running, families);
  }
  if (const OtlpExporter* exporter = services.exporter; exporter != nullptr)
    add_span_families(exporter->counts().exported, exporter->counts().dropped, families);
  add_reply_cache_families(*services.replies, families);
  add_route_families(route_counts(services, key), families);
  add_process_families(families);
  HttpReply reply;
  reply.body = prometheus::TextSerializer().Serialize(families);
  reply.content_type = "text/plain; version=0.0.4; charset=utf-8";
  return reply;
}

// Removes cached replies of one model or of all.
Result<int64_t> forget_replies(Services& services, const HttpRequest& request) {
  constexpr size_t kMostBytes = 64 * 1024;
  ASSIGN_OR_RETURN(const json body, read_json(request.body, kMostBytes));
  RETURN_IF_ERROR(check_json(reset_replies_request(), body));
  std::string name = get_string(body, "model");
  if (!name.empty()) {
    ASSIGN_OR_RETURN(const ServedModel* const model, services.models.find(name));
    name = model->name();
  }
  ReplyCache* const cache = services.replies->cache();
  if (cache == nullptr)
    return errorf(ErrorCode::kNotFound,
                  "this server keeps no replies: it was started without --reply-cache");
  return cache->forget(name);
}

// Returns the metrics of the first model that the key may use, for clients that name none.
json metrics_json(Services& services, const std::string& key) {
  const auto first = services.models.find("", key);
  const ModelLease model = first ? (*first)->lease(false) : nullptr;
  const Metrics metrics = model == nullptr ? Metrics() : model->metrics();
  const Histogram& latency = metrics.e2e_request_latency_seconds;
  const double decode_seconds = metrics.request_decode_time_seconds.sum;
  const Traffic::Snapshot traffic = services.traffic.snapshot();
  json body = {{"total_requests", latency.count},
               {"total_tokens", metrics.generation_tokens.value},
               {"avg_latency_ms", mean(latency) * 1000},
               {"avg_tokens_per_second",
                decode_seconds > 0 ? metrics.generation_tokens.value / decode_seconds : 0.0},
               {"avg_batch_size", mean(metrics.iteration_num_seqs)},
               {"avg_tokens_per_step", mean(metrics.iteration_tokens_total)},
               {"avg_time_to_first_token_ms", mean(metrics.time_to_first_token_seconds) * 1000},
               {"avg_inter_token_latency_ms", mean(metrics.inter_token_latency_seconds) * 1000},
               {"http_requests", total(traffic, [](int) { return true; })},
               {"http_errors", total(traffic, [](int status) { return status >= 400; })},
               {"http_clients_left", total(traffic, [](int status) { return status == 0; })},
               {"http_requests_in_flight", (*services.http).exchanges.load()},
               {"http_connections", (*services.http).connections.load()}};
  if (const ReplyCache* cache = services.replies->cache()) {
    const KeptReplies::Counters& counters = services.replies->counters;
    body["reply_cache_hits"] = counters.hits.load();
    body["reply_cache_meaning_hits"] = counters.near_hits.load();
    body["reply_cache_misses"] = counters.misses.load();
    body["reply_cache_tokens_saved"] =
        counters.prompt_tokens_saved.load() + counters.completion_tokens_saved.load();
    body["reply_cache_entries"] = cache->counts().entries;
  }
  double cost = 0, saved = 0;
  for (const auto& [name, counts] : route_counts(services, key))
    cost += counts.cost, saved += counts.saved;
  body["route_cost"] = cost;
  body["route_cost_saved"] = saved;
  Metrics::visit(metrics, [&](const char* name, const auto& value, const char*) {
    if constexpr (requires { value.value; })
      body[name] = value.value;
    else if constexpr (requires { value.values; }) {
      body[name] = std::vector<double>(value.values.begin(), value.values.begin() + value.n);
    }
  });
  return body;
}

}  // namespace

const nlohmann::json& reset_replies_request() {
  static const nlohmann::json value = schema::closed(
      {{"model", schema::text("whose replies; those of all models where it is left out")}});
  return value;
}

const nlohmann::json& reset_replies_reply() {
  static const nlohmann::json value =
      schema::open({{"forgotten", {{"type", "integer"}, {"minimum", 0}}}}, {"forgotten"});
  return value;
}

net::awaitable<void> post_reset_reply_cache(Services& services, Exchange& exchange) {
  const auto forgotten = forget_replies(services, exchange.request());
  if (!forgotten) co_return co_await exchange.reply(error_reply(forgotten.error()));
  const json body = {{"forgotten", *forgotten}};
  co_await exchange.reply(json_reply(body));
}

net::awaitable<void> get_metrics(Services& services, Exchange& exchange) {
  constexpr size_t kBytes = size_t{200} << 10;  // approximate
  HttpReply reply;
  co_await services.run_apart(exchange, kBytes, [&] {
    reply = metrics_reply(services, record_of(exchange).key);
    reply.headers.emplace_back("Vary", "Accept-Encoding");
    if (!accepts_gzip(exchange.request().header("accept-encoding"))) return;
    reply.body = gzip(reply.body);
    reply.headers.emplace_back("Content-Encoding", "gzip");
  });
  co_await exchange.reply(std::move(reply));
}

net::awaitable<void> get_metrics_json(Services& services, Exchange& exchange) {
  co_await exchange.reply(json_reply(metrics_json(services, record_of(exchange).key)));
}

net::awaitable<void> post_reset_prefix_cache(Services& services, Exchange& exchange) {
  for (const auto& model : services.models.all()) {
    if (const ModelLease lease = model->lease(false); lease != nullptr && !lease->pools())
      lease->engine().reset_prefix_cache();
  }
  co_await exchange.reply(json_reply(json::object()));
}

}  // namespace penstock
