#include "server/telemetry/otlp_config.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdlib>
#include <string_view>

#include "base/ascii.h"
#include "base/locale_free.h"
#include "base/regular_file.h"
#include "penstock/version.h"

namespace penstock {
namespace {

std::string variable(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

// Reads the variable for traces, or else the one for all signals.
std::string exporter_variable(std::string_view name) {
  const std::string own = variable(("OTEL_EXPORTER_OTLP_TRACES_" + std::string(name)).c_str());
  return own.empty() ? variable(("OTEL_EXPORTER_OTLP_" + std::string(name)).c_str()) : own;
}

std::string percent_decoded(std::string_view text) {
  std::string out;
  for (size_t i = 0; i < text.size(); ++i) {
    int value = 0;
    const bool escape =
        text[i] == '%' && i + 2 < text.size() &&
        std::from_chars(&text[i + 1], &text[i + 1] + 2, value, 16).ptr == &text[i + 1] + 2;
    out += escape ? static_cast<char>(value) : text[i];
    if (escape) i += 2;
  }
  return out;
}

// Parses "name=value,name=value" with percent-encoded values.
Result<std::vector<std::pair<std::string, std::string>>> read_pairs(const char* name,
                                                                    const std::string& text) {
  std::vector<std::pair<std::string, std::string>> pairs;
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = std::min(text.find(',', begin), text.size());
    const std::string one(trim_blanks(std::string_view(text).substr(begin, end - begin)));
    begin = end + 1;
    if (one.empty()) continue;
    const size_t equals = one.find('=');
    const std::string key(trim_blanks(std::string_view(one).substr(0, equals)));
    if (equals == std::string::npos || key.empty())
      return errorf(ErrorCode::kInvalidArgument, "{}: expected name=value, got {:.40}", name, one);
    std::string value = percent_decoded(trim_blanks(std::string_view(one).substr(equals + 1)));
    if (value.find_first_of("\r\n") != std::string::npos)
      return errorf(ErrorCode::kInvalidArgument, "{}: {} has a line break in it", name, key);
    pairs.emplace_back(percent_decoded(key), std::move(value));
  }
  return pairs;
}

Result<int64_t> read_count(const char* name, const std::string& text, int64_t least,
                           int64_t fallback) {
  if (text.empty()) return fallback;
  int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error == std::errc() && end == text.data() + text.size() && value >= least &&
      value <= INT32_MAX)
    return value;
  return errorf(ErrorCode::kInvalidArgument,
                "{}: expected a whole number of at least {}, got {:.40}", name, least, text);
}

Status check_words(const char* name, const std::string& value,
                   std::initializer_list<std::string_view> known) {
  if (value.empty() || std::ranges::find(known, value) != known.end()) return {};
  std::string words;
  for (const std::string_view word : known)
    words += (words.empty() ? "" : ", ") + std::string(word);
  return errorf(ErrorCode::kUnsupported, "{}: expected {}, got {:.40}", name, words, value);
}

// Appends the path for traces to a base URL; a URL for traces is used unchanged.
Result<std::string> traces_url(const std::string& endpoint) {
  std::string url = endpoint;
  bool is_base = true;
  if (url.empty()) url = variable("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT"), is_base = url.empty();
  if (url.empty()) url = variable("OTEL_EXPORTER_OTLP_ENDPOINT");
  if (url.empty()) return url;
  if (!url.starts_with("http://") && !url.starts_with("https://"))
    return errorf(ErrorCode::kInvalidArgument,
                  "OTLP endpoint: expected http://… or https://…, got {:.200}", url);
  if (!is_base || url.ends_with("/v1/traces")) return url;
  while (url.ends_with('/')) url.pop_back();
  return url + "/v1/traces";
}

Status read_sampler(OtlpConfig& config) {
  const std::string name = variable("OTEL_TRACES_SAMPLER"),
                    argument = variable("OTEL_TRACES_SAMPLER_ARG");
  RETURN_IF_ERROR(check_words("OTEL_TRACES_SAMPLER", name,
                              {"always_on", "always_off", "traceidratio", "parentbased_always_on",
                               "parentbased_always_off", "parentbased_traceidratio"}));
  config.follow_parent = name.empty() || name.starts_with("parentbased_");
  if (name.ends_with("always_off")) config.share = 0;
  if (!name.ends_with("traceidratio") || argument.empty()) return {};
  char* end = nullptr;
  config.share = locale_free_strtod(argument.c_str(), &end);
  if (*end == '\0' && config.share >= 0 && config.share <= 1) return {};
  return errorf(ErrorCode::kInvalidArgument,
                "OTEL_TRACES_SAMPLER_ARG: expected a number from 0 to 1, got {:.40}", argument);
}

Status read_resource(OtlpConfig& config) {
  ASSIGN_OR_RETURN(const auto pairs,
                   read_pairs("OTEL_RESOURCE_ATTRIBUTES", variable("OTEL_RESOURCE_ATTRIBUTES")));
  std::string service = variable("OTEL_SERVICE_NAME");
  for (const auto& [key, value] : pairs) {
    if (key == "service.name" && service.empty()) service = value;
    if (key != "service.name") config.resource.emplace_back(key, value);
  }
  config.resource.emplace_back("service.name", service.empty() ? "penstock" : service);
  config.resource.emplace_back("service.version", std::string(kVersion));
  return {};
}

}  // namespace

Result<OtlpConfig> otlp_config(const std::string& endpoint) {
  OtlpConfig config;
  const std::string exporter = variable("OTEL_TRACES_EXPORTER"),
                    disabled = variable("OTEL_SDK_DISABLED");
  if (endpoint.empty() && (exporter == "none" || disabled == "true")) return config;
  ASSIGN_OR_RETURN(config.url, traces_url(endpoint));
  if (config.url.empty()) return config;
  RETURN_IF_ERROR(
      check_words("OTEL_EXPORTER_OTLP_PROTOCOL", exporter_variable("PROTOCOL"), {"http/json"}));
  RETURN_IF_ERROR(
      check_words("OTEL_EXPORTER_OTLP_COMPRESSION", exporter_variable("COMPRESSION"), {"none"}));
  ASSIGN_OR_RETURN(config.headers,
                   read_pairs("OTEL_EXPORTER_OTLP_HEADERS", exporter_variable("HEADERS")));
  config.certificate = exporter_variable("CERTIFICATE");
  if (!config.certificate.empty()) RETURN_IF_ERROR(check_regular_file(config.certificate));
  ASSIGN_OR_RETURN(const int64_t timeout,
                   read_count("OTEL_EXPORTER_OTLP_TIMEOUT", exporter_variable("TIMEOUT"), 1,
                              config.timeout.count()));
  ASSIGN_OR_RETURN(const int64_t delay,
                   read_count("OTEL_BSP_SCHEDULE_DELAY", variable("OTEL_BSP_SCHEDULE_DELAY"), 0,
                              config.delay.count()));
  ASSIGN_OR_RETURN(const int64_t most,
                   read_count("OTEL_BSP_MAX_QUEUE_SIZE", variable("OTEL_BSP_MAX_QUEUE_SIZE"), 1,
                              static_cast<int64_t>(config.most_waiting)));
  ASSIGN_OR_RETURN(const int64_t batch, read_count("OTEL_BSP_MAX_EXPORT_BATCH_SIZE",
                                                   variable("OTEL_BSP_MAX_EXPORT_BATCH_SIZE"), 1,
                                                   static_cast<int64_t>(config.most_at_once)));
  config.timeout = std::chrono::milliseconds(timeout);
  config.delay = std::chrono::milliseconds(delay);
  config.most_waiting = static_cast<size_t>(most);
  config.most_at_once = static_cast<size_t>(std::min(batch, most));
  RETURN_IF_ERROR(read_sampler(config));
  RETURN_IF_ERROR(read_resource(config));
  return config;
}

bool is_sampled(const OtlpConfig& config, const std::string& trace_id) {
  if (config.share >= 1) return true;
  // the low 8 bytes, as in OpenTelemetry's ratio sampler
  uint64_t low = 0;
  std::from_chars(trace_id.data() + 16, trace_id.data() + 32, low, 16);
  return low >> 1 < static_cast<uint64_t>(config.share * std::ldexp(1.0, 63));
}

}  // namespace penstock
