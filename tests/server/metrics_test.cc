#include "server/endpoints/metrics_text.h"
#include "support/test_data.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <prometheus/text_serializer.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <set>

namespace penstock {
namespace {

using nlohmann::json;

// tests/server/vllm_metrics.json: names, types, labels and bucket bounds as vLLM 0.33 documents
// them.
json vllm() {
  return json::parse(std::ifstream(tests_dir().string() + "/server/vllm_metrics.json"));
}

struct Fixture {
  EngineInfo info;
  EngineConfig config;
  MetricsSource source;
  Fixture() {
    info.max_model_len = 2048;
    source.info = &info;
    source.config = &config;
    source.model = "tiny";
    source.metrics.spec_decode_num_accepted_tokens_per_pos.add(0);
  }
  std::vector<prometheus::MetricFamily> vllm_families() const {
    std::vector<prometheus::MetricFamily> families;
    add_vllm_families(source, families);
    return families;
  }
};

std::vector<double> bounds_of(const prometheus::MetricFamily& family) {
  std::vector<double> bounds;
  for (const auto& bucket : family.metric.at(0).histogram.bucket)
    bounds.push_back(bucket.upper_bound);
  bounds.pop_back();  // infinity
  return bounds;
}

TEST(Metrics, ModelsShareAFamilyAndDifferInTheirLabels) {
  Fixture one, two;
  two.source.model = "other";
  std::vector<prometheus::MetricFamily> families = one.vllm_families();
  const size_t n = families.size();
  join_families(two.vllm_families(), families);
  ASSERT_EQ(families.size(), n);
  const auto text = prometheus::TextSerializer().Serialize(families);
  for (const char* model : {"tiny", "other"})
    EXPECT_NE(text.find(std::string("vllm:num_requests_running{model_name=\"") + model),
              std::string::npos)
        << model;
}

TEST(VllmMetrics, NamesLabelsAndBucketsAreVllms) {
  const Fixture fixture;
  const json known = vllm();
  std::set<std::string> seen;
  for (const auto& family : fixture.vllm_families()) {
    ASSERT_TRUE(known.contains(family.name)) << family.name << " is not a name of vLLM";
    const json& expected = known[family.name];
    EXPECT_TRUE(seen.insert(family.name).second) << family.name << " twice";
    const char* type = family.type == prometheus::MetricType::Counter ? "counter"
                       : family.type == prometheus::MetricType::Gauge ? "gauge"
                                                                      : "histogram";
    EXPECT_EQ(type, expected["type"]) << family.name;
    std::set<std::string> labels;
    for (const auto& label : family.metric.at(0).label) labels.insert(label.name);
    for (const std::string label : expected["labels"])
      EXPECT_TRUE(labels.contains(label)) << family.name << " " << label;
    if (expected["type"] == "histogram") {
      EXPECT_EQ(bounds_of(family), expected["buckets"].get<std::vector<double>>()) << family.name;
    }
  }
  for (const auto& [name, expected] : known.items()) {
    EXPECT_TRUE(seen.contains(name)) << name << " is missing";
  }
}

TEST(VllmMetrics, CoarserBucketsKeepTheCounts) {
  Fixture fixture;
  Histogram& histogram = fixture.source.metrics.inter_token_latency_seconds;
  for (const double value : {0.0005, 0.002, 0.01, 0.02, 0.05, 0.06, 100.0})
    histogram.observe(value);
  const double bounds[] = {.01, .05};
  const Histogram coarse = with_bounds(histogram, bounds);
  EXPECT_EQ(coarse.counts[0], 3u);
  EXPECT_EQ(coarse.counts[1], 2u);
  EXPECT_EQ(coarse.counts[2], 2u);
  EXPECT_EQ(coarse.count, 7u);
  EXPECT_DOUBLE_EQ(coarse.sum, histogram.sum);
}

TEST(OwnMetrics, EveryMetricOnceAndWellFormed) {
  Fixture fixture;
  fixture.source.metrics.generation_tokens.add(5);
  fixture.source.metrics.time_to_first_token_seconds.observe(0.07);
  std::vector<prometheus::MetricFamily> families;
  add_own_families(fixture.source, families);
  size_t n = 0;
  Metrics::visit(fixture.source.metrics, [&](const char*, const auto&, const char*) { ++n; });
  EXPECT_EQ(families.size(), n + 1);  // and cache_config_info
  const std::string text = prometheus::TextSerializer().Serialize(families);
  EXPECT_THAT(text, testing::HasSubstr("# TYPE penstock:generation_tokens_total counter\n"));
  EXPECT_THAT(text, testing::HasSubstr(
                        "penstock:generation_tokens_total{model_name=\"tiny\",engine=\"0\"} 5\n"));
  EXPECT_THAT(text, testing::HasSubstr("penstock:time_to_first_token_seconds_bucket{model_name="
                                       "\"tiny\",engine=\"0\",le=\"0.06\"} 0\n"));
  EXPECT_THAT(text, testing::HasSubstr("penstock:time_to_first_token_seconds_bucket{model_name="
                                       "\"tiny\",engine=\"0\",le=\"0.08\"} 1\n"));
}

TEST(OwnMetrics, RanksHaveALabel) {
  Fixture fixture;
  RankCounter& seconds = fixture.source.metrics.rank_seconds;
  seconds.n = 2, seconds.values[0] = 1.5, seconds.values[1] = 2.5;
  RankGauge& memory = fixture.source.metrics.rank_resident_memory_bytes;
  memory.n = 2, memory.values[1] = 4096;
  std::vector<prometheus::MetricFamily> families;
  add_own_families(fixture.source, families);
  const std::string text = prometheus::TextSerializer().Serialize(families);
  for (const char* line :
       {"# TYPE penstock:rank_seconds_total counter\n",
        "penstock:rank_seconds_total{model_name=\"tiny\",engine=\"0\",rank=\"0\"} 1.5\n",
        "penstock:rank_seconds_total{model_name=\"tiny\",engine=\"0\",rank=\"1\"} 2.5\n",
        "# TYPE penstock:rank_resident_memory_bytes gauge\n",
        "penstock:rank_resident_memory_bytes{model_name=\"tiny\",engine=\"0\",rank=\"1\"} 4096\n"})
    EXPECT_THAT(text, testing::HasSubstr(line));
  EXPECT_THAT(text, testing::Not(testing::HasSubstr("penstock:rank_bytes_total{")));  // of one rank
}

TEST(HttpMetrics, TrafficByRouteAndStatus) {
  Traffic traffic;
  traffic.note("/health", "GET", 200, 0.001);
  traffic.note("/health", "GET", 200, 0.001);
  traffic.note("/v1/completions", "POST", 0, 2);
  HttpCounters counters;
  std::vector<prometheus::MetricFamily> families;
  add_http_families(counters, traffic.snapshot(), families);
  add_process_families(families);
  const std::string text = prometheus::TextSerializer().Serialize(families);
  EXPECT_THAT(
      text,
      testing::HasSubstr(
          "penstock:http_requests_total{path=\"/health\",method=\"GET\",status=\"200\"} 2\n"));
  EXPECT_THAT(text, testing::HasSubstr("penstock:http_requests_total{path=\"/v1/"
                                       "completions\",method=\"POST\",status=\"0\"} 1\n"));
  EXPECT_THAT(text, testing::HasSubstr("process_resident_memory_bytes "));
}

}  // namespace
}  // namespace penstock
