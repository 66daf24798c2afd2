#include "server/routing/errors.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "base/ascii.h"
#include "server/routing/client_reason.h"

namespace penstock {
namespace {

const char* error_type(int status) {
  switch (status) {
    case 401: return "authentication_error";
    case 403: return "permission_error";
    case 404: return "not_found_error";
    case 429: return "rate_limit_error";
    case 503: return "service_unavailable_error";
    default: return status < 500 ? "invalid_request_error" : "internal_server_error";
  }
}

const char* anthropic_error_type(int status) {
  switch (status) {
    case 413: return "request_too_large";
    case 503: return "overloaded_error";
    case 504: return "timeout_error";
    default: return status < 500 ? error_type(status) : "api_error";
  }
}

// Limits the length of a message, which may quote megabytes of a request.
std::string_view readable(std::string_view message) {
  constexpr size_t kMost = 4000;  // bytes
  if (message.size() <= kMost) return message;
  size_t end = kMost;
  // cut at a character boundary
  while (end > 0 && (static_cast<unsigned char>(message[end]) & 0xc0) == 0x80) --end;
  return message.substr(0, end);
}

std::string text_of(const nlohmann::json& body) {
  return body.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

// Returns the parameter that a message is about: the name before the first colon ("top_p: expected
// …").
std::string_view parameter_of(std::string_view message) {
  message = readable(message);
  const std::string_view name = message.substr(0, message.find(": "));
  const auto in_name = [](char c) {
    return is_ascii_alnum(c) || c == '_' || c == '.' || c == '[' || c == ']';
  };
  const bool is_name = name.size() < message.size() && name != "body" &&
                       std::all_of(name.begin(), name.end(), in_name);
  return is_name ? name : std::string_view();
}

void set_header(HttpReply& reply, const std::string& name, std::string value) {
  std::erase_if(reply.headers, [&](const auto& header) { return header.first == name; });
  reply.headers.emplace_back(name, std::move(value));
}

}  // namespace

int http_status(ErrorCode code) {
  switch (code) {
    case ErrorCode::kInvalidArgument:
    case ErrorCode::kContextOverflow:
    case ErrorCode::kUnsupported: return 400;
    case ErrorCode::kNotFound: return 404;
    case ErrorCode::kResourceExhausted: return 429;
    case ErrorCode::kCancelled: return 503;
    case ErrorCode::kDeadlineExceeded: return 504;
    case ErrorCode::kCorruptFile:
    case ErrorCode::kIo:
    case ErrorCode::kInternal: break;
  }
  return 500;
}

std::string error_body(int status, std::string_view message, std::string_view param,
                       std::string_view code) {
  const nlohmann::json body = {
      {"error",
       {{"message", readable(message)},
        {"type", error_type(status)},
        {"param", param.empty() ? nlohmann::json(nullptr) : nlohmann::json(param)},
        {"code", code.empty() ? nlohmann::json(status) : nlohmann::json(code)}}}};
  return text_of(body);
}

std::string anthropic_error_body(int status, std::string_view message) {
  return text_of(
      {{"type", "error"},
       {"error", {{"type", anthropic_error_type(status)}, {"message", readable(message)}}}});
}

std::string ollama_error_body(std::string_view message) {
  return text_of({{"error", readable(message)}});
}

std::string error_body_at(std::string_view path, int status, std::string_view message) {
  if (path.starts_with("/api/")) return ollama_error_body(message);
  constexpr std::string_view kMessages = "/v1/messages";
  const bool anthropic = path.starts_with(kMessages) &&
                         (path.size() == kMessages.size() || path[kMessages.size()] == '/' ||
                          path[kMessages.size()] == '?');
  return anthropic ? anthropic_error_body(status, message) : error_body(status, message);
}

HttpReply error_reply(int status, std::string_view message, std::string_view param,
                      std::string_view code) {
  HttpReply reply;
  reply.status = status;
  reply.body = error_body(status, message, param, code);
  if (status == 429 || status == 503) reply.headers.emplace_back("Retry-After", "1");
  if (status == 401) reply.headers.emplace_back("WWW-Authenticate", "Bearer");
  return reply;
}

HttpReply error_reply(const Error& error, std::string_view prompt_field) {
  if (error.code == ErrorCode::kContextOverflow)
    return error_reply(400, error.message, prompt_field, "context_length_exceeded");
  const int status = http_status(error.code);
  if (status == 500) return error_reply(status, without_folders(error.message));
  return error_reply(
      status, error.message,
      status == 400 || status == 404 ? parameter_of(error.message) : std::string_view());
}

HttpReply error_reply(const HttpRequest& request, int status, std::string_view message) {
  HttpReply reply = error_reply(status, message);
  reply.body = error_body_at(request.path, status, message);
  return reply;
}

HttpReply error_reply(const HttpRequest& request, const HttpRefusal& refusal) {
  HttpReply reply = error_reply(request, refusal.status, refusal.message);
  set_headers(reply, refusal.headers);
  return reply;
}

void set_headers(HttpReply& reply,
                 const std::vector<std::pair<std::string, std::string>>& headers) {
  for (const auto& [name, value] : headers) set_header(reply, name, value);
}

void set_retry_after(HttpReply& reply, double seconds) {
  set_header(reply, "Retry-After",
             fmt::format("{:.0f}", std::clamp(std::ceil(seconds), 1.0, 86400.0)));
}

}  // namespace penstock
