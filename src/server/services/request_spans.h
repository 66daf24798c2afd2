// Converts a request to trace spans: one for the request, one for each generation, and below it
// queueing, prefill and decode. Names follow OpenTelemetry's semantic conventions for HTTP and
// generative AI.
#pragma once
#include <string_view>
#include <vector>

#include "server/routing/endpoint.h"
#include "server/services/request_record.h"
#include "server/telemetry/otlp_exporter.h"
#include "server/telemetry/span.h"

namespace penstock {

// route: its path pattern, with "{id}". key: id of the API key, or empty. REQUIRES: the record has
// a trace, and the exchange is over.
std::vector<Span> spans_of_request(const Exchange& exchange, std::string_view route,
                                   std::string_view key);

// Starts the trace of an exchange from the request's headers and the exporter's sampling. exporter:
// null: no export. endpoint: null: none matched.
void begin_trace(const OtlpExporter* exporter, Exchange& exchange, const Endpoint* endpoint);

}  // namespace penstock
