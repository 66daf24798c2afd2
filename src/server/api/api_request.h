// Reading the JSON body of a request: checked against its schema, typed access, null meaning
// absent.
#pragma once
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

// Requests and replies keep the order of their fields.
using json = nlohmann::ordered_json;

// The body as a JSON object of bounded depth and memory that fits `schema`. Errors:
// kInvalidArgument (not JSON, too deep, the first field that does not fit, a field the schema does
// not list), kNotFound (another model's name), kCancelled (a model that is not loaded). Without
// strict_fields, what the schema does not list is taken out of the body with a warning instead.
struct ApiBody {
  json fields;
  ModelLease model;  // that the body names
  // of the model, if the name is an adapter's; else null
  ServedAdapterRef adapter;
  bool background = false;  // RequestRecord::background
  const std::string& name() const { return adapter != nullptr ? adapter->name : model->name(); }
};
// use: what the model that is named must give; another kind is kInvalidArgument, which says where
// it is served.
enum class ModelUse : uint8_t { kText, kVectors, kEither };
Result<ApiBody> read_body(Services& services, const HttpRequest& request,
                          const nlohmann::json& schema, ModelUse use = ModelUse::kText);
// The body as an object that nothing is known of but that its depth and memory are bounded. Errors:
// kInvalidArgument, kUnsupported (an encoding).
Result<json> read_json_body(const Services& services, const HttpRequest& request);

// Bytes of a text that is counted or shown instead of computed, which no context bounds: what the
// longest context of the served models takes, 4 MiB at least.
size_t most_text(const Services& services);
// 413, in the shape of the API that was asked, for a body that is more than such a text.
std::optional<HttpReply> check_text_body(const Services& services, const HttpRequest& request);

// The name of a model in a body that nobody has checked; "" when it has none.
std::string model_named_in(const Services& services, const HttpRequest& request);

// The name that ?model= gives; "" without.
std::string model_in_query(const HttpRequest& request);
// The model that ?model= names, or the first one, loaded if need be. Errors: of
// ServedModels::lease(), of loading.
net::awaitable<Result<ModelLease>> model_of_query(Services& services, const HttpRequest& request);

// What every endpoint that generates has in common: sampling over the model's defaults, priority,
// salt, deadline. The log-probabilities asked for are bounded by the server's max_logprobs. The
// prompts are the caller's.
// body: asked.fields, or what they mean.
Result<GenerationCall> read_generation(const Services& services, const ApiBody& asked,
                                       const json& body, int default_max_tokens);

// Error: kInvalidArgument, more alternatives than the server's max_logprobs; -1 asks for the whole
// vocabulary.
Status check_logprobs(const Services& services, const ServedModel& model, int64_t asked,
                      const char* field);

// Adds the budget of one more prompt when the request has a thinking_token_budget. Error:
// kInvalidArgument, no reasoning is known here.
Status read_thinking_budget(const json& body, bool starts_inside, GenerationCall& call);

bool truncates(const json& body);
// Cuts a prompt to truncate_prompt_tokens tokens (-1: what fits the context) when the client asks
// for it: its last ones, or with truncation_side "right" its first.
void truncate_prompt(const ServedModel& model, const json& body, std::vector<TokenId>& prompt);

std::string dump(const json& value);  // never throws: what is not UTF-8 is replaced
std::string sse(const json& value);   // "data: …\n\n"
std::string sse_event(const std::string& name, const json& value);  // "event: name\ndata: …\n\n"
// A 200 reply. (g++ 12 destroys a braced aggregate inside a co_await twice: replies are made by
// functions.)
HttpReply json_reply(const json& body);

}  // namespace penstock
