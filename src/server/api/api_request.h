// Reads the JSON body of a request: checks it against its schema and gives typed access. null means
// absent.
#pragma once
#include <chrono>
#include <cstddef>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "base/result.h"
#include "frontend/json_fields.h"
#include "frontend/random_id.h"
#include "server/api/generation.h"
#include "server/services/services.h"

namespace penstock {

// Keeps the order of fields in requests and replies.
using json = nlohmann::ordered_json;

// The body as a JSON object of bounded depth and memory that fits `schema`. Errors:
// kInvalidArgument (not JSON, too deep, the first field that does not fit, an unlisted field),
// kNotFound (another model's name), kCancelled (the model is not loaded). Without strict_fields,
// unlisted fields are removed from the body and reported in a warning instead.
struct ApiBody {
  json fields;
  ModelLease model;  // the model that the body names
  // the adapter if the body names one, else null
  ServedAdapterRef adapter;
  bool background = false;  // RequestRecord::background
  const std::string& name() const { return adapter != nullptr ? adapter->name : model->name(); }
};
// The kind of result that the named model must provide; a model of another kind is
// kInvalidArgument, and the message names the endpoint that serves it.
enum class ModelUse : uint8_t { kText, kVectors, kEither };
Result<ApiBody> read_body(Services& services, const HttpRequest& request,
                          const nlohmann::json& schema, ModelUse use = ModelUse::kText);
// Reads the body as an object of bounded depth and memory, without a schema. Errors:
// kInvalidArgument, kUnsupported (a content encoding).
Result<json> read_json_body(const Services& services, const HttpRequest& request);

// Returns the bytes that the values of a body may take beside twice its length (read_json()).
size_t most_values(const Services& services);

// Returns the maximum number of bytes of a text that is counted or shown but not computed, so that
// no context limits it: the longest context of the served models in bytes, at least 4 MiB.
size_t most_text(const Services& services);
// Returns a 413 reply, in the shape of the requested API, if the body exceeds most_text(); for routes
// whose bodies have no pictures (counted_text.h).
std::optional<HttpReply> check_text_body(const Services& services, const HttpRequest& request);

// Returns the model name in an unchecked body; "": none.
std::string model_named_in(const Services& services, const HttpRequest& request);

// Leases the model that a body names. Errors: those of ServedModels::lease().
Result<ModelLease> lease_named(const Services& services, const HttpRequest& request,
                               std::string_view name);

// Returns the value of ?model=; "": absent.
std::string model_in_query(const HttpRequest& request);
// Leases the model that ?model= names, or the first one, and loads it if necessary. Errors: those
// of ServedModels::lease() and of loading.
net::awaitable<Result<ModelLease>> model_of_query(Services& services, const HttpRequest& request);
// As model_of_query(), for a name that stands elsewhere. A model that has to go ends the request.
net::awaitable<Result<ModelLease>> model_of_name(Services& services, const HttpRequest& request,
                                                 std::string name);

// Returns GenerationCall::cache_scope: cached prompts are shared within a tenant, or by all if the
// operator allows it.
std::string cache_scope_of(const Services& services, const HttpRequest& request);

// Reads "x-request-timeout: SECONDS", which can only shorten the server's limit. Errors:
// kInvalidArgument.
Status read_timeout(const HttpRequest& request, std::optional<std::chrono::milliseconds>& timeout);

// Reads "x-prefill-wait: SECONDS": another server computes the prompts of this request
// (Request::prefill_wait_seconds). 0: absent. Errors: kInvalidArgument.
Result<double> read_prefill_wait(const HttpRequest& request);

// Reads the fields shared by all generating endpoints: sampling parameters over the model's
// defaults, priority, cache salt, deadline. Log-probabilities are limited by the server's
// max_logprobs. The caller sets the prompts.
// body: asked.fields, or an equivalent in this server's field names.
Result<GenerationCall> read_generation(const Services& services, const ApiBody& asked,
                                       const json& body, int default_max_tokens);

// Checks the number of alternatives per token; -1 asks for the whole vocabulary. Errors:
// kInvalidArgument (more than the server's max_logprobs).
Status check_logprobs(const Services& services, const ServedModel& model, int64_t asked,
                      const char* field);

// Adds the thinking budget of one more prompt if the request has a thinking_token_budget. Errors:
// kInvalidArgument (the model has no known reasoning format).
Status read_thinking_budget(const json& body, bool starts_inside, GenerationCall& call);

bool truncates(const json& body);
// Truncates a prompt to truncate_prompt_tokens tokens if the client sets it (-1: to what fits the
// context). Keeps the last tokens, or the first with truncation_side "right".
void truncate_prompt(const ServedModel& model, const json& body, std::vector<TokenId>& prompt);

std::string dump(const json& value);  // never throws; ill-formed UTF-8 is replaced
std::string sse(const json& value);   // "data: …\n\n"
std::string sse_event(const std::string& name, const json& value);  // "event: name\ndata: …\n\n"
// Returns a 200 reply. A function, because g++ 12 destroys a braced aggregate inside a co_await
// twice.
HttpReply json_reply(const json& body);

}  // namespace penstock
