#include "server/services/request_spans.h"

#include <algorithm>

namespace penstock {
namespace {

using SystemTime = std::chrono::system_clock::time_point;

constexpr size_t kMostText = 512;  // bytes of client text

std::string cut_text(std::string_view text) { return std::string(text.substr(0, kMostText)); }

SystemTime later(SystemTime begin, double seconds) {
  return begin +
         std::chrono::duration_cast<SystemTime::duration>(std::chrono::duration<double>(seconds));
}

const char* operation_of(std::string_view route) {
  for (const char* part : {"chat", "messages", "responses"}) {
    if (route.find(part) != std::string_view::npos) return "chat";
  }
  for (const char* part : {"embed", "pooling", "classify", "score", "rerank"}) {
    if (route.find(part) != std::string_view::npos) return "embeddings";
  }
  return "text_completion";
}

class SpanMaker {
 public:
  SpanMaker(const Exchange& exchange, std::string_view route)
      : exchange_(exchange), trace_(*record_of(exchange).trace), route_(route) {}

  std::vector<Span> make(std::string_view key) {
    spans_.push_back(request(key));
    for (const GenerationNote& note : trace_.notes) add(note);
    return std::move(spans_);
  }

 private:
  Span start(std::string name, const std::string& parent, SystemTime begin, SystemTime end) const {
    Span span;
    span.trace_id = trace_.context.trace_id;
    span.state = trace_.context.state;
    span.span_id = new_span_id();
    span.parent_id = parent;
    span.name = std::move(name);
    span.begin = begin;
    span.end = std::max(begin, end);
    return span;
  }

  Span request(std::string_view key) const {
    const HttpRequest& request = exchange_.request();
    const TraceContext& context = trace_.context;
    Span span = start(request.method + " " + std::string(route_), context.parent_id, trace_.begin,
                      std::chrono::system_clock::now());
    span.span_id = context.span_id;
    span.kind = SpanKind::kServer;
    span.attributes = {{"http.request.method", request.method},
                       {"http.route", std::string(route_)},
                       {"url.path", cut_text(request.path)},
                       {"client.address", request.peer},
                       {"penstock.request.id", cut_text(request.id)}};
    if (const std::string_view agent = request.header("user-agent"); !agent.empty())
      span.attributes.emplace_back("user_agent.original", cut_text(agent));
    if (!key.empty()) span.attributes.emplace_back("penstock.key.id", std::string(key));
    const int status = exchange_.status();
    if (status > 0) span.attributes.emplace_back("http.response.status_code", int64_t{status});
    span.failed = exchange_.gone() || status >= 500;
    if (exchange_.gone()) span.attributes.emplace_back("error.type", std::string("client_left"));
    if (!exchange_.gone() && status >= 500)
      span.attributes.emplace_back("error.type", std::to_string(status));
    return span;
  }

  void add(const GenerationNote& note) {
    const char* operation = operation_of(route_);
    const double times[] = {note.queued, note.prefill, note.decode};
    SystemTime at = note.begin;
    Span span = start(std::string(operation) + " " + note.model, trace_.context.span_id, at,
                      later(at, note.queued + note.prefill + note.decode));
    span.attributes = {{"gen_ai.operation.name", std::string(operation)},
                       {"gen_ai.provider.name", std::string("penstock")},
                       {"gen_ai.request.model", note.model},
                       {"gen_ai.response.model", note.model},
                       {"gen_ai.usage.input_tokens", int64_t{note.input_tokens}},
                       {"gen_ai.usage.output_tokens", int64_t{note.output_tokens}},
                       {"gen_ai.usage.cache_read.input_tokens", int64_t{note.cached_tokens}},
                       {"gen_ai.server.time_to_first_token", note.queued + note.prefill}};
    if (!note.finish_reasons.empty())
      span.attributes.emplace_back("gen_ai.response.finish_reasons", note.finish_reasons);
    for (const auto& [name, value] : note.asked) {
      const bool whole = value == static_cast<double>(static_cast<int64_t>(value));
      const bool is_count = std::string_view(name).find("tokens") != std::string_view::npos ||
                            std::string_view(name).ends_with("count");
      span.attributes.emplace_back(
          name, whole && is_count ? SpanValue(static_cast<int64_t>(value)) : SpanValue(value));
    }
    const std::string parent = span.span_id;
    spans_.push_back(std::move(span));
    constexpr const char* kNames[] = {"queue", "prefill", "decode"};
    for (size_t i = 0; i < std::size(times); ++i) {
      if (times[i] <= 0) continue;
      spans_.push_back(start(kNames[i], parent, at, later(at, times[i])));
      at = later(at, times[i]);
    }
  }

  const Exchange& exchange_;
  const RequestTrace& trace_;
  std::string_view route_;
  std::vector<Span> spans_;
};

}  // namespace

std::vector<Span> spans_of_request(const Exchange& exchange, std::string_view route,
                                   std::string_view key) {
  return SpanMaker(exchange, route).make(key);
}

void begin_trace(const OtlpExporter* exporter, Exchange& exchange, const Endpoint* endpoint) {
  const HttpRequest& request = exchange.request();
  auto context = read_trace(request.header("traceparent"), request.header("tracestate"));
  // Monitoring endpoints are not traced.
  const bool records = exporter != nullptr && endpoint != nullptr &&
                       (endpoint->access == Access::kKey || endpoint->access == Access::kAdmin);
  if (!context && !records) return;
  const bool begins = !context;
  if (begins) context = new_trace();
  if (records && (begins || !exporter->config().follow_parent))
    context->sampled = is_sampled(exporter->config(), context->trace_id);
  RequestTrace& trace = record_of(exchange).trace.emplace();
  trace.context = std::move(*context);
  trace.notes_wanted = records && trace.context.sampled;
  exchange.reply_headers.emplace_back("traceresponse", trace.context.header());
}

}  // namespace penstock
