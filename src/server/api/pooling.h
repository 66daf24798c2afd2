// What the routes of vectors, classes and scores have in common.
#pragma once
#include <span>
#include <string>
#include <vector>

#include "server/api/api_request.h"
#include "server/http/http_body.h"

namespace penstock {

// An empty one, with the adapter that the body names.
PoolingCall pooling_call(const ApiBody& body);
// "input" as tokens, with the body's truncate_prompt_tokens and prompt_name. Errors:
// kInvalidArgument, kContextOverflow.
Status read_inputs(const json& body, const ServedModel& model, PoolingCall& call);
// Of embedding models: vectors of `texts`. Errors: as read_inputs.
Status add_texts(std::span<const std::string> texts, const json& body, const ServedModel& model,
                 PoolingCall& call);
// Of cross-encoders. Errors: the same.
Status add_pairs(std::span<const std::string> first, std::span<const std::string> second,
                 const json& body, const ServedModel& model, PoolingCall& call);

// Waits until it is computed. A client that leaves ends it. Errors: the queue's.
net::awaitable<Result<PoolingQueue::Vectors>> compute(Services& services, Exchange& exchange,
                                                      const ServedModel& model, PoolingCall call);

// The vector, of length 1, of a text that the server itself asks a served model about: it costs the
// client no tokens, and the text gets none of the model's prompts. truncate: what is too long is
// cut. Errors: kNotFound, kCancelled and those of loading, kUnsupported (no vectors),
// kContextOverflow, the queue's.
net::awaitable<Result<std::vector<float>>> embed_for_server(Services& services, Exchange& exchange,
                                                            const std::string& model,
                                                            const std::string& text, bool truncate);

int64_t n_tokens(const PoolingCall& call);
// Takes what the reply to a call will be, about, from what the server allows for one and for all of
// them together, until `budget` ends. Errors: kInvalidArgument, kResourceExhausted.
Status take_reply(Services& services, const ServedModel& model, const PoolingCall& call,
                  bool as_base64, BodyBudget& budget);
inline constexpr size_t kBytesOfNumber = 12;  // of a vector's text, about
// {"id", "object", "created", "model", "usage"}; prefix: of the id; name: of the model or its
// adapter.
json pooling_reply(const std::string& prefix, const std::string& name, int64_t n_tokens);
// "[0.25,-1.5]", every number as short as it comes back the same; null for what is not finite.
void append_numbers(std::span<const float> numbers, std::string& out);
std::string base64(std::span<const float> numbers);  // little-endian

// The schema of the fields that these routes share.
nlohmann::json pooling_fields();
nlohmann::json input_field();

}  // namespace penstock
