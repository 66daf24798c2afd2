// Where spans go, and which: the flag --otlp-endpoint and the environment variables of OpenTelemetry.
#pragma once
#include <chrono>
#include <cstddef>
#include <string>
#include <utility>
#include <vector>

#include "base/result.h"
#include "gateway/telemetry/span.h"

namespace penstock {

struct OtlpConfig {
  std::string url;  // of the traces: "http://127.0.0.1:4318/v1/traces"; empty: nothing is exported
  std::vector<std::pair<std::string, std::string>> headers;
  std::string certificate;  // file of certificates that are trusted instead of the system's
  SpanAttributes resource;  // service.name and more
  std::chrono::milliseconds timeout{10000};
  std::chrono::milliseconds delay{5000};  // longest time that a span waits for others
  size_t most_waiting = 2048, most_at_once = 512;
  bool follow_parent = true;  // who asked decides; what follows is for those where nobody asked
  double share = 1;           // of traces, by their ids
};

// endpoint: the flag's, a base such as http://127.0.0.1:4318; empty: the environment decides. Errors: kInvalidArgument,
// a value that is not understood; kUnsupported, a protocol or compression that is not spoken here.
Result<OtlpConfig> otlp_config(const std::string& endpoint);

// Whether spans of a new trace are recorded.
bool is_sampled(const OtlpConfig& config, const std::string& trace_id);

}  // namespace penstock
