#include <nlohmann/json.hpp>

#include "penstock/version.h"
#include "server/telemetry/span.h"

namespace penstock {
namespace {

using Json = nlohmann::json;

// Protocol buffers write 64-bit integers as JSON strings.
Json value_json(const SpanValue& value) {
  if (const auto* text = std::get_if<std::string>(&value)) return {{"stringValue", *text}};
  if (const auto* whole = std::get_if<int64_t>(&value))
    return {{"intValue", std::to_string(*whole)}};
  if (const auto* number = std::get_if<double>(&value)) return {{"doubleValue", *number}};
  if (const auto* flag = std::get_if<bool>(&value)) return {{"boolValue", *flag}};
  Json values = Json::array();
  for (const std::string& text : std::get<std::vector<std::string>>(value))
    values.push_back({{"stringValue", text}});
  return {{"arrayValue", {{"values", std::move(values)}}}};
}

Json attributes_json(const SpanAttributes& attributes) {
  Json list = Json::array();
  for (const auto& [key, value] : attributes)
    list.push_back({{"key", key}, {"value", value_json(value)}});
  return list;
}

std::string nanoseconds_text(std::chrono::system_clock::time_point time) {
  return std::to_string(
      std::chrono::duration_cast<std::chrono::nanoseconds>(time.time_since_epoch()).count());
}

Json span_json(const Span& span) {
  constexpr int kError = 2;
  Json result = {{"traceId", span.trace_id},
                 {"spanId", span.span_id},
                 {"name", span.name},
                 {"kind", static_cast<int>(span.kind)},
                 {"startTimeUnixNano", nanoseconds_text(span.begin)},
                 {"endTimeUnixNano", nanoseconds_text(span.end)},
                 {"attributes", attributes_json(span.attributes)},
                 {"status", Json::object()}};
  if (!span.parent_id.empty()) result["parentSpanId"] = span.parent_id;
  if (!span.state.empty()) result["traceState"] = span.state;
  if (span.failed) result["status"]["code"] = kError;
  return result;
}

}  // namespace

std::string otlp_json(const SpanAttributes& resource, std::span<const Span> spans) {
  Json list = Json::array();
  for (const Span& span : spans) list.push_back(span_json(span));
  const Json scope = {{"name", "penstock"}, {"version", kVersion}};
  const Json scoped = {{"scope", scope}, {"spans", std::move(list)}};
  const Json resources = {{"resource", {{"attributes", attributes_json(resource)}}},
                          {"scopeSpans", Json::array({scoped})}};
  const Json body = {{"resourceSpans", Json::array({resources})}};
  return body.dump(-1, ' ', false, Json::error_handler_t::replace);
}

}  // namespace penstock
