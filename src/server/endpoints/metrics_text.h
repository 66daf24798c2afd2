// The server's metrics as Prometheus families: under the project's own prefix and, when asked,
// under vLLM's names and buckets.
#pragma once
#include <prometheus/metric_family.h>

#include <map>
#include <string>
#include <vector>

#include "penstock/engine.h"
#include "server/http/http_server.h"
#include "server/http/traffic.h"
#include "server/replies/cache/kept_replies.h"
#include "server/routes/router.h"

namespace penstock {

struct MetricsSource {
  Metrics metrics;
  const EngineInfo* info = nullptr;
  const EngineConfig* config = nullptr;
  std::string model;  // label model_name
  int engine = 0;     // label engine
};

// "penstock:NAME", every metric of Metrics::visit.
void add_own_families(const MetricsSource& source, std::vector<prometheus::MetricFamily>& out);
// "vllm:NAME": those that vLLM has, with its labels and bucket bounds.
void add_vllm_families(const MetricsSource& source, std::vector<prometheus::MetricFamily>& out);
// Adds the metrics of another model to the families of the same name; the labels tell them apart.
void join_families(std::vector<prometheus::MetricFamily> more,
                   std::vector<prometheus::MetricFamily>& out);
// The HTTP side and the process.
void add_http_families(const HttpCounters& counters, const Traffic::Snapshot& traffic,
                       std::vector<prometheus::MetricFamily>& out);
// Finished lines of batches by success, and running lines.
void add_batch_families(int64_t completed, int64_t failed, int running,
                        std::vector<prometheus::MetricFamily>& out);
// Exported and dropped trace spans.
void add_span_families(int64_t exported, int64_t dropped,
                       std::vector<prometheus::MetricFamily>& out);
// Contents and hits of the reply cache; nothing without one.
void add_reply_cache_families(const KeptReplies& replies,
                              std::vector<prometheus::MetricFamily>& out);
// Choices of the routers by route table, and the cost of their answers by model prices.
void add_route_families(const std::map<std::string, Router::Counts>& routes,
                        std::vector<prometheus::MetricFamily>& out);
void add_process_families(std::vector<prometheus::MetricFamily>& out);

// Rebins a histogram to fewer bounds. A bound that the histogram does not have gets the count of
// the next lower one.
Histogram with_bounds(const Histogram& histogram, std::span<const double> bounds);

}  // namespace penstock
