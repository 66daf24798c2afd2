#include "server/endpoints/metrics_text.h"

#include <sys/resource.h>
#include <unistd.h>

#include <dirent.h>
#include <algorithm>
#include <cstdio>
#include <limits>

#include "base/memory.h"
#include "base/result.h"

namespace penstock {
namespace {

using prometheus::ClientMetric;
using prometheus::MetricFamily;
using prometheus::MetricType;
using Labels = std::vector<ClientMetric::Label>;

// Add a metric to a family; `metric` has the shared labels.
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

void fill_ranks(const PerRank& ranks, MetricFamily& family, const ClientMetric& metric) {
  for (int rank = 0; rank < ranks.n; ++rank) {
    family.metric.push_back(metric);
    family.metric.back().label.push_back({"rank", std::to_string(rank)});
    const double value = ranks.values[static_cast<size_t>(rank)];
    (family.type == MetricType::Counter ? family.metric.back().counter.value
                                        : family.metric.back().gauge.value) = value;
  }
}

void fill(const RankCounter& counter, MetricFamily& family, const ClientMetric& metric) {
  family.type = MetricType::Counter;
  family.name += "_total";
  fill_ranks(counter, family, metric);
}

void fill(const RankGauge& gauge, MetricFamily& family, const ClientMetric& metric) {
  family.type = MetricType::Gauge;
  fill_ranks(gauge, family, metric);
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

template <class Metric>
void add_row(MetricFamily& family, const Metric& value, Labels labels) {
  ClientMetric metric;
  metric.label = std::move(labels);
  fill(value, family, std::move(metric));
}

template <class Metric>
MetricFamily family_of(std::string name, const char* help, const Metric& value, Labels labels) {
  MetricFamily family;
  family.name = std::move(name);
  family.help = help;
  add_row(family, value, std::move(labels));
  return family;
}

// vLLM's bucket bounds, where this server's are finer.
constexpr double kVllmInterToken[] = {.01, .025, .05, .075, .1,  .15, .2, .3, .4, .5,
                                      .75, 1,    2.5, 5,    7.5, 10,  20, 40, 80};
constexpr double kVllmLatency[] = {.3, .5, .8, 1,  1.5, 2,   2.5, 5,   10,   15,  20,
                                   30, 40, 50, 60, 120, 240, 480, 960, 1920, 7680};
constexpr double kVllmStepTokens[] = {1,   8,    16,   32,   64,   128,  256,
                                      512, 1024, 2048, 4096, 8192, 16384};

enum class Buckets : uint8_t { kAsOurs, kInterToken, kLatency, kStepTokens, kUpToContext };
struct VllmName {
  const char* name;  // name of both metrics
  Buckets buckets;
};
constexpr VllmName kVllmNames[] = {
    {"num_requests_running", Buckets::kAsOurs},
    {"num_requests_waiting", Buckets::kAsOurs},
    {"kv_cache_usage_perc", Buckets::kAsOurs},
    {"prompt_tokens", Buckets::kAsOurs},
    {"prompt_tokens_cached", Buckets::kAsOurs},
    {"generation_tokens", Buckets::kAsOurs},
    {"prefix_cache_queries", Buckets::kAsOurs},
    {"prefix_cache_hits", Buckets::kAsOurs},
    {"num_preemptions", Buckets::kAsOurs},
    {"spec_decode_num_drafts", Buckets::kAsOurs},
    {"spec_decode_num_draft_tokens", Buckets::kAsOurs},
    {"spec_decode_num_accepted_tokens", Buckets::kAsOurs},
    {"spec_decode_num_accepted_tokens_per_pos", Buckets::kAsOurs},
    {"time_to_first_token_seconds", Buckets::kAsOurs},
    {"inter_token_latency_seconds", Buckets::kInterToken},
    {"request_time_per_output_token_seconds", Buckets::kInterToken},
    {"e2e_request_latency_seconds", Buckets::kLatency},
    {"request_queue_time_seconds", Buckets::kLatency},
    {"request_inference_time_seconds", Buckets::kLatency},
    {"request_prefill_time_seconds", Buckets::kLatency},
    {"request_decode_time_seconds", Buckets::kLatency},
    {"request_prompt_tokens", Buckets::kUpToContext},
    {"request_generation_tokens", Buckets::kUpToContext},
    {"request_max_num_generation_tokens", Buckets::kUpToContext},
    {"request_params_n", Buckets::kAsOurs},
    {"request_params_max_tokens", Buckets::kUpToContext},
    {"request_prefill_kv_computed_tokens", Buckets::kUpToContext},
    {"iteration_tokens_total", Buckets::kStepTokens},
};

template <class Metric>
Metric for_vllm(const Metric& metric, Buckets, int) {
  return metric;
}
Histogram for_vllm(const Histogram& histogram, Buckets buckets, int context) {
  switch (buckets) {
    case Buckets::kInterToken: return with_bounds(histogram, kVllmInterToken);
    case Buckets::kLatency: return with_bounds(histogram, kVllmLatency);
    case Buckets::kStepTokens: return with_bounds(histogram, kVllmStepTokens);
    case Buckets::kUpToContext: {
      size_t n = 0;
      while (n < histogram.bounds.size() && histogram.bounds[n] <= context) ++n;
      return with_bounds(histogram, histogram.bounds.first(n));
    }
    case Buckets::kAsOurs: break;
  }
  return histogram;
}

Labels model_labels(const MetricsSource& source) {
  return {{"model_name", source.model}, {"engine", std::to_string(source.engine)}};
}

Labels with(Labels labels, const char* name, std::string value) {
  labels.push_back({name, std::move(value)});
  return labels;
}

Labels cache_labels(const MetricsSource& source) {
  const EngineConfig& config = *source.config;
  Labels labels = model_labels(source);
  labels.push_back({"block_size", std::to_string(source.info->block_size)});
  labels.push_back({"cache_dtype", config.kv_cache_dtype});
  labels.push_back({"enable_prefix_caching", config.enable_prefix_caching ? "True" : "False"});
  labels.push_back({"gpu_memory_utilization", fmt::format("{}", config.memory_utilization)});
  labels.push_back({"mamba_ssm_cache_dtype", config.mamba_ssm_cache_dtype});
  labels.push_back({"num_gpu_blocks", std::to_string(source.info->n_blocks)});
  labels.push_back({"num_cpu_blocks", "0"});
  return labels;
}

void add_labelled_vllm(const MetricsSource& source, std::vector<MetricFamily>& out) {
  const Metrics& m = source.metrics;
  const Labels base = model_labels(source);
  MetricFamily success = family_of("vllm:request_success", "requests by the way they ended",
                                   m.request_success_stop, with(base, "finished_reason", "stop"));
  add_row(success, m.request_success_length, with(base, "finished_reason", "length"));
  add_row(success, m.request_success_abort, with(base, "finished_reason", "abort"));
  add_row(success, m.request_success_error, with(base, "finished_reason", "error"));
  out.push_back(std::move(success));
  MetricFamily waiting =
      family_of("vllm:num_requests_waiting_by_reason", "waiting sequences by what they wait for",
                m.num_requests_waiting, with(base, "reason", "capacity"));
  add_row(waiting, Gauge{0}, with(base, "reason", "deferred"));
  out.push_back(std::move(waiting));
  out.push_back(family_of("vllm:admission_rejections", "requests refused", m.admission_rejections,
                          with(base, "reason", "queue_full")));
  out.push_back(family_of("vllm:cache_config_info", "how the KV cache is set up", Gauge{1},
                          cache_labels(source)));
  MetricFamily sleep = family_of("vllm:engine_sleep_state", "1 for the state the engine is in",
                                 Gauge{1}, with(base, "sleep_state", "awake"));
  add_row(sleep, Gauge{0}, with(base, "sleep_state", "weights_offloaded"));
  add_row(sleep, Gauge{0}, with(base, "sleep_state", "discard_all"));
  out.push_back(std::move(sleep));
}

double seconds_of(const timeval& time) {
  return static_cast<double>(time.tv_sec) + 1e-6 * static_cast<double>(time.tv_usec);
}

int count_open_files() {
  int n = 0;
  if (DIR* folder = opendir("/proc/self/fd")) {
    while (readdir(folder) != nullptr) ++n;
    closedir(folder);
    // ".", ".." and the descriptor of the folder itself
    n -= 3;
  }
  return n;
}

}  // namespace

Histogram with_bounds(const Histogram& histogram, std::span<const double> bounds) {
  Histogram result{bounds};
  result.sum = histogram.sum;
  result.count = histogram.count;
  size_t bucket = 0;
  for (size_t i = 0; i < histogram.bounds.size(); ++i) {
    while (bucket < bounds.size() && histogram.bounds[i] > bounds[bucket]) ++bucket;
    result.counts[bucket] += histogram.counts[i];
  }
  result.counts[bounds.size()] += histogram.counts[histogram.bounds.size()];
  return result;
}

void add_own_families(const MetricsSource& source, std::vector<MetricFamily>& out) {
  Metrics::visit(source.metrics, [&](const char* name, const auto& value, const char* help) {
    out.push_back(family_of(std::string("penstock:") + name, help, value, model_labels(source)));
  });
  out.push_back(family_of("penstock:cache_config_info", "how the KV cache is set up", Gauge{1},
                          cache_labels(source)));
}

void add_vllm_families(const MetricsSource& source, std::vector<MetricFamily>& out) {
  Metrics::visit(source.metrics, [&](const char* name, const auto& value, const char* help) {
    const auto known = std::ranges::find_if(
        kVllmNames, [&](const VllmName& one) { return std::string_view(one.name) == name; });
    if (known == std::end(kVllmNames)) return;
    const auto adapted = for_vllm(value, known->buckets, source.info->max_model_len);
    out.push_back(family_of(std::string("vllm:") + name, help, adapted, model_labels(source)));
  });
  add_labelled_vllm(source, out);
}

void join_families(std::vector<MetricFamily> more, std::vector<MetricFamily>& out) {
  for (MetricFamily& family : more) {
    const auto known = std::ranges::find(out, family.name, &MetricFamily::name);
    if (known == out.end()) {
      out.push_back(std::move(family));
    } else {
      std::ranges::move(family.metric, std::back_inserter(known->metric));
    }
  }
}

void add_http_families(const HttpCounters& counters, const Traffic::Snapshot& traffic,
                       std::vector<MetricFamily>& out) {
  const auto add = [&](const char* name, const char* help, const auto& value) {
    out.push_back(family_of(std::string("penstock:http_") + name, help, value, {}));
  };
  const auto count = [](uint64_t value) { return Counter{static_cast<double>(value)}; };
  MetricFamily requests;
  requests.name = "penstock:http_requests_total";
  requests.help = "requests answered, by route, method and status; status 0: the client left first";
  requests.type = MetricType::Counter;
  for (const auto& [key, n] : traffic.requests) {
    const auto& [path, method, status] = key;
    add_row(requests, count(n),
            {{"path", path}, {"method", method}, {"status", std::to_string(status)}});
  }
  out.push_back(std::move(requests));
  add("request_seconds", "time from a whole request to its whole answer", traffic.seconds);
  add("connections", "open connections", Gauge{static_cast<double>(counters.connections.load())});
  add("requests_in_flight", "requests being answered",
      Gauge{static_cast<double>(counters.exchanges.load())});
  add("body_bytes", "bytes of request bodies held",
      Gauge{static_cast<double>(counters.body_bytes.load())});
  add("connections_accepted", "connections accepted", count(counters.accepted.load()));
  add("connections_refused", "connections over the limit", count(counters.turned_away.load()));
  add("requests_malformed", "requests that were not HTTP, or over a limit",
      count(counters.malformed.load()));
  add("requests_timed_out", "requests that did not arrive in time",
      count(counters.timed_out.load()));
  add("disconnects", "clients that left before their answer was complete",
      count(counters.disconnects.load()));
  add("unauthorized", "requests without a valid key", count(traffic.unauthorized));
  add("quota_refusals", "requests over their key's quota", count(traffic.quota_refusals));
}

void add_batch_families(int64_t completed, int64_t failed, int running,
                        std::vector<MetricFamily>& out) {
  MetricFamily lines;
  lines.name = "penstock:batch_lines_total";
  lines.help = "lines of batches that have a result, since the start";
  lines.type = MetricType::Counter;
  add_row(lines, Counter{static_cast<double>(completed)}, {{"result", "completed"}});
  add_row(lines, Counter{static_cast<double>(failed)}, {{"result", "failed"}});
  out.push_back(std::move(lines));
  out.push_back(family_of("penstock:batch_lines_running", "lines of batches under way",
                          Gauge{static_cast<double>(running)}, {}));
}

void add_span_families(int64_t exported, int64_t dropped, std::vector<MetricFamily>& out) {
  MetricFamily spans;
  spans.name = "penstock:otlp_spans_total";
  spans.help = "spans of requests, by what became of them";
  spans.type = MetricType::Counter;
  add_row(spans, Counter{static_cast<double>(exported)}, {{"result", "exported"}});
  add_row(spans, Counter{static_cast<double>(dropped)}, {{"result", "dropped"}});
  out.push_back(std::move(spans));
}

void add_reply_cache_families(const KeptReplies& replies, std::vector<MetricFamily>& out) {
  if (replies.cache() == nullptr) return;
  const KeptReplies::Counters& counters = replies.counters;
  const ReplyCache::Counts held = replies.cache()->counts();
  const auto family = [](const char* name, const char* help) {
    MetricFamily result;
    result.name = std::string("penstock:reply_cache_") + name;
    result.help = help;
    result.type = MetricType::Counter;
    return result;
  };
  const auto count = [](int64_t value) { return Counter{static_cast<double>(value)}; };
  MetricFamily requests =
      family("requests_total", "requests by what the cache of replies had for them");
  add_row(requests, count(counters.hits), {{"result", "hit"}, {"by", "exact"}});
  add_row(requests, count(counters.misses), {{"result", "miss"}, {"by", ""}});
  for (int i = 1; i < kFirstNearBypass; ++i) {
    add_row(requests, count(counters.bypassed[i]),
            {{"result", "bypass"}, {"by", name_of(static_cast<Bypass>(i))}});
  }
  out.push_back(std::move(requests));
  if (replies.by_meaning()) {
    MetricFamily near =
        family("meaning_requests_total", "those that were looked for by their meaning");
    add_row(near, count(counters.near_hits), {{"result", "hit"}, {"why", ""}});
    add_row(near, count(counters.near_misses - counters.near_refused),
            {{"result", "miss"}, {"why", ""}});
    add_row(near, count(counters.near_refused), {{"result", "miss"}, {"why", "other-particulars"}});
    for (int i = kFirstNearBypass; i < kNumBypasses; ++i) {
      if (counters.near_bypassed[i] > 0)
        add_row(near, count(counters.near_bypassed[i]),
                {{"result", "bypass"}, {"why", name_of(static_cast<Bypass>(i))}});
    }
    out.push_back(std::move(near));
  }
  MetricFamily saved = family("tokens_saved_total", "tokens of replies that were given again");
  add_row(saved, count(counters.prompt_tokens_saved), {{"of", "prompt"}});
  add_row(saved, count(counters.completion_tokens_saved), {{"of", "completion"}});
  out.push_back(std::move(saved));
  MetricFamily removed = family("removed_total", "replies that are kept no longer");
  add_row(removed, count(held.evicted), {{"why", "room"}});
  add_row(removed, count(held.expired), {{"why", "expired"}});
  add_row(removed, count(held.forgotten), {{"why", "forgotten"}});
  out.push_back(std::move(removed));
  MetricFamily unwritten =
      family("unwritten_total", "replies that could not be written to the disk");
  add_row(unwritten, count(held.unwritten), {});
  out.push_back(std::move(unwritten));
  const auto gauge = [&](const char* name, const char* help, int64_t value) {
    out.push_back(family_of(std::string("penstock:reply_cache_") + name, help,
                            Gauge{static_cast<double>(value)}, {}));
  };
  gauge("entries", "replies that are kept", held.entries);
  gauge("bytes", "bytes of the replies that are kept", held.bytes);
}

void add_route_families(const std::map<std::string, Router::Counts>& routes,
                        std::vector<MetricFamily>& out) {
  if (routes.empty()) return;
  const auto family = [](const char* name, const char* help,
                         MetricType type = MetricType::Counter) {
    MetricFamily result;
    result.name = std::string("penstock:route_") + name;
    result.help = help;
    result.type = type;
    return result;
  };
  MetricFamily decisions = family(
      "decisions_total", "requests that left the model to the server, by what was chosen and why");
  MetricFamily cascades = family(
      "cascade_total", "answers of the small model that were given, and that were not good enough");
  MetricFamily cost = family("cost_total", "what the models' answers cost by their prices");
  MetricFamily saved =
      family("cost_saved", "against the large model for every request", MetricType::Gauge);
  for (const auto& [name, counts] : routes) {
    for (const auto& [key, n] : counts.decisions) {
      add_row(decisions, Counter{static_cast<double>(n)},
              {{"route", name}, {"model", key.first}, {"reason", key.second}});
    }
    add_row(cascades, Counter{static_cast<double>(counts.kept)},
            {{"route", name}, {"result", "kept"}});
    add_row(cascades, Counter{static_cast<double>(counts.abandoned)},
            {{"route", name}, {"result", "abandoned"}});
    ClientMetric row;
    row.label = {{"route", name}};
    row.counter.value = counts.cost;
    cost.metric.push_back(row);
    row.counter.value = 0;
    row.gauge.value = counts.saved;
    saved.metric.push_back(row);
  }
  for (MetricFamily* one : {&decisions, &cascades, &cost, &saved}) out.push_back(std::move(*one));
}

// Metrics under the standard names of Prometheus client libraries.
void add_process_families(std::vector<MetricFamily>& out) {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  out.push_back(family_of("process_cpu_seconds_total", "user and system CPU time",
                          Counter{seconds_of(usage.ru_utime) + seconds_of(usage.ru_stime)}, {}));
  out.push_back(family_of("process_resident_memory_bytes", "memory in use",
                          Gauge{static_cast<double>(resident_memory())}, {}));
  rlimit limit{};
  getrlimit(RLIMIT_NOFILE, &limit);
  out.push_back(family_of("process_open_fds", "open file descriptors",
                          Gauge{static_cast<double>(count_open_files())}, {}));
  out.push_back(family_of("process_max_fds", "most open file descriptors",
                          Gauge{static_cast<double>(limit.rlim_cur)}, {}));
}

}  // namespace penstock
