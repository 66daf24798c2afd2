// GET /metrics (Prometheus text) and /v1/metrics (JSON), both made from Metrics::visit.
#include <prometheus/metric_family.h>
#include <prometheus/text_serializer.h>

#include <limits>

#include "server/api_request.h"
#include "server/endpoints.h"

namespace penstock {
namespace {

using prometheus::ClientMetric;
using prometheus::MetricFamily;
using prometheus::MetricType;

// Each adds its metrics to the family; `metric` has the labels that all share.
void fill(const Counter& counter, MetricFamily& family, ClientMetric metric) {
  family.type = MetricType::Counter;
  if (!family.name.ends_with("_total")) family.name += "_total";
  metric.counter.value = counter.value;
  family.metric.push_back(std::move(metric));
}

void fill(const PositionCounter& counter, MetricFamily& family, const ClientMetric& metric) {
  family.type = MetricType::Counter;
  family.name += "_total";
  for (int i = 0; i < counter.n; ++i) {
    family.metric.push_back(metric);
    family.metric.back().label.push_back({"position", std::to_string(i)});
    family.metric.back().counter.value = counter.values[i];
  }
}

void fill(const Gauge& gauge, MetricFamily& family, ClientMetric metric) {
  family.type = MetricType::Gauge;
  metric.gauge.value = gauge.value;
  family.metric.push_back(std::move(metric));
}

void fill(const Histogram& histogram, MetricFamily& family, ClientMetric metric) {
  family.type = MetricType::Histogram;
  uint64_t cumulative = 0;
  for (size_t i = 0; i <= histogram.bounds.size(); ++i) {
    cumulative += histogram.counts[i];
    const double bound =
        i < histogram.bounds.size() ? histogram.bounds[i] : std::numeric_limits<double>::infinity();
    metric.histogram.bucket.push_back({cumulative, bound});
  }
  metric.histogram.sample_count = histogram.count;
  metric.histogram.sample_sum = histogram.sum;
  family.metric.push_back(std::move(metric));
}

// One family per metric under each prefix; "vllm:" makes existing dashboards work.
std::vector<MetricFamily> families(const Metrics& metrics, const std::string& model) {
  std::vector<MetricFamily> result;
  for (const char* prefix : {"penstock:", "vllm:"}) {
    Metrics::visit(metrics, [&](const char* name, const auto& value, const char* help) {
      MetricFamily family;
      family.name = std::string(prefix) + name;
      family.help = help;
      ClientMetric metric;
      metric.label = {{"model_name", model}, {"engine", "0"}};
      fill(value, family, metric);
      result.push_back(std::move(family));
    });
  }
  return result;
}

double mean(const Histogram& histogram) {
  return histogram.count > 0 ? histogram.sum / static_cast<double>(histogram.count) : 0;
}

}  // namespace

net::awaitable<void> get_metrics(Server& server, Exchange& exchange) {
  const Metrics metrics = server.session().engine().metrics();
  HttpReply reply;
  reply.body = prometheus::TextSerializer().Serialize(families(metrics, server.model_name()));
  reply.content_type = "text/plain; version=0.0.4; charset=utf-8";
  co_await exchange.reply(std::move(reply));
}

net::awaitable<void> get_metrics_json(Server& server, Exchange& exchange) {
  const Metrics metrics = server.session().engine().metrics();
  const Histogram& latency = metrics.e2e_request_latency_seconds;
  const double decode_seconds = metrics.request_decode_time_seconds.sum;
  json body = {{"total_requests", latency.count},
               {"total_tokens", metrics.generation_tokens.value},
               {"avg_latency_ms", mean(latency) * 1000},
               {"avg_tokens_per_second", decode_seconds > 0 ? metrics.generation_tokens.value / decode_seconds : 0.0},
               {"avg_batch_size", mean(metrics.iteration_tokens_total)},
               {"avg_time_to_first_token_ms", mean(metrics.time_to_first_token_seconds) * 1000},
               {"avg_inter_token_latency_ms", mean(metrics.inter_token_latency_seconds) * 1000}};
  Metrics::visit(metrics, [&](const char* name, const auto& value, const char*) {
    if constexpr (requires { value.value; }) {
      body[name] = value.value;
    } else if constexpr (requires { value.values; }) {
      body[name] = std::vector<double>(value.values.begin(), value.values.begin() + value.n);
    }
  });
  co_await exchange.reply(json_reply(body));
}

}  // namespace penstock
