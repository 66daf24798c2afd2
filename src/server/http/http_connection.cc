#include "server/http/http_connection.h"

#include <algorithm>
#include <random>

#include "base/ascii.h"
#include "server/http/url.h"

namespace penstock {
namespace {

bool is_printable(std::string_view text) {
  return std::all_of(text.begin(), text.end(), [](char c) { return c > ' ' && c < 127; });
}

}  // namespace

std::string fresh_request_id() {
  static thread_local std::mt19937_64 random{std::random_device{}()};
  return fmt::format("req-{:016x}", random());
}

void take_head(const boost::beast::http::fields& fields, std::string_view method,
               std::string_view target, HttpRequest& request) {
  request.method = std::string(method);
  parse_target(target, request.path, request.query);
  for (const auto& field : fields) {
    std::string& value = request.headers[ascii_lower(field.name_string())];
    value += (value.empty() ? "" : ", ") + std::string(field.value());
  }
  const std::string_view id = request.header("x-request-id");
  request.id =
      is_printable(id) && !id.empty() && id.size() <= 128 ? std::string(id) : fresh_request_id();
}

HttpFailure check_head(const boost::beast::http::fields& fields, unsigned version) {
  namespace http = boost::beast::http;
  const auto n_hosts = fields.count(http::field::host);
  if (n_hosts > 1 || (n_hosts == 0 && version == 11)) {
    return {400, fmt::format("malformed request: expected one Host header, got {}", n_hosts)};
  }
  const auto host = fields[http::field::host];
  if (host.find_first_of(" \t,/\\@?#") != host.npos)
    return {400, "malformed request: bad Host header"};
  if (fields.count(http::field::transfer_encoding) == 0) return {};
  if (version != 11 || fields.count(http::field::content_length) > 0) {
    return {400, version != 11 ? "malformed request: Transfer-Encoding needs HTTP/1.1"
                               : "malformed request: both Transfer-Encoding and Content-Length"};
  }
  const auto [first, last] = fields.equal_range(http::field::transfer_encoding);
  if (std::next(first) == last && boost::beast::iequals(first->value(), "chunked")) return {};
  return {501, "Transfer-Encoding: only chunked is supported"};
}

HttpFailure read_failure(error_code error, bool timed_out, const HttpConfig& config,
                         size_t most_body) {
  namespace http = boost::beast::http;
  if (timed_out) return {408, "the request did not arrive in time"};
  if (error == http::error::body_limit)
    return {413, fmt::format("request body: at most {} bytes", most_body)};
  if (error == http::error::header_limit) {
    return {431, fmt::format("request headers: at most {} bytes", config.max_header_bytes)};
  }
  if (error == boost::system::errc::not_enough_memory) {
    return {503, fmt::format("request bodies under way hold {} bytes, all that this server allows",
                             config.max_total_body_bytes)};
  }
  if (error == http::error::bad_field)
    return {400, "malformed request: bad or missing header field"};
  if (error.category() != http::make_error_code(http::error::bad_value).category() ||
      error == http::error::end_of_stream || error == http::error::partial_message) {
    return {0, ""};  // the client has left
  }
  return {400, "malformed request: " + error.message()};
}

}  // namespace penstock
