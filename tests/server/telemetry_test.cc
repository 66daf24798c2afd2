// Settings of traces, and the JSON of spans. What goes over the wire is in tests/e2e/traces_e2e.py.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <nlohmann/json.hpp>

#include "server/telemetry/otlp_config.h"

namespace penstock {
namespace {

using testing::HasSubstr;
using testing::Pair;

class TelemetryTest : public testing::Test {
 protected:
  ~TelemetryTest() override {
    for (const std::string& name : names_) unsetenv(name.c_str());
  }
  void set(const std::string& name, const char* value) {
    setenv(name.c_str(), value, 1);
    names_.push_back(name);
  }
  static std::string url_of(const std::string& endpoint) {
    const auto config = otlp_config(endpoint);
    return config ? config->url : "error: " + config.error().message;
  }

 private:
  std::vector<std::string> names_;
};

TEST_F(TelemetryTest, WhereSpansGo) {
  EXPECT_EQ(url_of(""), "");
  EXPECT_EQ(url_of("http://a:4318"), "http://a:4318/v1/traces");
  EXPECT_EQ(url_of("https://a/base//"), "https://a/base/v1/traces");
  EXPECT_EQ(url_of("http://a/v1/traces"), "http://a/v1/traces");
  EXPECT_THAT(url_of("a:4318"), HasSubstr("expected http://"));
  set("OTEL_EXPORTER_OTLP_ENDPOINT", "http://b");
  EXPECT_EQ(url_of(""), "http://b/v1/traces");
  set("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "http://c/own");
  EXPECT_EQ(url_of(""), "http://c/own");
  EXPECT_EQ(url_of("http://flag"), "http://flag/v1/traces");
  set("OTEL_TRACES_EXPORTER", "none");
  EXPECT_EQ(url_of(""), "");
}

TEST_F(TelemetryTest, HeadersAndResource) {
  set("OTEL_EXPORTER_OTLP_HEADERS", "a=1, b = x%20y%3D,");
  set("OTEL_RESOURCE_ATTRIBUTES", "service.name=s,zone=z");
  auto config = otlp_config("http://a");
  ASSERT_TRUE(config) << config.error().message;
  EXPECT_THAT(config->headers, testing::ElementsAre(Pair("a", "1"), Pair("b", "x y=")));
  EXPECT_EQ(config->resource[0], (SpanAttributes::value_type("zone", std::string("z"))));
  EXPECT_EQ(config->resource[1], (SpanAttributes::value_type("service.name", std::string("s"))));
  set("OTEL_EXPORTER_OTLP_TRACES_HEADERS", "a=%0d%0aHost:evil");
  config = otlp_config("http://a");
  ASSERT_FALSE(config);
  EXPECT_THAT(config.error().message, HasSubstr("line break"));
}

TEST_F(TelemetryTest, SharesOfTraces) {
  set("OTEL_TRACES_SAMPLER", "traceidratio");
  set("OTEL_TRACES_SAMPLER_ARG", "0.25");
  const auto config = otlp_config("http://a");
  ASSERT_TRUE(config);
  EXPECT_FALSE(config->follow_parent);
  const std::string high(16, 'f');
  EXPECT_TRUE(is_sampled(*config, high + "0000000000000001"));
  EXPECT_TRUE(is_sampled(*config, high + "3fffffffffffffff"));
  EXPECT_FALSE(is_sampled(*config, high + "4000000000000000"));
  EXPECT_FALSE(is_sampled(*config, std::string(16, '0') + "ffffffffffffffff"));
  set("OTEL_TRACES_SAMPLER_ARG", "2");
  EXPECT_FALSE(otlp_config("http://a"));
}

TEST_F(TelemetryTest, Json) {
  Span span;
  span.trace_id = "0af7651916cd43dd8448eb211c80319c", span.span_id = "b7ad6b7169203331";
  span.name = "a \"b\" \xff", span.failed = true;
  span.begin = std::chrono::system_clock::time_point(std::chrono::seconds(3));
  span.end = span.begin + std::chrono::milliseconds(1);
  span.attributes = {
      {"n", int64_t{1} << 60}, {"x", 0.5}, {"b", true}, {"l", std::vector<std::string>{"p", "q"}}};
  const auto body =
      nlohmann::json::parse(otlp_json({{"service.name", std::string("s")}}, {&span, 1}));
  const auto& got = body["resourceSpans"][0]["scopeSpans"][0]["spans"][0];
  EXPECT_EQ(got["startTimeUnixNano"], "3000000000");
  EXPECT_EQ(got["endTimeUnixNano"], "3001000000");
  EXPECT_EQ(got["status"]["code"], 2);
  EXPECT_FALSE(got.contains("parentSpanId"));
  EXPECT_EQ(got["attributes"][0]["value"]["intValue"], "1152921504606846976");
  EXPECT_EQ(got["attributes"][3]["value"]["arrayValue"]["values"][1]["stringValue"], "q");
}

}  // namespace
}  // namespace penstock
