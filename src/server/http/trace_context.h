// The trace of a request: the W3C headers traceparent and tracestate (Trace Context, level 1).
#pragma once
#include <optional>
#include <string>
#include <string_view>

namespace penstock {

struct TraceContext {
  std::string trace_id;  // 32 hexadecimal digits
  std::string span_id;   // 16 hexadecimal digits: this server's span
  // 16: the caller's span; empty: the trace begins here
  std::string parent_id;
  std::string state;  // tracestate, unchanged
  // the caller records the trace, or did not say
  bool sampled = true;

  std::string header() const;  // "00-<trace>-<span>-01"
};

// Reads the trace from the headers and adds a new span below the caller's. nullopt: traceparent is
// absent or invalid; tracestate alone is ignored.
std::optional<TraceContext> read_trace(std::string_view traceparent, std::string_view tracestate);
TraceContext new_trace();
std::string new_span_id();

}  // namespace penstock
