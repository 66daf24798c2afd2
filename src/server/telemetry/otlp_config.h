// The export of spans as configured by the flag --otlp-endpoint and the environment variables of
// OpenTelemetry.
#pragma once
#include <chrono>
#include <cstddef>
#include <string>
#include <utility>
#include <vector>

#include "base/result.h"
#include "server/telemetry/span.h"

namespace penstock {

struct OtlpConfig {
  // URL for traces: "http://127.0.0.1:4318/v1/traces"; empty: no export
  std::string url;
  std::vector<std::pair<std::string, std::string>> headers;
  // file of trusted certificates, instead of the system's
  std::string certificate;
  // attributes of the resource: service.name and others
  SpanAttributes resource;
  std::chrono::milliseconds timeout{10000};
  std::chrono::milliseconds delay{5000};  // maximum time that a span waits for a batch
  size_t most_waiting = 2048, most_at_once = 512;
  // The sampling decision of the caller's trace applies; `share` is for requests without one.
  bool follow_parent = true;
  // share of traces that are sampled, by trace id
  double share = 1;
};

// Reads the configuration. endpoint: value of the flag, a base URL such as http://127.0.0.1:4318;
// empty: the environment decides. Errors: kInvalidArgument (a malformed value), kUnsupported (a
// protocol or compression).
Result<OtlpConfig> otlp_config(const std::string& endpoint);

// Whether a trace without a sampling decision of its caller is sampled.
bool is_sampled(const OtlpConfig& config, const std::string& trace_id);

}  // namespace penstock
