#include "server/errors.h"

#include <algorithm>
#include <cctype>
#include <nlohmann/json.hpp>

namespace penstock {
namespace {

const char* error_type(int status) {
  switch (status) {
    case 401:
      return "authentication_error";
    case 403:
      return "permission_error";
    case 404:
      return "not_found_error";
    case 429:
      return "rate_limit_error";
    case 503:
      return "service_unavailable_error";
    default:
      return status < 500 ? "invalid_request_error" : "internal_server_error";
  }
}

// "top_p: expected …" is about top_p: the name before the first colon, when it is one.
std::string_view parameter_of(std::string_view message) {
  const std::string_view name = message.substr(0, message.find(": "));
  const auto in_name = [](char c) {
    return std::isalnum(static_cast<unsigned char>(c)) || c == '_' || c == '.' || c == '[' || c == ']';
  };
  const bool is_name =
      name.size() < message.size() && name != "body" && std::all_of(name.begin(), name.end(), in_name);
  return is_name ? name : std::string_view();
}

}  // namespace

int http_status(ErrorCode code) {
  switch (code) {
    case ErrorCode::kInvalidArgument:
    case ErrorCode::kUnsupported:
      return 400;
    case ErrorCode::kNotFound:
      return 404;
    case ErrorCode::kResourceExhausted:
      return 429;
    case ErrorCode::kCancelled:
      return 503;
    case ErrorCode::kDeadlineExceeded:
      return 504;
    case ErrorCode::kCorruptFile:
    case ErrorCode::kIo:
    case ErrorCode::kInternal:
      break;
  }
  return 500;
}

std::string error_body(int status, std::string_view message, std::string_view param) {
  const nlohmann::json body = {{"error",
                                {{"message", message},
                                 {"type", error_type(status)},
                                 {"param", param.empty() ? nlohmann::json(nullptr) : nlohmann::json(param)},
                                 {"code", status}}}};
  return body.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

HttpReply error_reply(int status, std::string_view message, std::string_view param) {
  HttpReply reply;
  reply.status = status;
  reply.body = error_body(status, message, param);
  if (status == 429 || status == 503) reply.headers.emplace_back("Retry-After", "1");
  if (status == 401) reply.headers.emplace_back("WWW-Authenticate", "Bearer");
  return reply;
}

HttpReply error_reply(const Error& error) {
  const int status = http_status(error.code);
  return error_reply(status, error.message,
                     status == 400 || status == 404 ? parameter_of(error.message) : std::string_view());
}

}  // namespace penstock
