// Reading the JSON body of a request: typed fields with errors that name the field, null meaning absent.
#pragma once
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "base/result.h"
#include "frontend/session.h"
#include "server/exchange.h"

namespace penstock {

using json = nlohmann::json;

// The body as a JSON object of bounded depth. Errors: kInvalidArgument (not JSON, not an object, nested too deeply).
Result<json> parse_body(const HttpRequest& request);

// A field that must have the type when it is there; `fallback` when it is absent or null.
Result<bool> get_bool(const json& body, const char* field, bool fallback);
Result<std::string> get_string(const json& body, const char* field, std::string fallback);
Result<int64_t> get_int(const json& body, const char* field, int64_t fallback, int64_t min, int64_t max);

// Sampling fields over the model's defaults, with the API's own default for max_tokens.
Result<SamplingParams> read_sampling(const Session& session, const json& body, int default_max_tokens);
Result<Priority> read_priority(const json& body);

// What the API calls a model: nothing, or the served name. Error: kNotFound.
Status check_model(const json& body, const std::string& served);

// Fields that this server does not implement and must not ignore silently.
Status refuse_fields(const json& body, std::initializer_list<const char*> fields);

std::string dump(const json& value);  // never throws: what is not UTF-8 is replaced
std::string sse(const json& value);   // "data: …\n\n"
// A 200 reply. (g++ 12 destroys a braced aggregate inside a co_await twice: replies are made by functions.)
HttpReply json_reply(const json& body);
std::string random_id(const char* prefix);

}  // namespace penstock
