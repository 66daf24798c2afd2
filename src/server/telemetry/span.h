// A span of a trace, and spans as OTLP's JSON.
#pragma once
#include <chrono>
#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <variant>
#include <vector>

namespace penstock {

enum class SpanKind : uint8_t { kInternal = 1, kServer = 2 };  // OTLP's numbers

using SpanValue = std::variant<std::string, int64_t, double, bool, std::vector<std::string>>;
using SpanAttributes = std::vector<std::pair<std::string, SpanValue>>;

struct Span {
  std::string trace_id, span_id, parent_id, state;
  std::string name;
  SpanKind kind = SpanKind::kInternal;
  std::chrono::system_clock::time_point begin, end;
  SpanAttributes attributes;
  bool failed = false;
};

// The body of a request to an OTLP/HTTP receiver: one resource, one scope, the spans.
std::string otlp_json(const SpanAttributes& resource, std::span<const Span> spans);

}  // namespace penstock
