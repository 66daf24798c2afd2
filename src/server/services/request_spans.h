// What a request did, as spans: the request, the texts or vectors that it got, and for each
// waiting, prefill and decode. Names are those of OpenTelemetry's semantic conventions for HTTP and
// for generative AI.
#pragma once
#include <string_view>
#include <vector>

#include "server/routing/route.h"
#include "server/services/request_record.h"
#include "server/telemetry/otlp_exporter.h"
#include "server/telemetry/span.h"

namespace penstock {

// route: its path, with "{id}" where it has one. key: id of the API key, or empty. REQUIRES: a
// trace in its record, and that the exchange is over.
std::vector<Span> spans_of_request(const Exchange& exchange, std::string_view route,
                                   std::string_view key);

// Begins the trace in the exchange's record by what the request's headers say and by what the
// exporter samples. exporter: null where spans go nowhere; route: null where there is none.
void begin_trace(const OtlpExporter* exporter, Exchange& exchange, const Route* route);

}  // namespace penstock
