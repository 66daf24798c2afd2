// Which trace a request belongs to: the W3C's headers traceparent and tracestate (Trace Context, level 1).
#pragma once
#include <chrono>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace penstock {

struct TraceContext {
  std::string trace_id;   // 32 hexadecimal digits
  std::string span_id;    // 16: of this server's part of it
  std::string parent_id;  // 16: who asked; empty when it begins here
  std::string state;      // tracestate, as it came
  bool sampled = true;    // whoever asked records it, or nobody said anything

  std::string header() const;  // "00-<trace>-<span>-01"
};

// The trace that the headers tell, with a span of its own below theirs. Nothing when there is no traceparent or one that
// says nothing; a tracestate without one counts for nothing.
std::optional<TraceContext> read_trace(std::string_view traceparent, std::string_view tracestate);
TraceContext new_trace();
std::string new_span_id();

// A text or vectors that a request was answered with, and where the time went. Seconds follow one another from `begin`.
struct GenerationNote {
  std::string model;
  std::chrono::system_clock::time_point begin;
  double queued = 0, prefill = 0, decode = 0;
  int input_tokens = 0, output_tokens = 0, cached_tokens = 0;
  std::vector<std::string> finish_reasons;
  // What was asked for, by the names of the semantic conventions: numbers.
  std::vector<std::pair<const char*, double>> asked;
};

// Of one request.
struct RequestTrace {
  TraceContext context;
  std::chrono::system_clock::time_point begin = std::chrono::system_clock::now();
  bool notes_wanted = false;  // spans will be made of it
  std::vector<GenerationNote> notes;
};

}  // namespace penstock
