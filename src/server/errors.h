// Errors as the API shows them: OpenAI's shape, {"error": {message, type, param, code}}.
#pragma once
#include <string>
#include <string_view>

#include "base/result.h"
#include "server/exchange.h"

namespace penstock {

int http_status(ErrorCode code);

// {"error": {…}}; type follows from the status ("invalid_request_error", "not_found_error", …).
std::string error_body(int status, std::string_view message, std::string_view param = {});

// A whole reply; 429 and 503 carry Retry-After.
HttpReply error_reply(int status, std::string_view message, std::string_view param = {});
HttpReply error_reply(const Error& error);

}  // namespace penstock
