// Error replies in the form of each API: OpenAI's {"error": {message, type, param, code}}; below
// /v1/messages Anthropic's {"type": "error", "error": {type, message}}; below /api Ollama's
// {"error": message}.
#pragma once
#include <string>
#include <string_view>

#include "base/result.h"
#include "server/http/exchange.h"

namespace penstock {

int http_status(ErrorCode code);

// Returns {"error": {…}}. type follows from the status ("invalid_request_error", "not_found_error",
// …). code: "": the status.
std::string error_body(int status, std::string_view message, std::string_view param = {},
                       std::string_view code = {});
std::string anthropic_error_body(int status, std::string_view message);
// Returns {"error": message}, Ollama's form.
std::string ollama_error_body(std::string_view message);
// Returns the body in the form of the API that `path` belongs to.
std::string error_body_at(std::string_view path, int status, std::string_view message);

// Return whole replies; 429 and 503 have Retry-After.
HttpReply error_reply(int status, std::string_view message, std::string_view param = {},
                      std::string_view code = {});
// prompt_field: name of the prompt's parameter, for prompts that exceed the context.
HttpReply error_reply(const Error& error, std::string_view prompt_field = "prompt");
// Return replies in the form of the requested API.
HttpReply error_reply(const HttpRequest& request, int status, std::string_view message);
HttpReply error_reply(const HttpRequest& request, const HttpRefusal& refusal);

// set_headers() replaces existing headers. set_retry_after() rounds to whole seconds from 1 to
// 86,400.
void set_headers(HttpReply& reply, const std::vector<std::pair<std::string, std::string>>& headers);
void set_retry_after(HttpReply& reply, double seconds);

}  // namespace penstock
