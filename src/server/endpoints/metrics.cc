// GET /metrics (Prometheus text) and /v1/metrics (JSON), both made from Metrics::visit; POST
// /reset_prefix_cache.
#include <prometheus/text_serializer.h>

#include "server/api/api_request.h"
#include "server/metrics_text.h"
#include "server/server.h"

namespace penstock {
namespace {

double mean(const Histogram& histogram) {
  return histogram.count > 0 ? histogram.sum / static_cast<double>(histogram.count) : 0;
}

uint64_t total(const Traffic::Snapshot& traffic, const auto& wanted) {
  uint64_t n = 0;
  for (const auto& [key, count] : traffic.requests) n += wanted(std::get<2>(key)) ? count : 0;
  return n;
}

HttpReply metrics_reply(Server& server) {
  std::vector<prometheus::MetricFamily> families;
  for (const auto& one : server.models().all()) {
    const ModelLease model = one->lease(false);
    if (model == nullptr) continue;
    for (int engine = 0; engine < model->n_engines(); ++engine) {
      const MetricsSource source{model->metrics_of(engine), &model->info_of(engine), &model->config(),
                                 model->name(), engine};
      std::vector<prometheus::MetricFamily> of_engine;
      add_own_families(source, of_engine);
      if (server.config().vllm_metrics) add_vllm_families(source, of_engine);
      join_families(std::move(of_engine), families);
    }
  }
  add_http_families(server.http().counters(), server.traffic().snapshot(), families);
  if (server.stores()) {
    const BatchRunner::Counts& lines = server.batch_runner().counts();
    add_batch_families(lines.lines_completed, lines.lines_failed, lines.lines_running, families);
  }
  if (const OtlpExporter* exporter = server.exporter(); exporter != nullptr)
    add_span_families(exporter->counts().exported, exporter->counts().dropped, families);
  add_process_families(families);
  HttpReply reply;
  reply.body = prometheus::TextSerializer().Serialize(families);
  reply.content_type = "text/plain; version=0.0.4; charset=utf-8";
  return reply;
}

// Of the default model: a client that knows of no other asks here.
json metrics_json(Server& server) {
  const ModelLease model = server.models().default_model().lease(false);
  const Metrics metrics = model == nullptr ? Metrics() : model->metrics();
  const Histogram& latency = metrics.e2e_request_latency_seconds;
  const double decode_seconds = metrics.request_decode_time_seconds.sum;
  const Traffic::Snapshot traffic = server.traffic().snapshot();
  json body = {
      {"total_requests", latency.count},
      {"total_tokens", metrics.generation_tokens.value},
      {"avg_latency_ms", mean(latency) * 1000},
      {"avg_tokens_per_second", decode_seconds > 0 ? metrics.generation_tokens.value / decode_seconds : 0.0},
      {"avg_batch_size", mean(metrics.iteration_num_seqs)},
      {"avg_tokens_per_step", mean(metrics.iteration_tokens_total)},
      {"avg_time_to_first_token_ms", mean(metrics.time_to_first_token_seconds) * 1000},
      {"avg_inter_token_latency_ms", mean(metrics.inter_token_latency_seconds) * 1000},
      {"http_requests", total(traffic, [](int) { return true; })},
      {"http_errors", total(traffic, [](int status) { return status >= 400; })},
      {"http_clients_left", total(traffic, [](int status) { return status == 0; })},
      {"http_requests_in_flight", server.http().counters().exchanges.load()},
      {"http_connections", server.http().counters().connections.load()}};
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

net::awaitable<void> get_metrics(Server& server, Exchange& exchange) {
  co_await exchange.reply(metrics_reply(server));
}

net::awaitable<void> get_metrics_json(Server& server, Exchange& exchange) {
  co_await exchange.reply(json_reply(metrics_json(server)));
}

net::awaitable<void> post_reset_prefix_cache(Server& server, Exchange& exchange) {
  for (const auto& model : server.models().all()) {
    if (const ModelLease lease = model->lease(false); lease != nullptr && !lease->pools())
      lease->engine().reset_prefix_cache();
  }
  co_await exchange.reply(json_reply(json::object()));
}

}  // namespace penstock
