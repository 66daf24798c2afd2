// Which trace a request belongs to: the W3C's headers traceparent and tracestate (Trace Context,
// level 1).
#pragma once
#include <optional>
#include <string>
#include <string_view>

namespace penstock {

struct TraceContext {
  std::string trace_id;   // 32 hexadecimal digits
  std::string span_id;    // 16: of this server's part of it
  std::string parent_id;  // 16: who asked; empty when it begins here
  std::string state;      // tracestate, as it came
  // whoever asked records it, or nobody said anything
  bool sampled = true;

  std::string header() const;  // "00-<trace>-<span>-01"
};

// The trace that the headers tell, with a span of its own below theirs. Nothing when there is no
// traceparent or one that says nothing; a tracestate without one counts for nothing.
std::optional<TraceContext> read_trace(std::string_view traceparent, std::string_view tracestate);
TraceContext new_trace();
std::string new_span_id();

}  // namespace penstock
