// Errors as the API shows them: OpenAI's shape, {"error": {message, type, param, code}}, and
// Anthropic's, {"type": "error", "error": {type, message}}, below /v1/messages.
#pragma once
#include <string>
#include <string_view>

#include "base/result.h"
#include "server/http/exchange.h"

namespace penstock {

int http_status(ErrorCode code);

// {"error": {…}}; type follows from the status ("invalid_request_error", "not_found_error", …).
// code is the status unless one is given.
std::string error_body(int status, std::string_view message, std::string_view param = {},
                       std::string_view code = {});
std::string anthropic_error_body(int status, std::string_view message);
// {"error": message}, below /api: Ollama's.
std::string ollama_error_body(std::string_view message);
// In the shape of the API that `path` belongs to.
std::string error_body_at(std::string_view path, int status, std::string_view message);

// A whole reply; 429 and 503 carry Retry-After.
HttpReply error_reply(int status, std::string_view message, std::string_view param = {},
                      std::string_view code = {});
// prompt_field: the parameter that is too long when the prompt does not fit the context.
HttpReply error_reply(const Error& error, std::string_view prompt_field = "prompt");
// In the shape of the API that was asked.
HttpReply error_reply(const HttpRequest& request, int status, std::string_view message);
HttpReply error_reply(const HttpRequest& request, const HttpRefusal& refusal);

// Whole seconds, 1 to 86,400, instead of what the reply says so far.
void set_headers(HttpReply& reply, const std::vector<std::pair<std::string, std::string>>& headers);
void set_retry_after(HttpReply& reply, double seconds);

}  // namespace penstock
