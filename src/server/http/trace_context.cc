#include "server/http/trace_context.h"

#include <fmt/format.h>

#include <algorithm>
#include <random>

namespace penstock {
namespace {

// bytes; the specification's minimum to propagate
constexpr size_t kMostState = 512;

bool is_lower_hex(std::string_view text) {
  return std::ranges::all_of(
      text, [](char c) { return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f'); });
}

bool is_id(std::string_view text, size_t size) {
  return text.size() == size && is_lower_hex(text) &&
         text.find_first_not_of('0') != std::string_view::npos;
}

uint64_t random_bits() {
  static thread_local std::mt19937_64 random{std::random_device{}()};
  for (;;) {
    if (const uint64_t bits = random(); bits != 0) return bits;
  }
}

bool is_state(std::string_view text) {
  return text.size() <= kMostState && text.find('=') != std::string_view::npos &&
         std::ranges::all_of(text, [](char c) { return (c >= 0x20 && c <= 0x7e) || c == '\t'; });
}

}  // namespace

std::string new_span_id() { return fmt::format("{:016x}", random_bits()); }

TraceContext new_trace() {
  TraceContext context;
  context.trace_id = fmt::format("{:016x}{:016x}", random_bits(), random_bits());
  context.span_id = new_span_id();
  return context;
}

std::string TraceContext::header() const {
  return fmt::format("00-{}-{}-{}", trace_id, span_id, sampled ? "01" : "00");
}

std::optional<TraceContext> read_trace(std::string_view traceparent, std::string_view tracestate) {
  // version-trace-parent-flags; later versions may append fields after another dash.
  constexpr size_t kSize = 55;
  if (traceparent.size() < kSize || traceparent[2] != '-' || traceparent[35] != '-' ||
      traceparent[52] != '-')
    return std::nullopt;
  const std::string_view version = traceparent.substr(0, 2), trace = traceparent.substr(3, 32),
                         parent = traceparent.substr(36, 16), flags = traceparent.substr(53, 2);
  const bool longer = traceparent.size() > kSize;
  if (!is_lower_hex(version) || version == "ff" ||
      (longer && (version == "00" || traceparent[kSize] != '-')))
    return std::nullopt;
  if (!is_id(trace, 32) || !is_id(parent, 16) || !is_lower_hex(flags)) return std::nullopt;
  TraceContext context;
  context.trace_id = trace;
  context.parent_id = parent;
  context.span_id = new_span_id();
  const char last = flags[1];
  context.sampled = ((last <= '9' ? last - '0' : last - 'a' + 10) & 1) != 0;
  if (is_state(tracestate)) context.state = tracestate;
  return context;
}

}  // namespace penstock
